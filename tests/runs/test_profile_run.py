"""`profile` from files to the document: labels, ranks, evidence, plans, the store, and what cannot be answered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from profile_traces import ATTENTION, COMM, MOE, UNNAMED, write_cpu_only, write_trace

from dsv4bench.errors import BenchError, Unanswerable, UsageError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.codec import encode
from dsv4bench.runs.by_hand import how_to_trace
from dsv4bench.runs.profile import Profile, ProfileOptions, run_profile
from dsv4bench.runs.profile_inputs import trace_files
from dsv4bench.store import breakdowns

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = ROOT / "scenarios" / "campaign_2026" / "kernels.json"
REAL = Path(os.environ.get("DSV4BENCH_TRACES", ROOT.parent / "shared" / "data" / "traces"))
NO_KERNELS = (
    *("chrome/hta_cpu_only.json.gz", "chrome/hta_no_distributed_info.json.gz", "chrome/hta_rank_non_gpu.json.gz"),
    *("chrome/hta_mtia_inference.json.gz", "chrome/hta_cupti_profiler_counters.json.gz"),
    *("nsys/haroonsyed_sgemm_NO_KERNEL_TABLE.sqlite", "nsys/lighttransport_gemm_NO_KERNEL_TABLE.sqlite"),
    *("nsys/cupqc_t4_NO_CUDA.sqlite", "nsys/jacc_4e6_async_1.sqlite", "nsys/jacc_cg_trace.sqlite.gz"),
    *("nsys/jacc_report1.sqlite", "nsys/nevakrien_python_c.sqlite", "own/cpu_vllm_trace_no_gpu.json.gz"),
    *("ncu/codegandee_raw_csv_NO_KERNELS_PROFILED.csv", "other/jacc_rocprof_3634724_nearly_empty.pftrace"),
)


def profile(*traces: Path | str, **fields: Any) -> Profile:
    return run_profile(ProfileOptions(traces=[str(t) for t in traces], **fields))


@pytest.fixture
def c16(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "c16.json")


def test_one_trace_gives_devices_steps_and_a_plan(c16: Path) -> None:
    document = profile(c16, measured_tok_s=16 / 100e-6, target_tok_s=1e6).document
    (device,) = document.devices
    assert (device.kernels, device.gpu) == (42, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
    assert device.kernel_sum_ns == 14 * 80_000 and device.idle_ns == 13 * 20_000
    assert {c.component: c.time_ns for c in device.components if c.time_ns} == {
        "moe": 14 * 40_000,
        "attention": 14 * 30_000,
        "comm": 14 * 10_000,
    }
    steps = document.steps
    assert steps is not None and steps.count >= 10 and steps.median_ns == 100_000 and steps.batch == 16
    assert document.concurrency == 16  # as the annotation tells
    assert [(s.component, round(s.share_of_step_frac, 3)) for s in document.plan] == [
        ("moe", 0.4),
        ("attention", 0.3),
        ("idle", 0.2),
        ("comm", 0.1),
    ]
    assert document.plan[0].bound_ratio == pytest.approx(1 / 0.6)
    assert document.plan[1].joint_ratio == pytest.approx(1 / 0.3)
    assert document.plans[0].unattributed_frac == 0.0 and document.plans[0].refusals == []


def test_the_roofline_gives_k_where_model_gpu_and_context_are_told(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json", kernels_us={MOE: 40_000.0, ATTENTION: 4000.0}, gap_us=500.0)
    bare = profile(trace).document.plans[0]
    assert (
        all(s.speedup is None for s in bare.steps)
        and "no roofline, so no k from it: give --model, --isl" in bare.notes
    )
    told = profile(trace, model="flash", isl=1024, tp=4).document.plans[0]
    moe = next(s for s in told.steps if s.component == "moe")
    assert moe.speedup is not None and 1 < moe.speedup < 9 and "1792 GB/s" in (moe.speedup_source or "")
    assert moe.target_ratio is not None and moe.bound_ratio is not None and 1 < moe.target_ratio < moe.bound_ratio
    assert moe.binds == "occupancy" and "34 % of the SMs" in moe.reason  # 64 blocks on 188 SMs
    capped = profile(trace, model="flash", isl=1024, tp=4, kernel_speedups=["moe=500"]).document.plans[0]
    assert next(s for s in capped.steps if s.component == "moe").speedup == pytest.approx(moe.speedup)


def test_labels_stand_side_by_side_and_the_highest_concurrency_leads(tmp_path: Path) -> None:
    c1 = write_trace(tmp_path / "a.json", batch=1, kernels_us={MOE: 10.0, ATTENTION: 30.0, COMM: 10.0})
    c16 = write_trace(tmp_path / "b.json", batch=16)
    document = profile(f"bs1={c1}", f"bs16={c16}").document
    assert [d.label for d in document.devices] == ["bs1", "bs16"]
    moe = next(s for s in document.shifts if s.component == "moe")
    assert (moe.base_ns, moe.new_ns, moe.delta_ns, moe.ratio) == (10_000, 40_000, 30_000, 4.0)
    assert document.concurrency == 16 and [p.label for p in document.plans] == ["bs16", "bs1"]
    assert document.steps is not None and document.steps.label == "bs16"
    assert [p.steps[0].component for p in document.plans] == ["moe", "attention"]  # the rank flips


def test_files_of_one_label_are_ranks_and_never_summed(tmp_path: Path) -> None:
    ranks = [
        write_trace(tmp_path / f"r{r}.json", rank=r, world_size=4, kernels_us={MOE: 40.0 + r, COMM: 20.0 - r})
        for r in (0, 1, 3)
    ]
    document = profile(*(f"c16={r}" for r in ranks)).document
    (summary,) = document.ranks
    assert (summary.ranks, summary.missing, summary.worst_rank) == ([0, 1, 3], [2], 3)
    assert "c16: no file of rank 2" in document.warnings
    assert document.steps is not None and document.steps.median_ns == 80_000
    assert next(c for c in document.steps.components if c.component == "moe").median_ns == 41_000
    assert len(document.plans) == 1


def test_an_empty_rank_is_said_and_changes_no_median(tmp_path: Path) -> None:
    full = write_trace(tmp_path / "r0.json", rank=0, world_size=2)
    empty = write_cpu_only(tmp_path / "r1.json")
    document = profile(full, empty).document
    assert [d.rank for d in document.devices] == [0]
    assert any("r1.json" in w for w in document.warnings) and any("rank 1" in w for w in document.warnings)
    assert document.steps is not None and document.steps.median_ns == 100_000


NCU = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",\
"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","p","h","_mxfp4_slot_gemv_kernel","1","7","(128, 1, 1)","(64, 1, 1)","0","12.0",\
"Command line profiler metrics","sm__ops_path_tensor_src_bf16_dst_fp32.sum","","1,024"
"""


