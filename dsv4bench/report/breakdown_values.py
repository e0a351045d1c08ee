"""How the figures of a breakdown are written: milliseconds, percentages, names; a dash where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

DASH = "–"


def ms(ns: int | float | None) -> str:
    """Nanoseconds as milliseconds, to the microsecond below one second."""
    if ns is None:
        return DASH
    return f"{ns / 1e6:.3f}" if abs(ns) < 1e9 else f"{ns / 1e6:.1f}"


def frac(value: float | None) -> str:
    """A share; one that is not zero never reads as zero."""
    if value is None:
        return DASH
    return "<0.1 %" if 0 < value < 0.0005 else f"{100 * value:.1f} %"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"


def ratio(value: float | None) -> str:
    """x1.64, x11.1; no bound where there is none."""
    if value is None:
        return "no bound"
    return f"x{value:.2f}" if value < 10 else f"x{value:.1f}" if value < 100 else f"x{value:.0f}"


def number(value: float | None) -> str:
    if value is None:
        return DASH
    return str(int(value)) if value == int(value) else f"{value:.1f}"


def shortened(name: str, width: int) -> str:
    """At most `width` characters; the middle goes."""
    if len(name) <= width:
        return name
    tail = width // 3
    return f"{name[: width - tail - 1]}…{name[-tail:]}"


def text_table(
    title: str, left: Sequence[str], right: Sequence[str], after: Sequence[str], first: str | None = None
) -> Table:
    """A plain table: `left` and `after` are words, `right` figures."""
    table = Table(title=title, box=None, pad_edge=False, header_style="bold")
    for head in left:
        table.add_column(head, justify="left", no_wrap=True, min_width=12 if head == first else None)
    for head in right:
        table.add_column(head, justify="right", no_wrap=True)
    for head in after:
        table.add_column(head, justify="left", no_wrap=True)
    return table
