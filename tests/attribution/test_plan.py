"""The plan: joint Amdahl of published shares and of decode steps, k from a roofline, what binds, and the refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv4bench.attribution.binding import KernelFacts, Roof, bind, roof
from dsv4bench.attribution.plan import Aim, plan_of_shares, plan_of_steps, step_shares
from dsv4bench.dsv4 import FLASH, step_costs
from dsv4bench.errors import Unanswerable
from dsv4bench.gpus import find
from dsv4bench.limits import amdahl, roofline, unattributed_frac
from dsv4bench.records.breakdown import StepComponent, Steps
from dsv4bench.records.codec import decode
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.report.plan import target_lines

CAMPAIGN = Path(__file__).resolve().parents[2] / "scenarios" / "campaign_2026" / "kernels.json"
MS = 1_000_000


def published(concurrency: int) -> list[KernelShare]:
    document = decode(CAMPAIGN.read_bytes(), SharesDocument, str(CAMPAIGN))
    return [s for s in document.shares if s.concurrency == concurrency]


def component(name: str, alone_ms: float, kernel_ms: float | None = None, launches: float = 43.0) -> StepComponent:
    return StepComponent(
        component=name,
        median_ns=round((alone_ms if kernel_ms is None else kernel_ms) * MS),
        exclusive_median_ns=round(alone_ms * MS),
        launches=launches,
    )


def steps(*components: StepComponent, step_ms: float = 40.0, idle_ms: float = 0.0, **fields: Any) -> Steps:
    known: dict[str, Any] = {
        "label": "c16",
        "count": 20,
        "method": "annotation",
        "idle_median_ns": round(idle_ms * MS),
    }
    return Steps(median_ns=round(step_ms * MS), components=list(components), **{**known, **fields})


def roof_of(name: str, batch: int = 16, tp: int = 4) -> Roof:
    gpu = find("RTX PRO 6000 Workstation")
    assert gpu is not None
    cost = next(c for c in step_costs(FLASH, batch, 1024, tp=tp) if c.component == name)
    return roof(roofline(cost, gpu), cost.flops, gpu)


def test_the_campaigns_ceilings() -> None:
    plan = plan_of_shares(published(16), Aim(concurrency=16, measured_tok_s=23.2, target_tok_s=1000))
    assert [s.component for s in plan.steps] == ["moe", "attention", "elementwise"]
    assert [f"{s.bound_ratio:.2f}" for s in plan.steps] == ["1.64", "1.61", "1.16"]
    assert [f"{s.joint_ratio:.2f}" for s in plan.steps] == ["1.64", "4.35", "11.11"]
    assert [f"{s.joint_tok_s:.1f}" for s in plan.steps] == ["38.0", "100.9", "257.8"]
    assert plan.ceiling_ratio == pytest.approx(1 / 0.09) and plan.ceiling_tok_s == pytest.approx(257.8, abs=0.05)
    assert plan.unattributed_frac == pytest.approx(0.07) and plan.needed_frac == pytest.approx(0.9768)
    assert target_lines(plan, None) == [
        "the target of 1000 tok/s needs 97.7 % of the step to vanish; "
        "the whole plan cannot reach it: it ends at 258 tok/s at most"
    ]
    assert plan.of == "unknown" and any("not told" in n for n in plan.notes)


def test_measured_kernels_give_the_campaigns_figures_at_k() -> None:
    plan = plan_of_shares(published(16), Aim(measured_tok_s=23.2), {"moe": 5.0, "attention": 5.0})
    by_name = {s.component: s for s in plan.steps}
    assert by_name["moe"].target_ratio == pytest.approx(1 / (0.61 + 0.39 / 5))
    assert plan.at_k_ratio == pytest.approx(1 / (0.23 + 0.77 / 5))  # 2.60; the tail stays as it is
    assert by_name["moe"].speedup_source == "measured kernel x5"


def test_the_published_shares_at_one_request_carry_no_plan() -> None:
    plan = plan_of_shares(published(1), Aim(concurrency=1, measured_tok_s=10.2))
    assert plan.unattributed_frac == pytest.approx(0.27) and plan.steps == [] and plan.ceiling_ratio is None
    (why,) = plan.refusals
    assert why.startswith("27 % of the step is unattributed (limit 15 %)")


def test_unsound_shares_are_refused_by_name() -> None:
    other = KernelShare(config="b", kernel="k", component="mhc", concurrency=16, share_frac=0.1, of="span")
    with pytest.raises(Unanswerable, match="different denominators"):
        plan_of_shares([other, *published(16)], Aim())


def test_a_step_is_planned_on_exclusive_time_of_its_span() -> None:
    made = steps(component("moe", 16.0, 20.0), component("comm", 4.0), idle_ms=10.0, overlap_median_ns=10 * MS)
    assert step_shares(made) == pytest.approx({"moe": 0.4, "comm": 0.1, "idle": 0.25})
    plan = plan_of_steps(made, Aim(concurrency=16, measured_tok_s=400))
    assert [s.component for s in plan.steps] == ["moe", "idle", "comm"]
    alone, with_idle, with_comm = (s.joint_ratio for s in plan.steps)
    assert alone == pytest.approx(1 / 0.6)  # what overlaps stays: the other one still runs
    assert with_idle == pytest.approx(1 / (1 - 0.65 - 0.25))  # two are free, so the overlap may go, too
    assert with_comm is None  # nothing is left: no bound, and no infinity in a document
    assert plan.ceiling_ratio is None
    idle = plan.steps[1]
    assert idle.binds == "launches" and "nothing runs" in idle.reason


def test_the_roofline_is_c_over_the_least_time_and_none_under_speculation() -> None:
    made = steps(component("moe", 16.0), component("attention", 16.0), component("dense", 8.0))
    roofs = {name: roof_of(name) for name in ("moe", "attention", "dense")}
    least_s = sum(r.line.time_s for r in roofs.values())
    plan = plan_of_steps(made, Aim(concurrency=16, measured_tok_s=400), roofs=roofs)
    assert plan.roofline_tok_s == pytest.approx(16 / least_s)
    two_a_step = plan_of_steps(made, Aim(concurrency=16, measured_tok_s=770), roofs=roofs)
    assert two_a_step.steps and two_a_step.roofline_tok_s is None
    assert plan_of_steps(made, Aim(concurrency=16, measured_tok_s=400)).roofline_tok_s is None


def test_gains_are_joint_and_never_added() -> None:
    made = steps(component("moe", 16.0), component("attention", 16.0), component("dense", 8.0))
    plan = plan_of_steps(made, Aim())
    gains = [(s.bound_ratio or 0) - 1 for s in plan.steps[:2]]
    assert plan.steps[1].joint_ratio == pytest.approx(5.0) and sum(gains) + 1 < 2.4


def test_the_rank_follows_what_can_be_gained_at_k() -> None:
    """Attention holds more of the step, and is near its roof; the experts have room."""
    made = steps(component("attention", 20.0), component("moe", 15.0), component("dense", 5.0))
    line = roof_of("moe")
    near = Roof(line=line.line, cuda_cores_s=None, gpu="g", bandwidth_gb_s=1.0, kind="user")
    facts = {
        "attention": KernelFacts(time_ns=round(line.line.time_s * 1.1e9)),
        "moe": KernelFacts(time_ns=round(line.line.time_s * 3e9)),
    }
    plan = plan_of_steps(made, Aim(), facts=facts, roofs={"attention": near, "moe": line})
    assert [s.component for s in plan.steps] == ["moe", "dense", "attention"]
    by_name = {s.component: s for s in plan.steps}
    assert by_name["attention"].target_ratio == pytest.approx(1 / (0.5 + 0.5 / 1.1), rel=1e-3)
    assert by_name["attention"].bound_ratio == pytest.approx(2.0)
    assert by_name["moe"].speedup == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize(
    ("made", "aim", "said"),
    [
        (steps(component("moe", 30.0), component("other", 6.4)), Aim(), "16 % of the step is unattributed"),
        (steps(component("moe", 40.0), count=9), Aim(), "9 decode steps, a plan needs 10"),
        (steps(component("moe", 40.0), count=0), Aim(), "no decode step was found"),
        (Steps(count=2, method="annotation"), Aim(), "2 decode steps, a plan needs 10"),
        (steps(idle_median_ns=None), Aim(), "timed, not broken down"),
        (steps(component("moe", 40.0)), Aim(inflation_ratio=1.16), "the profiler stretched the step x1.16"),
        (steps(component("moe", 40.0)), Aim(inflation_ratio=0.5), "lasts x0.5 of the measured one"),
    ],
)
def test_refusals_name_the_reason_and_leave_no_ceiling(made: Steps, aim: Aim, said: str) -> None:
    plan = plan_of_steps(made, aim)
    assert len(plan.refusals) == 1 and said in plan.refusals[0]
    assert plan.steps == [] and plan.ceiling_ratio is None


@pytest.mark.parametrize(
    ("made", "aim"),
    [
        (steps(component("moe", 34.0), component("other", 6.0)), Aim()),
        (steps(component("moe", 40.0), count=10), Aim()),
        (steps(component("moe", 40.0)), Aim(inflation_ratio=1.15)),
    ],
)
def test_at_the_limit_a_plan_stands(made: Steps, aim: Aim) -> None:
    assert plan_of_steps(made, aim).refusals == []


def test_medians_of_parts_that_exceed_the_whole_are_scaled() -> None:
    made = steps(component("moe", 30.0), component("attention", 12.0))
    shares = step_shares(made)
    assert sum(shares.values()) == pytest.approx(1.0) and shares["moe"] == pytest.approx(30 / 42)


def test_a_kernel_on_cuda_cores_near_its_dram_roof_gains_nothing_from_tensor_cores() -> None:
    line = roof_of("moe", batch=1)
    assert line.line.bound == "memory"
    found = bind(KernelFacts(time_ns=round(line.line.time_s * 1.2e9), launches=86, runs_on="cuda"), line)
    assert found.binds == "DRAM bytes" and found.speedup == pytest.approx(1.2, rel=1e-3)
    assert "83 % of its roof already" in found.reason and "tensor cores would gain nothing" in found.reason


def test_far_from_the_roof_tensor_cores_are_promised_only_where_the_flops_fill_the_time() -> None:
    line = roof_of("moe", batch=16)
    far = bind(KernelFacts(time_ns=round(line.line.time_s * 8e9), launches=86, runs_on="cuda"), line)
    assert far.speedup == pytest.approx(8.0, rel=1e-3) and "not the cure" in far.reason
    crowded = roof_of("moe", batch=256, tp=1)
    assert crowded.cuda_cores_s is not None
    full = bind(KernelFacts(time_ns=round(crowded.cuda_cores_s * 1.2e9), launches=86, runs_on="cuda"), crowded)
    assert "tensor cores can help" in full.reason


@pytest.mark.parametrize(
    ("facts", "binds"),
    [
        (KernelFacts(time_ns=1_000_000, launches=700), "launches"),
        (KernelFacts(time_ns=9_000_000, launches=82, sm_coverage_frac=0.34), "occupancy"),
        (KernelFacts(time_ns=9_000_000, launches=82, dram_frac=0.82, sm_coverage_frac=0.34), "DRAM bytes"),
        (KernelFacts(time_ns=9_000_000, launches=82, tensor_pipe_frac=0.7), "tensor FLOPs"),
        (KernelFacts(time_ns=9_000_000, launches=82), "unknown"),
    ],
)
def test_what_binds_comes_from_the_strongest_evidence(facts: KernelFacts, binds: str) -> None:
    found = bind(facts)
    assert found.binds == binds and found.reason and found.speedup is None


def test_a_measured_kernel_never_exceeds_the_roofline() -> None:
    line = roof_of("attention")
    facts = KernelFacts(time_ns=round(line.line.time_s * 3e9), launches=82)
    assert bind(facts, line, 2.0).speedup == 2.0
    capped = bind(facts, line, 50.0)
    assert capped.speedup == pytest.approx(3.0, rel=1e-3) and "above what the roofline" in (capped.source or "")
    assert bind(facts, None, 2.0).source == "measured kernel x2; no roofline to check it"


def test_faster_than_its_roofline_means_that_the_model_is_wrong() -> None:
    line = roof_of("moe")
    found = bind(KernelFacts(time_ns=round(line.line.time_s * 0.3e9)), line)
    assert found.speedup == 1.0 and found.binds == "unknown" and "the model, the GPU" in found.reason


def test_the_residual_and_amdahl_share_one_arithmetic() -> None:
    from dsv4bench.limits import Share

    shares = [Share(name=s.component, share_frac=s.share_frac, of="sum") for s in published(16)]
    assert unattributed_frac(shares) == pytest.approx(0.07)
    assert 1 / amdahl(shares) == pytest.approx(unattributed_frac(shares))
