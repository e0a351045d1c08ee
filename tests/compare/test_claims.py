"""The claims of the published campaign against its own table: the ten findings, and that data alone decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runs"))

from campaign_samples import FOLDER, audits, change_cell, compared, copied, found

from dsv4bench.compare.claims import audit
from dsv4bench.compare.goal import reach
from dsv4bench.records.claims import ClaimState, EffectClaim, PlateauClaim, ShareClaim
from dsv4bench.records.goal import Goal, PlanItem
from dsv4bench.records.verdict import CellVerdict, Grade, SpecState, SpecVerdict, Verdict, VerdictDocument
from dsv4bench.runs.campaign_data import load_campaign


def test_s1_a_percentage_and_its_figures_have_one_base() -> None:
    a = audits()["S1"]
    assert a.state is ClaimState.CONTRADICTED
    text = found(a)
    assert "+46.7 % vs A (10.7 → 15.7 tok/s)" in text and "+53.9 % vs baseline (10.2 → 15.7 tok/s)" in text
    assert "+47 % is the change vs A" in text
    assert "10.2 → 15.7, are vs baseline: +53.9 %" in text
    assert "no verdict (grade E0)" in text


def test_s2_two_levers_at_once_are_not_separable() -> None:
    for claim in ("S2", "S2-nccl"):
        a = audits()[claim]
        assert a.state is ClaimState.NOT_SEPARABLE
        assert "A bundles fp8_cfg, nccl_ll: not separable" in found(a)
    a = audits()["S2"]
    assert "+4.9 % vs baseline" in found(a) and "+6 % does not follow from the printed figures" in found(a)
    assert a.action == "run fp8_cfg alone against baseline"


def test_s3_and_s4_a_share_of_the_text_against_the_table() -> None:
    s3, s4 = audits()["S3"], audits()["S4"]
    assert s3.state is s4.state is ClaimState.CONTRADICTED
    assert "text: 6 % of decode without its concurrency; kernel table: <1 % at C=16 (baseline)" in found(s3)
    assert "no bound: profile C=1" in found(s3)
    assert "with 6 % the kernel must get 4.5× faster; with <1 % (as at C=16) at most +1.0 % is possible" in found(s3)
    assert "text: 2 % of decode without its concurrency; kernel table: 1 % at C=16 (baseline)" in found(s4)


def test_s5_the_worst_cell_that_the_text_leaves_out_comes_first() -> None:
    a = audits()["S5"]
    assert a.state is ClaimState.INCOMPLETE
    assert a.found[0].startswith("A at C=8: −5.8 % vs baseline (~24 → 22.6 tok/s) [−8.0 % to −3.6 % by rounding]")
    assert "enters no verdict" in a.found[0]


def test_s6_what_no_kernel_explains() -> None:
    a = audits()["S6"]
    assert "baseline at C=16: 39+38+14+<1+1 = 93 %, unattributed 7 %" in found(a)
    assert "baseline at C=1: 10+63 = 73 %, unattributed 27 %" in found(a)
    assert "no plan is made at C=1: more than 15 % is unattributed" in found(a)


def test_s7_one_doubling_makes_a_plateau_provisional() -> None:
    a = audits()["S7"]
    assert a.state is ClaimState.NOT_SHOWN
    for ratio in ("baseline: ×0.967", "A: ×1.027", "B: ×1.017", "provisional plateau (1 doubling)"):
        assert ratio in found(a)
    assert a.action == "run C=32,64"


def test_s8_an_about_value_enters_no_verdict() -> None:
    document = compared(load_campaign(FOLDER))
    s8 = next(a for a in document.claims if a.claim == "S8")
    assert s8.state is ClaimState.NOT_SHOWN and "~24 ± 0.5 is an about-value: it enters no verdict" in found(s8)
    assert all(v.verdict is None for v in document.cells if v.concurrency == 8)


def test_s9_a_cause_without_acceptance_length_is_not_measured() -> None:
    a = audits()["S9"]
    assert a.state is ClaimState.NOT_SHOWN
    assert "B at C=8: +2.7 % vs A" in found(a) and "cause not measured" in found(a)


def test_s10_the_whole_plan_beside_the_target() -> None:
    a = audits()["S10"]
    assert a.state is ClaimState.CONTRADICTED
    text = found(a)
    assert "97.7 % of that time must vanish" in text and "×43.1" in text
    assert "38 tok/s (×1.64)" in text and "37.4 tok/s (×1.61)" in text
    assert "with all before it at most 101 tok/s (×4.35)" in text
    assert "the whole plan gives at most 258 tok/s (×11.1) against a target of 1000 tok/s" in text


# --- the data decide, not the code -------------------------------------------------------------------------


def test_another_figure_gives_another_text(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    change_cell(folder, "B", 1, output_tok_s=14.0)
    change_cell(folder, "A", 8, output_tok_s=26.0)
    got = audits(folder)
    assert "+30.8 % vs A (10.7 → 14 tok/s)" in found(got["S1"]) and "+37.3 % vs baseline" in found(got["S1"])
    assert "+47 % follows from no pair of the figures" in found(got["S1"])
    assert "10.2 → 15.7, are in no row of the table" in found(got["S1"])
    assert not any("A at C=8: −" in line for line in got["S5"].found)
    assert "A: ×0.892" in found(got["S7"])


def test_a_percentage_that_is_right_is_not_contradicted(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    claims = folder / "claims.yaml"
    claims.write_text(claims.read_text().replace("quoted: [10.2, 15.7]", "quoted: [10.7, 15.7]"))
    a = audits(folder)["S1"]
    assert a.state is ClaimState.NOT_SHOWN  # right, and still one run each


def test_a_figure_that_is_not_about_holds(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    change_cell(folder, "baseline", 8, approximate=[], output_tok_s=24.1, rounding={"output_tok_s": 0.05})
    a = audits(folder)["S8"]
    assert a.state is ClaimState.HOLDS and "24.1 ± 0.05" in found(a)


def test_other_shares_give_another_ceiling(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    path = folder / "kernels.json"
    shares = json.loads(path.read_text())
    shares["shares"][0]["share_frac"] = 0.20
    path.write_text(json.dumps(shares))
    got = audits(folder)
    assert "no share" not in found(got["S10"])
    assert "26 % of the step at C=16 is unattributed" in found(got["S10"])  # then no plan stands on it
    assert "unattributed 26 %" in found(got["S6"])


def test_a_faster_kernel_is_not_a_free_one() -> None:
    data = load_campaign(FOLDER)
    plan = [PlanItem(name="moe x5", components=["moe"], kernel_speedup=5.0)]
    report = reach(Goal(config="baseline", concurrency=16, output_tok_s=30.0, plan=plan), data.arms, data.shares)
    assert report.items[0].joint_ratio == pytest.approx(1 / (1 - 0.39 + 0.39 / 5))
    assert report.reached is True
    assert report.unattributed_frac == pytest.approx(0.07)


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        (
            Goal(config="B", concurrency=16, output_tok_s=100, plan=[PlanItem(name="x", components=["moe"])]),
            "no kernel",
        ),
        (
            Goal(config="B", concurrency=32, output_tok_s=100, plan=[PlanItem(name="x", components=["moe"])]),
            "measured",
        ),
        (Goal(config="baseline", concurrency=16, output_tok_s=100), "no plan"),
        (
            Goal(config="baseline", concurrency=1, output_tok_s=9, plan=[PlanItem(name="x", components=["moe"])]),
            "27 %",
        ),
        (
            Goal(config="baseline", concurrency=16, output_tok_s=9, plan=[PlanItem(name="x", components=["mhc"])]),
            "mhc",
        ),
    ],
)
def test_a_plan_that_the_data_cannot_carry_says_why(goal: Goal, why: str) -> None:
    data = load_campaign(FOLDER)
    report = reach(goal, data.arms, data.shares)
    assert why in report.why and report.reached is None and report.items == []


# --- verdicts and causes, where the data carry them --------------------------------------------------------


def _cell(config: str, versus: str, concurrency: int, delta: float, verdict: Verdict) -> CellVerdict:
    return CellVerdict(
        metric="output_tok_s",
        concurrency=concurrency,
        isl=0,
        config=config,
        versus="parent",
        versus_name=versus,
        base=1.0,
        new=1.0 + delta,
        delta_frac=delta,
        verdict=verdict,
        grade=Grade.E2,
    )


def test_no_effect_needs_a_proof_of_no_effect() -> None:
    data = load_campaign(FOLDER)
    claim = EffectClaim(id="x", text="MTP buys nothing", config="B", lever="mtp", change_frac=0.0, concurrency=[16])
    unproven = VerdictDocument(cells=[_cell("B", "A", 16, 0.017, Verdict.UNRESOLVED)])
    proven = VerdictDocument(cells=[_cell("B", "A", 16, 0.017, Verdict.NO_EFFECT)])
    assert audit([claim], data.arms, unproven)[0].state is ClaimState.NOT_SHOWN
    assert audit([claim], data.arms, proven)[0].state is ClaimState.HOLDS


def test_a_cause_holds_when_it_was_measured() -> None:
    data = load_campaign(FOLDER)
    cause = next(c for c in data.claims if c.id == "S9")

    def state(*states: SpecState) -> ClaimState:
        spec = [
            SpecVerdict(
                config="B",
                base="A",
                concurrency=c,
                isl=0,
                throughput_ratio=1.0,
                tokens_per_step_base=1.0,
                tokens_per_step=1.9,
                step_time_ratio=1.9,
                state=s,
                reason="measured",
            )
            for c, s in zip((8, 16), states, strict=True)
        ]
        return audit([cause], data.arms, VerdictDocument(speculation=spec))[0].state

    assert state(SpecState.SATURATED, SpecState.SATURATED) is ClaimState.HOLDS
    assert state(SpecState.SATURATED, SpecState.PAYS) is ClaimState.CONTRADICTED
    assert state(SpecState.SATURATED, SpecState.NOT_MEASURED) is ClaimState.NOT_SHOWN


def test_a_verdict_on_an_about_value_is_caught() -> None:
    data = load_campaign(FOLDER)
    value = next(c for c in data.claims if c.id == "S8")
    wrong = VerdictDocument(cells=[_cell("A", "baseline", 8, -0.058, Verdict.LOSS)])
    a = audit([value], data.arms, wrong)[0]
    assert a.state is ClaimState.CONTRADICTED and "yet A vs baseline says LOSS" in found(a)


def test_growth_contradicts_a_plateau(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    change_cell(folder, "A", 16, output_tok_s=40.0)
    a = audits(folder)["S7"]
    assert a.state is ClaimState.CONTRADICTED and "A still grows by more than 3 %" in found(a)


def test_one_level_shows_no_plateau() -> None:
    data = load_campaign(FOLDER)
    claim = PlateauClaim(id="x", text="flat", from_concurrency=16)
    a = audit([claim], data.arms, VerdictDocument())[0]
    assert a.state is ClaimState.NOT_SHOWN and a.action == "run C=32,64"


def test_a_share_that_agrees_holds() -> None:
    data = load_campaign(FOLDER)
    document = VerdictDocument(shares=data.shares)
    right = ShareClaim(id="x", text="moe 39 %", component="moe", share_frac=0.39, concurrency=16)
    absent = ShareClaim(id="y", text="mhc 3 %", component="mhc", share_frac=0.03)
    elsewhere = ShareClaim(id="z", text="dense 6 % at C=1", component="dense", share_frac=0.06, concurrency=1)
    states = [a.state for a in audit([right, absent, elsewhere], data.arms, document)]
    assert states == [ClaimState.HOLDS, ClaimState.NOT_SHOWN, ClaimState.NOT_SHOWN]
