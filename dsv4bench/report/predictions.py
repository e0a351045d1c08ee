"""The prediction ledger on the terminal: predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.report.findings import tables
from dsv4bench.report.findings.tables import outcome
from dsv4bench.report.markdown import percent

Ledger = Sequence[tuple[Prediction, Measured | None]]


def ledger_table(ledger: Ledger) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("id", "lever", "config", "metric", "C", "predicted", "measured", ""):
        table.add_column(head, no_wrap=True, justify="right" if head in ("C", "predicted", "measured") else "left")
    for p, m in ledger:
        measured = "not yet" if m is None else f"{percent(m.ratio - 1)} vs {m.versus}"
        shown = (p.id, p.lever, p.config, p.metric, str(p.concurrency), interval(p), measured, outcome(p, m))
        table.add_row(*(Text(v) for v in shown))
    return table


def interval(p: Prediction) -> str:
    """`+20.0 % to +45.0 % vs A`."""
    return f"{tables.interval(p)} vs {p.parent or 'its parent'}"


def prediction_line(p: Prediction) -> str:
    """What was just written down."""
    basis = ""
    if p.share_frac is not None:
        basis = f" ({p.component} is {100 * p.share_frac:.3g} % of {p.share_of}, {p.kernel_speedup:g}x faster)"
    return f"{p.id}: {p.lever} as {p.config}, {p.metric} at C={p.concurrency}: {interval(p)}{basis}"
