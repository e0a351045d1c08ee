"""GPU activity over time: how much of the tensor pipe and of DRAM bandwidth does each configuration use?

From the counters that `sweep --tensor-pipe` samples, thinned as series.json keeps them: fractions of elapsed cycles.
One launch of each configuration is drawn; several GPUs are averaged point by point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from dsv4bench.records.campaign import ExperimentData, ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.series import CellSeries, GpuSeries, TelemetrySeries
from dsv4bench.report.page import drawing, levels
from dsv4bench.report.page.blocks import Block, Figure, Key, Row, Table, missing
from dsv4bench.report.page.words import level, part

COUNTERS: dict[str, Callable[[GpuSeries], list[float | None]]] = {
    "tensor pipe": lambda g: g.tensor_pipe_frac,
    "DRAM": lambda g: g.dram_frac,
    "SMs active": lambda g: g.sm_active_frac,
}
NAME_ROOM = 0.09  # of the time shown
APART = 8.0  # percent: closer names would overlap
DASHES = {"tensor pipe": [1, 0], "DRAM": [6, 3], "SMs active": [2, 2]}


def blocks(r: ReportInput) -> list[Block]:
    found: list[Block] = []
    without: dict[str, list[str]] = {}
    for i, config in enumerate(levels.configs(r)):
        own = [d for d in levels.ordered(r) if d.experiment.config == config]
        sampled = [d for d in own if _sampled(d)]
        if sampled:
            found.append(_figure(r, config, i, sampled))
        elif own:
            without.setdefault(_why_not(own), []).append(config)
    found += [missing(f"No GPU activity over time of {', '.join(c)}: {why}.") for why, c in without.items()]
    return found or [missing("No GPU activity over time: no experiment is stored with this report.")]


def _sampled(d: ExperimentData) -> bool:
    return any(any(pick(g)) for s in _series(d) for g in s.gpus for pick in COUNTERS.values())


def _series(d: ExperimentData) -> list[TelemetrySeries]:
    return [c.telemetry for c in (d.series.cells if d.series is not None else []) if c.telemetry is not None]


def _why_not(own: Sequence[ExperimentData]) -> str:
    if all(d.series is None for d in own):
        return "series.json is not there"
    told = [why for d in own for c in d.cells if (why := c.why_null.get("tensor_pipe_frac"))]
    if told:
        return "; ".join(dict.fromkeys(told))
    return "counters were not sampled (dsv4bench sweep --tensor-pipe samples them)"


def _figure(r: ReportInput, config: str, index: int, sampled: Sequence[ExperimentData]) -> Figure:
    d = sampled[0]
    names = levels.launch_names(r)
    cells = {c.cell: c for c in d.cells}
    start_s = min(s.start_s for s in _series(d))
    series = d.series.cells if d.series is not None else []
    rows = [{"config": config, **p} for c in series for p in _points(c, cells.get(c.cell), start_s)]
    marks = _marks(rows)
    drawn = [name for name in COUNTERS if any(row["counter"] == name for row in rows)]
    more = len(sampled) - 1
    others = f" {more} more launch{' was' if more == 1 else 'es were'} sampled." if more else ""
    gpus = sorted({g.index for s in _series(d) for g in s.gpus})
    of = f"the mean of GPUs {', '.join(map(str, gpus))}" if len(gpus) > 1 else f"GPU {gpus[0]}"

    def draw(data: Mapping[str, Sequence[Row]]) -> Any:
        return _chart(data, levels.configs(r))

    lines = {"tensor pipe": "solid", "DRAM": "dashed", "SMs active": "dotted"}
    return Figure(
        id=f"activity-{index}",
        title=f"GPU activity over time, {config}",
        see=f"% of elapsed cycles over {names[d.experiment.id]}, {of}, level by level. DRAM high, tensor pipe low: "
        f"the step waits for bytes; both low: it waits for launches, or its kernels leave most SMs idle.{others}",
        rows={"points": rows, "levels": marks, "names": _names(rows)},
        draw=draw,
        table=_table(d, cells),
        keys=[Key("config", index, f"{config}: {', '.join(f'{n} {lines[n]}' for n in drawn)}")],
        height=240,
        wide=True,
    )


def _points(series: CellSeries, cell: Cell | None, start_s: float) -> list[Row]:
    t = series.telemetry
    if t is None:
        return []
    where = level(cell.concurrency, cell.rate_req_s) if cell is not None else series.cell
    found: list[Row] = []
    for name, pick in COUNTERS.items():
        columns = [column for g in t.gpus if (column := pick(g))]
        for i, t_s in enumerate(t.t_s):
            known = [v for column in columns if i < len(column) and (v := column[i]) is not None]
            if known:
                at = t.start_s - start_s + t_s
                value = 100 * fmean(known)
                found.append({"t_s": at, "percent": value, "counter": name, "level": where, "cell": series.cell})
    return found


def _marks(rows: Sequence[Row]) -> list[Row]:
    """Where each level begins; a level that is too short for its name goes without."""
    first: dict[str, Row] = {}
    for row in rows:
        known = first.get(row["cell"])
        if known is None or row["t_s"] < known["t_s"]:
            first[row["cell"]] = {"t_s": row["t_s"], "level": row["level"], "cell": row["cell"]}
    ordered = sorted(first.values(), key=lambda m: m["t_s"])
    room_s = NAME_ROOM * max(row["t_s"] for row in rows) if rows else 0.0
    found: list[Row] = []
    named_s = -room_s
    for mark in ordered:
        fits = mark["t_s"] - named_s >= room_s
        named_s = mark["t_s"] if fits else named_s
        found.append({**mark, "level": mark["level"] if fits else ""})
    return found


def _names(rows: Sequence[Row]) -> list[Row]:
    """The name of each line at its end; where two ends are close, only the first name fits."""
    found: list[Row] = []
    for name in COUNTERS:
        own = [row for row in rows if row["counter"] == name]
        if own and all(abs(own[-1]["percent"] - other["percent"]) >= APART for other in found):
            found.append(own[-1])
    return found


def _chart(rows: Mapping[str, Sequence[Row]], names: Sequence[str]) -> Any:
    import altair as alt

    color = drawing.config_color(names)
    x = alt.X("t_s:Q", title="s since the first level began", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False))
    y = alt.Y("percent:Q", title=None, scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    dash = alt.StrokeDash("counter:N", scale=alt.Scale(domain=list(DASHES), range=list(DASHES.values())), legend=None)
    tips = ["level:N", "counter:N", alt.Tooltip("percent:Q", format=".3r", title="% of elapsed cycles"), "t_s:Q"]
    chart = alt.layer(
        alt.Chart(drawing.data(rows, "levels")).mark_rule(strokeWidth=1, opacity=0.4).encode(x=x),
        alt.Chart(drawing.data(rows, "levels"))
        .mark_text(align="left", dx=4, style="soft")
        .encode(x=x, y=alt.value(8), text="level:N"),
        alt.Chart(drawing.data(rows, "points"))
        .mark_line()
        .encode(x=x, y=y, color=color, strokeDash=dash, detail="cell:N"),
        alt.Chart(drawing.data(rows, "points")).mark_point(size=40, opacity=0).encode(x=x, y=y, tooltip=tips),
        alt.Chart(drawing.data(rows, "names"))
        .mark_text(align="right", baseline="bottom", dy=-5, style="ink")
        .encode(x=x, y=y, text="counter:N"),
    )
    return drawing.framed(chart, "% of elapsed cycles", 240)


def _table(d: ExperimentData, cells: Mapping[str, Cell]) -> Table:
    rows = []
    for c in cells.values():
        metrics = c.device.tensor_pipe.metric if c.device is not None and c.device.tensor_pipe is not None else "–"
        shown = [part(v) for v in (c.tensor_pipe_frac, c.dram_frac, c.sm_active_frac)]
        rows.append([level(c.concurrency, c.rate_req_s, c.isl), *shown, metrics])
    head = ["level", "tensor pipe", "DRAM", "SMs active", "tensor-pipe metric"]
    caption = "Means over each level's steady window, % of elapsed cycles"
    return Table(caption, head, rows, prose=(4,))
