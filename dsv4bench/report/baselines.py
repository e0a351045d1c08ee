"""The pinned names, each with its experiment and the reason it was chosen."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from dsv4bench.records.gate import BaselinesDocument


def baselines_table(d: BaselinesDocument) -> Table:
    """GONE: the experiment is not in this results folder."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("name", "id", "config", "set", "reason"):
        table.add_column(head, no_wrap=True)
    for b in d.baselines:
        table.add_row(*map(Text, (b.name, b.id, b.config or "GONE", b.set_utc or "–", b.reason or "–")))
    return table
