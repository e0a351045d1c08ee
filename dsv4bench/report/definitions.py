"""The metric registry as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.metrics import Metric


def metrics_table(metrics: Sequence[Metric]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("metric", "unit", "better", "δ"):
        table.add_column(head, no_wrap=True)
    table.add_column("definition (and other tools' names)", overflow="fold")
    for m in metrics:
        delta = f"{m.delta_frac:.0%}" if m.delta_frac is not None else ""
        better = "" if m.direction == "none" else m.direction
        text = m.definition + (f" [{m.peers}]" if m.peers else "")
        table.add_row(m.name, m.unit, better, delta, Text(text))
    return table
