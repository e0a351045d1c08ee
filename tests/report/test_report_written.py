"""One style of figures on a page, what a plan's figures are of, and what a prediction is set against."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from report_inputs import cell, hostile, verdict, whole

from dsv4bench.records.breakdown import CaptureNote, Plan, PlanStep
from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.campaign_markdown import markdown
from dsv4bench.report.compare import lever_lines, prediction_lines
from dsv4bench.report.findings.sections import new_file
from dsv4bench.report.markdown import minus, times
from dsv4bench.report.page.levels import Measured
from dsv4bench.report.page.results_table import cell_notes
from dsv4bench.report.page.written import typeset
from dsv4bench.report.plan import from_measured, own_notes, plan_lines, roof_allows, target_lines


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("at most -86.3 %; -10.9 %", "at most −86.3 %; −10.9 %"),
        ("[-7.9 %, -7.3 %]", "[−7.9 %, −7.3 %]"),
        ("law: -7.1% at C=4", "law: −7.1% at C=4"),
        ("allows -3.8…-7.8 %", "allows −3.8…−7.8 %"),
        ("X = 2296 tok/s, 95 % CI [2190, 2407] (4", "X = 2,296 tok/s, 95 % CI [2,190, 2,407] (4"),
        ("x2.48e+03 away from its roof", "x2,480 away from its roof"),
        ("(k=8580, roofline on H200 (4800 GB/s))", "(k=8,580, roofline on H200 (4,800 GB/s))"),
        ("the target of 1e+06 tok/s", "the target of 1,000,000 tok/s"),
        ("2480× faster", "2,480× faster"),
        ("81,477 tok/s", "81,477 tok/s"),
        ("--seed -1 --port 30000 -50 x", "--seed -1 --port 30000 -50 x"),
        (
            "max_tokens = -1; lr 1e+06; seed 1787001068; v2-4096",
            "max_tokens = -1; lr 1e+06; seed 1787001068; v2-4096",
        ),
        ("fp8-5 %", "fp8-5 %"),
    ],
)
def test_figures_of_a_page_have_one_style(made: str, shown: str) -> None:
    assert typeset(made) == shown


def test_ratios_have_three_digits_and_no_exponent() -> None:
    assert [times(x) for x in (5.0, 2.57075, 25.9722, 811.3, 2484.14)] == ["5", "2.57", "26.0", "811", "2480"]
    assert minus("a -3.4% b") == "a −3.4% b"


def test_a_page_is_written_in_it_and_says_where_its_words_are_explained() -> None:
    r = whole()
    assert r.verdict is not None
    r = msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, notes=["-7.1 % of 2296 tok/s"]))
    text = markdown(r)
    assert "- −7.1 % of 2,296 tok/s" in text and "knee, mechanism) stands in docs/verdicts.md" in text
    assert "docs/verdicts.md" in markdown(hostile())
    assert "docs/verdicts.md" in markdown(ReportInput(campaign=None, experiments=whole().experiments[:1]))
    assert "`docs/verdicts.md`" in new_file([])


STEP = PlanStep(component="moe", share_of_step_frac=0.9, bound_ratio=10.0)


def plan(**fields: Any) -> Plan:
    known: dict[str, Any] = {
        "label": "c16",
        "concurrency": 16,
        "measured_tok_s": 4301.1,
        "target_tok_s": 1000.0,
        "needed_frac": 0.0,
        "ceiling_ratio": 18.94,
        "ceiling_tok_s": 81477.0,
        "steps": [STEP],
    }
    return Plan(**{**known, **fields})


def capture(**fields: Any) -> CaptureNote:
    known: dict[str, Any] = {"label": "c16", "method": "torch", "concurrency": 16, "steps_asked": 16}
    return CaptureNote(**{**known, "output_tok_s": 4301.1, "tokens_a_step": 1.0, **fields})


def test_a_captures_figure_is_not_called_measured() -> None:
    said = " from 4301 tok/s, which is C ÷ the decode step (no prefill in it)"
    assert from_measured(plan(), [capture()]) == said
    two = capture(tokens_a_step=1.92)
    assert from_measured(plan(), [two]).endswith("which is C · 1.92 tokens ÷ the decode step (no prefill in it)")
    assert from_measured(plan(), []) == " from 4301 tok/s measured"
    assert from_measured(plan(), [capture(output_tok_s=4000.0)]) == " from 4301 tok/s measured"
    assert from_measured(plan(measured_tok_s=None), [capture()]) == ""


def test_a_ceiling_above_the_roofline_says_what_the_roofline_allows() -> None:
    assert roof_allows(81477.0, 7020.0) == "; the roofline allows 7020 tok/s"
    assert roof_allows(6811.0, 7020.0) == roof_allows(81477.0, None) == roof_allows(None, 7020.0) == ""
    lines = plan_lines(plan(roofline_tok_s=7020.0, at_k_ratio=1.58, at_k_tok_s=6811.0), [capture()])
    assert lines[1] == (
        "ceiling of the whole plan of c16 at C=16: x18.9, 81477 tok/s from 4301 tok/s, which is C ÷ the decode step "
        "(no prefill in it); the roofline allows 7020 tok/s"
    )
    assert lines[2:] == [
        "with every known k: x1.58, 6811 tok/s",
        "the target of 1000 tok/s is reached at this step time",
    ]


def test_what_a_target_asks() -> None:
    far = plan(measured_tok_s=295.3, needed_frac=0.7047, ceiling_tok_s=38968.0)
    head = "the target of 1000 tok/s needs 70.5 % of the step to vanish"
    assert target_lines(far, None) == [f"{head}; the whole plan reaches 38968 tok/s at most"]
    assert target_lines(far, 7020.0)[0].endswith("reaches 38968 tok/s at most; the roofline allows 7020 tok/s")
    assert target_lines(plan(needed_frac=0.7047, ceiling_tok_s=None, ceiling_ratio=None), None) == [head]
    assert target_lines(plan(target_tok_s=None, needed_frac=None), 7020.0) == []
    stale = "the target of 1000 tok/s needs 0.0 % of the step to vanish; the whole plan reaches 81477 tok/s at most"
    assert own_notes(plan(notes=[stale, "kept"])) == ["kept"]


def test_a_page_takes_the_roofline_of_the_comparison() -> None:
    r = whole()
    assert r.verdict is not None and r.verdict.scaling is not None
    made = r.breakdowns[0]
    told = msgspec.structs.replace(
        made, config="baseline", concurrency=16, plans=[plan(notes=["the target of 9 tok/s"])], captures=[capture()]
    )
    laws = [msgspec.structs.replace(x, roofline_tok_s={"16": 7020.0}) for x in r.verdict.scaling.laws]
    scaling = msgspec.structs.replace(r.verdict.scaling, laws=laws)
    r = msgspec.structs.replace(r, breakdowns=[told], verdict=msgspec.structs.replace(r.verdict, scaling=scaling))
    text = markdown(r)
    assert (
        "baseline at C=16: everything that the plan names, free: at most ×18.9, 81,477 tok/s from 4,301 tok/s, which "
        "is C ÷ the decode step (no prefill in it); the roofline allows 7,020 tok/s" in text
    )
    assert "baseline at C=16: the target of 1,000 tok/s is reached at this step time" in text
    assert "the target of 9 tok/s" not in text and "81477" not in text


def test_levels_that_ran_fewer_at_once_are_one_note_with_the_range() -> None:
    ran = [cell("mtp", 4, notes=[f"server ran {x} of 4 at once"]) for x in ("3.0", "2.8", "3.0")]
    other = cell("mtp", 16, notes=["server ran 2.8 of 16 at once", "2 sent late"])
    cells = [Measured("mtp", "l", c, None) for c in (*ran, other)]
    said = [x for x in cell_notes(cells) if "at once" in x or "late" in x]
    assert said == [
        "mtp C=16: 2 sent late",
        "mtp C=4: server ran 2.8 to 3.0 of 4 at once",
        "mtp C=16: server ran 2.8 of 16 at once",
    ]


def test_a_prediction_of_a_law_of_tpot_stands_beside_tpot_and_not_a_measured_rate() -> None:
    d = verdict()
    assert d.scaling is not None and d.scaling.predictions[0].measured_tok_s is not None
    assert prediction_lines(d)[0].endswith(" by its own TPOT")
    note = "step time from throughput (C/X): prefill and ramps are inside; TPOT was not recorded"
    laws = [msgspec.structs.replace(x, notes=[note]) for x in d.scaling.laws]
    of_rate = msgspec.structs.replace(d, scaling=msgspec.structs.replace(d.scaling, laws=laws))
    assert f"tok/s, measured {d.scaling.predictions[0].measured_tok_s:.1f}" in prediction_lines(of_rate)[0]
    r = msgspec.structs.replace(whole(), verdict=d)
    assert "| by its own TPOT, tok/s |" in markdown(r)
    assert "| measured, tok/s |" in markdown(msgspec.structs.replace(r, verdict=of_rate))


def test_a_setting_that_was_not_set_is_no_python_word() -> None:
    lever = msgspec.structs.replace(verdict().levers[0], differing={"spec_accept": [None, 0.92]}, extra_keys=[])
    assert any("spec_accept not set -> 0.92" in line for line in lever_lines([lever]))