def test_counters_are_evidence_beside_a_trace_and_tell_no_time_alone(c16: Path, tmp_path: Path) -> None:
    counters = tmp_path / "ncu.csv"
    counters.write_text(NCU, encoding="utf-8")
    without = {r.name: r for r in profile(c16).document.devices[0].rows}
    assert without[MOE].evidence != "counter"
    for traces in ([c16, counters], [f"c16={c16}", counters], [f"c16={c16}", f"c16={counters}"]):
        (device,) = profile(*traces).document.devices
        rows = {r.name: r for r in device.rows}
        assert (rows[MOE].runs_on, rows[MOE].evidence) == ("tensor", "counter")
        assert rows[ATTENTION].evidence != "counter"
    other_grid = write_trace(tmp_path / "wide.json", grid=(128, 1, 1))
    assert {r.evidence for r in profile(other_grid, counters).document.devices[0].rows if r.name == MOE} <= {
        "none",
        "rule",
    }
    alone = profile(counters).document
    (row,) = alone.devices[0].rows
    assert (row.name, row.runs_on, row.evidence, row.time_ns) == (MOE, "tensor", "counter", 0)
    assert alone.devices[0].window_ns is None and alone.plans == [] and "counters alone" in alone.warnings[0]


def test_what_no_rule_names_refuses_the_plan_and_a_users_rule_mends_it(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json", kernels_us={MOE: 40.0, UNNAMED: 30.0})
    document = profile(trace).document
    assert document.plan == [] and "33 % of the step is unattributed" in document.plans[0].refusals[0]
    assert document.devices  # the breakdown stands
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"components:\n  - {{component: mhc, contains: [{UNNAMED}]}}\n", encoding="utf-8")
    mended = profile(trace, rules=[str(rules)]).document
    assert mended.plans[0].refusals == [] and "mhc" in {s.component for s in mended.plan}


def test_a_stretched_step_refuses_the_plan(c16: Path) -> None:
    (why,) = profile(c16, measured_tok_s=16 / 80e-6).document.plans[0].refusals
    assert "the profiler stretched the step x1.25" in why
    drafting = profile(c16, measured_tok_s=1.92 * 16 / 100e-6, accept_length=1.92).document
    assert drafting.plans[0].refusals == []


def test_the_campaigns_shares(tmp_path: Path) -> None:
    found = profile(CAMPAIGN)
    at16, at1 = found.document.plans
    assert [f"{s.joint_ratio:.2f}" for s in at16.steps] == ["1.64", "4.35", "11.11"]
    assert [f"{s.bound_ratio:.2f}" for s in at16.steps[:2]] == ["1.64", "1.61"]
    assert (at16.unattributed_frac, at1.unattributed_frac) == (pytest.approx(0.07), pytest.approx(0.27))
    assert at16.measured_tok_s == 23.2 and at16.target_tok_s == 1000 and at16.needed_frac == pytest.approx(0.9768)
    assert at1.steps == [] and at1.refusals and at1.target_tok_s is None
    assert found.document.devices == [] and len(found.shares) == 1
    alone = tmp_path / "kernels.json"
    alone.write_bytes(CAMPAIGN.read_bytes())
    assert profile(alone).document.plans[0].measured_tok_s is None


