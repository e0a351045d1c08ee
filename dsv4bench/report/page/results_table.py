"""Every level that was measured: the means by configuration, then each cell, the ones that do not count too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dsv4bench.clocks import clocks, flag_notes, max_mhz, throttle_notes
from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import CellVerdict
from dsv4bench.report.markdown import DASH, percent
from dsv4bench.report.page import levels
from dsv4bench.report.page.blocks import Block, Fold, Lines, Table, missing
from dsv4bench.report.page.levels import Measured
from dsv4bench.report.page.words import figure, level, metric_title, metric_value, ms

METRICS = ("output_tok_s", "tpot_p50_s", "ttft_p50_s")
_RAN = re.compile(r"server ran (\d+\.\d) of (\d+) at once")
LATENCY = ("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s")


def blocks(r: ReportInput) -> list[Block]:
    cells = levels.measured(r)
    if not cells:
        return [missing("No level was measured.")]
    found: list[Block] = [_means(r, cells, metric) for metric in METRICS]
    found.append(Fold(f"All {len(cells)} cells", table=_cells(cells)))
    notes = [*clock_notes(r, cells), *cell_notes(cells)]
    return [*found, Lines(notes, "note")] if notes else found


def _means(r: ReportInput, cells: list[Measured], metric: str) -> Table:
    """One metric: a row a configuration, a column a level, and its change under it."""
    columns = levels.places(cells)
    found = levels.by_level(cells)
    rows = []
    for config in levels.configs(r):
        if not any(m.config == config for m in cells):
            continue
        own = [found.get((config, place), []) for place in columns]
        rows.append([config, *(_value(c, metric) for c in own)])
        for base in dict.fromkeys(v.versus_name for v in _verdicts(r, config, metric)):
            against = {(v.concurrency, v.isl): v for v in _verdicts(r, config, metric) if v.versus_name == base}
            rows.append([f"Δ vs {base}", *(_change(against.get(place)) for place in columns)])
    heads = [levels.head(place, columns) for place in columns]
    caption = f"{metric_title(metric)}: geometric means over the valid cells of each level"
    return Table(caption, ["configuration", *heads], rows)


def _verdicts(r: ReportInput, config: str, metric: str) -> list[CellVerdict]:
    cells = r.verdict.cells if r.verdict is not None else []
    return [v for v in cells if (v.config, v.metric) == (config, metric)]


def _change(v: CellVerdict | None) -> str:
    if v is None or v.delta_frac is None:
        return DASH
    return f"{percent(v.delta_frac)} {v.verdict or v.grade or ''}".rstrip()


def _value(cells: list[Cell], metric: str) -> str:
    about = "~" if any(metric in c.approximate for c in cells) else ""
    return about + metric_value(metric, levels.mean(cells, metric))


def _cells(cells: list[Measured]) -> Table:
    rows = []
    for m in cells:
        c = m.cell
        rows.append(
            [
                m.config,
                m.launch,
                level(c.concurrency, c.rate_req_s, c.isl),
                m.why_not or "valid",
                figure(c.output_tok_s),
                figure(c.tok_s_per_user),
                *(ms(getattr(c, field)) for field in LATENCY),
                figure(c.achieved_batch, 3),
                f"{c.n_ok} of {c.n_sent}",
                figure(c.gpu_sm_clock_mean_mhz) + (f" ({', '.join(c.gpu_throttle)})" if c.gpu_throttle else ""),
            ]
        )
    head = ["configuration", "launch", "level", "state", "output tok/s", "tok/s a user", "TTFT p50, ms", "TTFT p99"]
    head += ["TPOT p50, ms", "TPOT p99", "achieved batch", "requests ok", "SM clock, MHz"]
    return Table("Every cell: one launch, repeat and level", head, rows, text_columns=4, prose=(12,))


def cell_notes(cells: list[Measured]) -> list[str]:
    """What a reader must know of single levels, and why a figure is missing; equal sentences once."""
    said: dict[str, list[str]] = {}
    for m in cells:
        where = f"{m.config} {level(m.cell.concurrency, m.cell.rate_req_s)}"
        for note in m.cell.notes:
            said.setdefault(note, []).append(where)
        for field, why in m.cell.why_null.items():
            said.setdefault(f"no {field}: {why}", []).append(where)
    return [f"{', '.join(of)}: {note}" for note, of in _ranges(said)]


def _ranges(said: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """(note, levels): of one level that ran now 2.8 and now 3.0 of 4 at once, both in one note."""
    ran: dict[tuple[str, str], list[str]] = {}
    found: dict[str, list[str]] = {}
    for note, levels_of in said.items():
        m = _RAN.fullmatch(note)
        for where in levels_of:
            if m is None:
                found.setdefault(note, []).append(where)
            else:
                ran.setdefault((where, m[2]), []).append(m[1])
    for (where, of), each in ran.items():
        low, high = min(each, key=float), max(each, key=float)
        shown = low if low == high else f"{low} to {high}"
        found.setdefault(f"server ran {shown} of {of} at once", []).append(where)
    return [(note, list(dict.fromkeys(of))) for note, of in found.items()]


def clock_notes(r: ReportInput, cells: list[Measured]) -> list[str]:
    """Levels that were throttled, and in one line the flags that slowed nothing down."""
    limits = {d.experiment.config: mhz for d in r.experiments if (mhz := max_mhz(d.experiment.machine)) is not None}
    several = len({m.cell.isl for m in cells}) > 1

    def where(m: Measured) -> str:
        load = f"{m.config} {level(m.cell.concurrency, m.cell.rate_req_s)}"
        return f"{load} ISL {m.cell.isl}" if several else load

    found = clocks((where(m), m.cell, limits.get(m.config)) for m in cells)
    return [*throttle_notes(found), *flag_notes(found)]
