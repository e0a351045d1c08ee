"""Gate documents for the tests of reports, judged from built-in samples."""

from __future__ import annotations

import msgspec

from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.gate import GateCell, GateDocument, Outcome


def gate_cell(concurrency: int, outcome: Outcome, delta_frac: float | None = 0.0, reason: str = "why") -> GateCell:
    return GateCell(
        metric="output_tok_s",
        concurrency=concurrency,
        isl=1024,
        base=100.0,
        new=None if delta_frac is None else 100.0 * (1 + delta_frac),
        delta_frac=delta_frac,
        ci_frac=None if delta_frac is None else (delta_frac - 0.02, delta_frac + 0.02),
        limit_frac=0.05,
        n=6,
        outcome=outcome,
        could_see_frac=0.054,
        reason=reason,
    )


def document(cells: list[GateCell], outcome: Outcome, integrity: list[str] | None = None) -> GateDocument:
    return GateDocument(
        id="v1",
        created_utc="2026-12-01T00:00:00Z",
        mode=None if integrity else "paired",
        baseline="main",
        baseline_id="20261130T000000Z-c16-base-7f3a",
        candidate="configB",
        outcome=outcome,
        integrity=integrity or [],
        alpha=0.05 / 3,
        looks=3,
        n_compared=len(cells),
        n_expected=len(cells),
        cells=cells,
    )


def failed() -> GateDocument:
    cells = [
        gate_cell(1, Outcome.PASS),
        gate_cell(8, Outcome.INCONCLUSIVE, -0.03),
        gate_cell(16, Outcome.FAIL, -0.08),
    ]
    return msgspec.structs.replace(document(cells, Outcome.FAIL), notes=["hardware not told"])


def not_comparable() -> GateDocument:
    return document([], Outcome.NOT_COMPARABLE, ["missing_cell: C=16, ISL 1024 is in the baseline only"])


def never_judged() -> GateDocument:
    note = ErrorNote(message="--baseline 1: a number is no baseline", hint="pin one", exit_code=2)
    return GateDocument(baseline="1", candidate="configB", error=note)
