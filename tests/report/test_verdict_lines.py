"""The verdicts in words: levels that have none for the same reason share a line, everything else has its own."""

from __future__ import annotations

from typing import Any

from dsv4bench.records.verdict import CellVerdict, Grade, Verdict, VerdictDocument
from dsv4bench.report.compare import verdict_lines

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
