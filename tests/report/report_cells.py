"""Cells as a sweep leaves them, for the tests of report."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from rich.console import Console

from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource


def make_cell(concurrency: int | None = 8, **fields: Any) -> Cell:
    """A sound level of 24 requests; `fields` replace what is said here."""
    known: dict[str, Any] = {
        **{field.name: None for field in msgspec.structs.fields(Cell) if field.required},
        "cell": f"r0-c{concurrency}-i1024",
        "launch": "L0",
        "repeat": 0,
        "concurrency": concurrency,
        "isl": 1024,
        "osl": 256,
        "started_utc": "2026-12-01T00:00:00.000Z",
        "n_sent": 24,
        "n_ok": 24,
        "n_err": 0,
        "token_source": TokenSource.USAGE,
        "output_tok_s": 23.456,
        "output_tok_s_steady": 24.0,
        "tok_s_per_user": 3.02,
        "ttft_p50_s": 0.1234,
        "ttft_p99_s": 2.5,
        "tpot_p50_s": 0.33,
        "tpot_p99_s": 0.00789,
        "achieved_batch": 7.96,
        "peak_in_flight": 8,
        "timestamps": "kernel",
        "client_lag_p99_s": 0.00012,
        "n_workers": 1,
    }
    return Cell(**{**known, **fields})


def printed(*renderables: object, width: int = 200) -> str:
    """What a console without colours shows, without the blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for r in renderables:
        console.print(r)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())
