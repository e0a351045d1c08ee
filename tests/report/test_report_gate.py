"""The one-screen table of a gate."""

from __future__ import annotations

import io

from gate_verdicts import document, failed, gate_cell, never_judged, not_comparable
from rich.console import Console

from dsv4bench.records.gate import GateDocument, Outcome
from dsv4bench.report.gate import MAX_ROWS, print_gate


def printed(d: GateDocument) -> list[str]:
    out = io.StringIO()
    print_gate(d, Console(file=out, width=200))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_failed_gate() -> None:
    assert printed(failed()) == [
        "FAIL: configB vs baseline main (20261130T000000Z-c16-base-7f3a)",
        "compared 3 of 3 cells; paired mode: 6 pairs of launches, α 0.0167 (0.05 over 3 looks)",
        "level          metric         baseline  candidate  change         interval  limit  could see  n  outcome",
        "C=16 ISL 1024  output_tok_s  100 tok/s   92 tok/s   -8.0%  [-10.0%, -6.0%]     5%       5.4%  6  FAIL",
        "C=8 ISL 1024   output_tok_s  100 tok/s   97 tok/s   -3.0%   [-5.0%, -1.0%]     5%       5.4%  6  INCONCLUSIVE",  # noqa: E501
        "C=1 ISL 1024   output_tok_s  100 tok/s  100 tok/s   +0.0%   [-2.0%, +2.0%]     5%       5.4%  6  PASS",
        "FAIL output_tok_s C=16 ISL 1024: why",
        "INCONCLUSIVE output_tok_s C=8 ISL 1024: why",
        "note: hardware not told",
    ]


def test_a_gate_that_compared_nothing_says_so() -> None:
    lines = printed(not_comparable())
    assert lines[0].startswith("NOT COMPARABLE: ")
    assert lines[1].startswith("compared 0 of 0 cells: integrity failed")
    assert lines[2].startswith("missing_cell: ")
    assert "a number is no baseline" in printed(never_judged())[1]


def test_many_cells_stay_on_one_screen() -> None:
    cells = [gate_cell(c, Outcome.FAIL if c == 60 else Outcome.PASS) for c in range(1, 61)]
    lines = printed(document(cells, Outcome.FAIL))
    assert len(lines) < 40
    assert lines[3].startswith("C=60") and f"… and {60 - MAX_ROWS} cells more, none worse than these" in lines