def test_a_breakdown_is_stored_and_found_again_as_shares(c16: Path, tmp_path: Path) -> None:
    root = tmp_path / "results"
    found = profile(c16, config="baseline", isl=1024, root=str(root))
    assert found.stored == [root / "breakdowns" / "baseline-c16.json"]
    shares, warnings = breakdowns.shares_of(root, "baseline")
    assert warnings == [] and {s.component: round(s.share_frac, 3) for s in shares} == {
        "moe": 0.4,
        "attention": 0.3,
        "comm": 0.1,
        "idle": 0.2,
    }
    assert {(s.concurrency, s.isl, s.of) for s in shares} == {(16, 1024, "span")}
    again = profile(found.stored[0])
    assert again.document.devices and again.document.steps is not None
    assert encode(again.document.steps) == encode(found.document.steps)


def test_two_labels_are_stored_at_two_coordinates(c16: Path, tmp_path: Path) -> None:
    other = write_trace(tmp_path / "c1.json", batch=1)
    root = str(tmp_path / "results")
    found = profile(f"a={other}", f"b={c16}", config="baseline", concurrency=[1, 16], root=root)
    assert [p.name for p in found.stored] == ["baseline-c1.json", "baseline-c16.json"]
    assert {s.concurrency for s in breakdowns.shares_of(root, "baseline").shares} == {1, 16}
    with pytest.raises(UsageError, match="two labels have one concurrency"):
        profile(f"a={other}", f"b={c16}", config="baseline", concurrency=[16], root=root)


def test_what_has_no_coordinate_is_not_stored(tmp_path: Path) -> None:
    untold = write_trace(tmp_path / "t.json", batch=0)
    with pytest.raises(UsageError, match="the concurrency of the trace is not known"):
        profile(untold, config="baseline", root=str(tmp_path / "results"))
    with pytest.raises(UsageError, match="shares alone are not stored"):
        profile(CAMPAIGN, config="baseline", root=str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()


def test_the_batch_of_the_annotations_that_differs_is_said(c16: Path) -> None:
    document = profile(c16, concurrency=[8]).document
    assert document.concurrency == 8
    assert any("16 sequences a step" in w and "C=8" in w for w in document.warnings)


def test_no_answer_is_one_line_of_cause_and_one_of_remedy(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable) as caught:
        profile(write_cpu_only(tmp_path / "cpu.json"))
    assert "\n" not in caught.value.message and caught.value.hint and "\n" not in caught.value.hint


@pytest.mark.parametrize("name", NO_KERNELS)
def test_real_files_without_kernels_cannot_answer(name: str) -> None:
    path = REAL / name
    if not path.is_file():
        pytest.skip(f"{path} is not here; DSV4BENCH_TRACES names the folder")
    with pytest.raises(Unanswerable) as caught:
        profile(path)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.message and caught.value.hint and "\n" not in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpu": "Voodoo 2"}, "--gpu Voodoo 2: not known"),
        ({"target_tok_s": 0.0}, "--target 0"),
        ({"inflation_ratio": float("nan")}, "--inflation nan"),
        ({"concurrency": [0]}, "--concurrency 0"),
        ({"concurrency": [1, 2]}, "--concurrency has 2 values for 1 labels"),
        ({"kernel_speedups": ["moe"]}, "--kernel-speedup moe: not a ratio"),
        ({"kernel_speedups": ["moo=2"]}, "--kernel-speedup moo=2: no component"),
        ({"model": "gpt-5"}, "gpt-5"),
        ({"accept_length": 0.5}, "--accept-length 0.5"),
        ({"rules": ["nosuch.yaml"]}, "nosuch.yaml"),
        ({"cubins": ["nosuch"]}, "nosuch"),
    ],
)
def test_options_that_cannot_be_used_are_named(c16: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BenchError) as caught:
        profile(c16, **fields)
    assert said in caught.value.message and caught.value.hint and caught.value.exit_code == 2


def test_labels_and_files_with_an_equals_sign(tmp_path: Path) -> None:
    odd = write_trace(tmp_path / "C=16.json")
    assert [(f.label, f.path) for f in trace_files([str(odd)])] == [(None, odd)]
    assert [f.label for f in trace_files([f"C=16={odd}"])] == ["C=16"]
    with pytest.raises(UsageError, match="no such file"):
        trace_files(["c1=nosuch.json"])
    with pytest.raises(UsageError, match="named twice"):
        trace_files([str(odd), f"b={odd}"])
    with pytest.raises(UsageError, match="a folder"):
        trace_files([f"a={tmp_path}"])


def test_the_document_survives_json(c16: Path) -> None:
    document = profile(c16).document
    import msgspec

    assert msgspec.json.decode(encode(document), type=BreakdownDocument).devices[0].kernels == 42


def test_the_hand_made_trace_is_explained_with_commands() -> None:
    text = how_to_trace("http://h:1")
    for needed in (
        "http://h:1/start_profile",
        "--profiler-config",
        "--cuda-graph-trace=node",
        "--trace-fork-before-exec",
    ):
        assert needed in text
