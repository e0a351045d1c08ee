"""The terminal's table of a sweep: one row a concurrency, notes under it; words, not colours, carry what matters.

With repeats a row shows the median over its valid cells, and the range of the throughput. Seconds become milliseconds
only here. An invalid level keeps its row, marked, and says why. The width depends on the cells alone, never on the
terminal, so that a copied table is the same everywhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource
from dsv4bench.report import activity

VERDICT_REPEATS = 5
DASH = "–"

Pick = Callable[[Cell], float | None]
Column = tuple[str, Callable[[Sequence[Cell]], str]]


def cells_table(cells: Sequence[Cell]) -> Table:
    """The table; columns that no cell has a value for, or that say the same everywhere, are left out."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _columns(cells)
    for head, _ in columns:
        table.add_column(head, justify="right", no_wrap=True)
    for group in _groups(cells):
        table.add_row(*(Text(show(group)) for _, show in columns))
    return table


def notes(cells: Sequence[Cell]) -> list[str]:
    """What a reader must know of each level, a line a level."""
    lines = []
    for group in _groups(cells):
        found: list[str] = []
        for c in group:
            where = f"repeat {c.repeat + 1}: " if len(group) > 1 else ""
            if c.invalid is not None:
                found.append(f"{where}INVALID {c.invalid}: {c.invalid_why}")
            if c.errors:
                kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(c.errors.items()))
                found.append(f"{where}failed: {kinds}" + (f" ({c.error_example})" if c.error_example else ""))
            found += [note for note in c.notes if note not in found]
        found += [note for note in activity.level_notes(group) if note not in found]
        if found:
            lines.append(f"{_level(group[0], cells)}: {'; '.join(found)}")
    return lines


def footer(cells: Sequence[Cell], path: str | None) -> list[str]:
    """What the numbers rest on, and where they lie."""
    if not cells:
        return []
    stamps = " and ".join(sorted({c.timestamps for c in cells}))
    lags = [c.client_lag_p99_s for c in cells if c.client_lag_p99_s is not None]
    lag = f"; client lag p99 at most {1e3 * max(lags):.2f} ms" if lags else ""
    sources = sorted({str(c.token_source) for c in cells if c.token_source is not TokenSource.NONE})
    lines = [f"{stamps} receive stamps{lag}; tokens from {' and '.join(sources) or 'nothing'}"]
    lines += activity.lines(cells, lambda c: _level(c, cells))
    repeats = max(c.repeat for c in cells) + 1
    if repeats < VERDICT_REPEATS:
        lines.append(f"repeats: {repeats}; a verdict in compare needs --repeat {VERDICT_REPEATS} or more")
    if path is not None:
        lines.append(f"stored in {path}")
    return lines


def print_sweep(cells: Sequence[Cell], path: str | None, console: Console) -> None:
    """Table, notes and footer on a wide console."""
    if cells:
        console.print(cells_table(cells))
    for line in [*notes(cells), *footer(cells, path)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _columns(cells: Sequence[Cell]) -> list[Column]:
    closed = any(c.concurrency is not None for c in cells)
    columns: list[Column] = [("\nC" if closed else "\nreq/s", lambda g: _mark(g) + _load(g[0]))]
    if len({c.isl for c in cells}) > 1:
        columns.append(("\nISL", lambda g: str(g[0].isl)))
    columns.append(("output\ntok/s", _number(lambda c: c.output_tok_s)))
    if any(c.repeat for c in cells):
        columns.append(("\nrange", _range))
    if any(c.output_tok_s_steady is not None for c in cells):
        columns.append(("steady\ntok/s", _number(lambda c: c.output_tok_s_steady)))
    columns += [
        ("tok/s\na user", _number(lambda c: c.tok_s_per_user)),
        ("TTFT ms\np50", _ms(lambda c: c.ttft_p50_s)),
        ("\np99", _ms(lambda c: c.ttft_p99_s)),
        ("TPOT ms\np50", _ms(lambda c: c.tpot_p50_s)),
        ("\np99", _ms(lambda c: c.tpot_p99_s)),
        ("achieved\nbatch", _number(lambda c: c.achieved_batch)),
    ]
    if any(c.device is not None for c in cells):
        columns += [(head, _percent(pick)) for head, pick in activity.picks()]
    if any(c.accept_length is not None for c in cells):
        columns.append(("accept\nlength", _number(lambda c: c.accept_length, "{:.2f}")))
    if any(c.slo_frac is not None for c in cells):
        columns.append(("in\nSLO", _number(lambda c: None if c.slo_frac is None else 100 * c.slo_frac, "{:.1f} %")))
    columns.append(("\nfailed", _failed))
    return columns


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[int | None, float | None, int], list[Cell]] = {}
    for c in cells:
        groups.setdefault((c.concurrency, c.rate_req_s, c.isl), []).append(c)
    return list(groups.values())


def _level(c: Cell, cells: Sequence[Cell]) -> str:
    load = f"C={c.concurrency}" if c.concurrency is not None else f"{_told(c.rate_req_s)} req/s"
    return load + (f" ISL {c.isl}" if len({x.isl for x in cells}) > 1 else "")


def _told(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _load(c: Cell) -> str:
    return _told(c.concurrency if c.concurrency is not None else c.rate_req_s)


def _mark(group: Sequence[Cell]) -> str:
    return "! " if any(c.invalid is not None for c in group) else ""


def _values(group: Sequence[Cell], pick: Pick) -> list[float]:
    """Values of the valid cells, or of all where none is valid."""
    used = [c for c in group if c.invalid is None] or group
    return [v for v in map(pick, used) if v is not None]


def _number(pick: Pick, form: str = "{:.1f}") -> Callable[[Sequence[Cell]], str]:
    def show(group: Sequence[Cell]) -> str:
        values = _values(group, pick)
        return form.format(statistics.median(values)) if values else DASH

    return show


def _percent(pick: Pick) -> Callable[[Sequence[Cell]], str]:
    return lambda group: activity.percent(_values(group, pick))


def _ms(pick: Pick) -> Callable[[Sequence[Cell]], str]:
    def show(group: Sequence[Cell]) -> str:
        values = _values(group, pick)
        if not values:
            return DASH
        ms = 1e3 * statistics.median(values)
        return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"

    return show


def _range(group: Sequence[Cell]) -> str:
    values = _values(group, lambda c: c.output_tok_s)
    return f"{min(values):.1f}–{max(values):.1f}" if values else DASH


def _failed(group: Sequence[Cell]) -> str:
    n_err, n_sent = sum(c.n_err for c in group), sum(c.n_sent for c in group)
    return f"{n_err}/{n_sent}" if n_err else "0"
