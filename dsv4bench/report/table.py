"""The terminal's table of a sweep: one row a concurrency; words, not colours, carry what matters.

With repeats a row shows the median over its valid cells and, for throughput, the range. Seconds become milliseconds
only here. An invalid level keeps its row and says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

VERDICT_REPEATS = 5
DASH = "–"


def cells_table(cells: Sequence[Cell]) -> Table:
    """The table; columns that would be the same in every row are left out."""
    several_isl = len({c.isl for c in cells}) > 1
    slo = any(c.slo_frac is not None for c in cells)
    spec = any(c.accept_length is not None for c in cells)
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = ["C" if any(c.concurrency is not None for c in cells) else "req/s"]
    heads += ["ISL"] if several_isl else []
    heads += ["output tok/s", "steady", "tok/s/user", "TTFT ms p50", "p99", "TPOT ms p50", "p99", "batch"]
    heads += ["accept"] if spec else []
    heads += ["in SLO"] if slo else []
    heads += ["failed"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("notes", overflow="fold")
    for group in _groups(cells):
        first = group[0]
        used = [c for c in group if c.invalid is None] or group
        row = [str(first.concurrency) if first.concurrency is not None else f"{first.rate_req_s:g}"]
        row += [str(first.isl)] if several_isl else []
        row += [
            _with_range(used, lambda c: c.output_tok_s),
            _median(used, lambda c: c.output_tok_s_steady),
            _median(used, lambda c: c.tok_s_per_user),
            _ms(used, lambda c: c.ttft_p50_s),
            _ms(used, lambda c: c.ttft_p99_s),
            _ms(used, lambda c: c.tpot_p50_s),
            _ms(used, lambda c: c.tpot_p99_s),
            _median(used, lambda c: c.achieved_batch),
        ]
        row += [_median(used, lambda c: c.accept_length, "{:.2f}")] if spec else []
        row += [_median(used, lambda c: None if c.slo_frac is None else 100 * c.slo_frac, "{:.0f} %")] if slo else []
        row += [_failed(group)]
        table.add_row(*row, Text(_notes(group)))
    return table


def footer(cells: Sequence[Cell], path: str | None) -> list[str]:
    """What the numbers rest on, and where they lie."""
    if not cells:
        return []
    lines = []
    stamps = {c.timestamps for c in cells}
    lags = [c.client_lag_p99_s for c in cells if c.client_lag_p99_s is not None]
    lag = f"; client lag p99 at most {1e3 * max(lags):.2f} ms" if lags else ""
    sources = sorted({str(c.token_source) for c in cells if c.token_source is not TokenSource.NONE})
    lines.append(
        f"{' and '.join(sorted(stamps))} receive stamps{lag}; tokens from {' and '.join(sources) or 'nothing'}"
    )
    repeats = max(c.repeat for c in cells) + 1
    if repeats < VERDICT_REPEATS:
        lines.append(f"repeats: {repeats}; a verdict in compare needs --repeat {VERDICT_REPEATS} or more")
    if path is not None:
        lines.append(f"stored in {path}")
    return lines


def print_sweep(cells: Sequence[Cell], path: str | None, console: Console) -> None:
    if cells:
        console.print(cells_table(cells))
    for line in footer(cells, path):
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[int | None, float | None, int], list[Cell]] = {}
    for c in cells:
        groups.setdefault((c.concurrency, c.rate_req_s, c.isl), []).append(c)
    return list(groups.values())


Pick = Callable[[Cell], float | None]


def _values(cells: Sequence[Cell], pick: Pick) -> list[float]:
    return [v for v in map(pick, cells) if v is not None]


def _median(cells: Sequence[Cell], pick: Pick, form: str = "{:.1f}") -> str:
    values = _values(cells, pick)
    return form.format(statistics.median(values)) if values else DASH


def _with_range(cells: Sequence[Cell], pick: Pick) -> str:
    values = _values(cells, pick)
    if len(values) < 2:
        return _median(cells, pick)
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def _ms(cells: Sequence[Cell], pick: Pick) -> str:
    values = _values(cells, pick)
    if not values:
        return DASH
    ms = 1e3 * statistics.median(values)
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def _failed(group: Sequence[Cell]) -> str:
    n_err, n_sent = sum(c.n_err for c in group), sum(c.n_sent for c in group)
    return f"{n_err}/{n_sent}" if n_err else "0"


def _notes(group: Sequence[Cell]) -> str:
    found: list[str] = []
    for c in group:
        where = f"repeat {c.repeat + 1}: " if len(group) > 1 else ""
        if c.invalid is not None:
            found.append(f"{where}INVALID {c.invalid}: {c.invalid_why}")
        if c.errors:
            found.append(where + ", ".join(f"{n} {kind}" for kind, n in sorted(c.errors.items())))
        found += [note for note in c.notes if note not in found]
    return "; ".join(found)
