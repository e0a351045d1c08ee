"""The verdicts in words: levels that have none for the same reason share a line, everything else has its own."""

from __future__ import annotations

from typing import Any

from dsv4bench.records.verdict import CellVerdict, Grade, SpecState, SpecVerdict, Verdict, VerdictDocument
from dsv4bench.report.compare import speculation_lines, verdict_lines

WHY = "E0, no verdict: it needs 5 repeats of one launch each, or 4 launches each"


def single(concurrency: int, delta: float, **fields: Any) -> CellVerdict:
    known: dict[str, Any] = {
        "metric": "output_tok_s",
        "concurrency": concurrency,
        "isl": 1024,
        "config": "seqs-64",
        "versus": "parent",
        "versus_name": "seqs-4",
        "base": 10.0,
        "new": 10.0 * (1 + delta),
        "delta_frac": delta,
        "ci_frac": None,
        "verdict": None,
        "grade": Grade.E0,
        "reason": f"{100 * delta:+.1f} %; {WHY}",
    }
    return CellVerdict(**{**known, **fields})


def said(*cells: CellVerdict) -> list[str]:
    return verdict_lines(VerdictDocument(cells=list(cells)))


def test_levels_of_one_reason_share_a_line() -> None:
    assert said(single(1, 0.204), single(4, 0.027), single(16, -0.01)) == [
        "no verdict (E0): seqs-64 vs seqs-4, output_tok_s: C=1 +20.4 %, C=4 +2.7 %, C=16 -1.0 %",
        f"    {WHY}",
    ]


def test_a_level_of_another_reason_has_its_own_line() -> None:
    lines = said(single(1, 0.204), single(4, 0.027), single(8, 0.5, reason="the level is invalid"))
    assert lines == [
        f"no verdict (E0): seqs-64 vs seqs-4, output_tok_s: C=1 +20.4 %, C=4 +2.7 %: {WHY}",
        "no verdict (E0): seqs-64 vs seqs-4, output_tok_s at C=8 +50.0 %: the level is invalid",
    ]


def test_a_verdict_is_never_folded_into_another_line() -> None:
    proven = {
        "verdict": Verdict.GAIN,
        "grade": Grade.E2,
        "ci_frac": (0.1, 0.3),
        "reason": "above the smallest change",
    }
    lines = said(single(1, 0.2, **proven), single(4, 0.2, **proven), single(8, 0.027))
    assert [line.partition(":")[0] for line in lines[:3]] == ["no verdict (E0)", "GAIN [E2]", "GAIN [E2]"]


def test_prompt_lengths_and_spreads_are_kept() -> None:
    spread = {"spread_frac": (0.01, 0.02)}
    lines = said(single(8, 0.2, isl=1024, **spread), single(8, 0.1, isl=8192, **spread))
    assert lines[0].endswith("C=8 ISL 1024 +20.0 % (sd 1.0 and 2.0 %), C=8 ISL 8192 +10.0 % (sd 1.0 and 2.0 %)")


MEASURED = {"verdict": Verdict.GAIN, "grade": Grade.E2, "ci_frac": (0.215, 0.249)}


def test_a_line_says_the_change_its_interval_and_its_bound_once() -> None:
    note = "at most +92.6 % at C=1: 1.93 tokens a step, the step no shorter"
    head = "GAIN [E2]: seqs-64 vs seqs-4, output_tok_s at C=1 +23.2 % [+21.5 %, +24.9 %]"
    assert said(single(1, 0.232, **MEASURED, reason="")) == [head]
    assert said(single(1, 0.232, **MEASURED, reason="outlier: block 1")) == [f"{head}: outlier: block 1"]
    assert said(single(1, 0.232, **MEASURED, reason="", bound_note=note)) == [f"{head}; {note}"]
    whole = single(1, 0.232, **MEASURED, reason="outlier: block 1; lever unverified", bound_note=note)
    assert said(whole) == [f"{head}; {note}; outlier: block 1; lever unverified"]


def spec(state: SpecState, reason: str) -> str:
    (line,) = speculation_lines(
        [
            SpecVerdict(
                config="mtp",
                base="baseline",
                concurrency=4,
                isl=1024,
                throughput_ratio=1.017,
                tokens_per_step_base=1.0,
                tokens_per_step=None if state is SpecState.NOT_MEASURED else 1.92,
                step_time_ratio=None if state is SpecState.NOT_MEASURED else 1.89,
                state=state,
                reason=reason,
            )
        ]
    )
    return line


def test_a_line_of_speculation_says_each_figure_once() -> None:
    reason = "tokens/step 1.00->1.92, step time x1.89, throughput x1.02: the longer step takes it back"
    assert spec(SpecState.SATURATED, reason) == f"mtp vs baseline at C=4: verifier saturated ({reason})"
    assert spec(SpecState.NOT_MEASURED, "mtp recorded no acceptance length") == (
        "mtp vs baseline at C=4: tokens a step 1.00 -> –, step with prefill –, throughput x1.02: cause not measured "
        "(mtp recorded no acceptance length)"
    )
