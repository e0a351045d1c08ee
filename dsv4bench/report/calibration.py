"""A rig's noise floor as a table: the spread of runs and of launches, a metric and level at a time."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.calibration import Calibration

DASH = "–"


def print_calibration(c: Calibration, path: str, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("metric", "C", "ISL", "launches", "runs each", "σ run", "σ launch"):
        table.add_column(head, no_wrap=True, justify="left" if head == "metric" else "right")
    for f in c.floors:
        load = DASH if f.concurrency is None else str(f.concurrency)
        sigmas = (_frac(f.sigma_run_frac), _frac(f.sigma_launch_frac))
        table.add_row(*map(Text, (f.metric, load, str(f.isl), str(f.n_launches), str(f.n_repeats), *sigmas)))
    console.print(table)
    largest = f"largest: σ run {_frac(c.sigma_run_frac)}, σ launch {_frac(c.sigma_launch_frac)}"
    for line in (f"{largest}; stored in {path}", *(f"note: {note}" for note in c.notes)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _frac(x: float | None) -> str:
    return DASH if x is None else f"{x:.2%}"
