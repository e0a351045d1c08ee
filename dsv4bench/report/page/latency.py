"""Latency: not only how long a token takes, but how differently it takes that long.

One strip a configuration and level, from the histograms of series.json: the height of a bin is its share of the
requests, the tallest bin of a strip fills it. Ticks are the p50 of each launch's cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.series import CellSeries, Histogram, edges_s
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page import drawing, levels
from dsv4bench.report.page.blocks import Block, Figure, Row, Table, missing
from dsv4bench.report.page.words import ms

STRIP = 24
FILL = 0.88
METRICS = {
    "ttft": ("TTFT", "the wait for the first token"),
    "tpot": ("TPOT", "the time a token takes after the first"),
}
Bins = tuple[float, float, int]  # low and high edge in seconds, count


@dataclass(frozen=True, slots=True)
class Strip:
    """One configuration at one level: its cells, and their histograms added up."""

    config: str
    name: str
    cells: list[Cell]
    bins: list[Bins]
    n: int
    off_scale: int


def blocks(r: ReportInput) -> list[Block]:
    return [_block(r, metric) for metric in METRICS]


def _block(r: ReportInput, metric: str) -> Block:
    title, what = METRICS[metric]
    strips = [s for s in _strips(r, metric) if s.bins]
    if not strips:
        return missing(f"No distribution of {title}: {_why_none(r, metric)}.")
    rows = {"bins": [row for s in strips for row in _rows(s, strips)], "p50": _ticks(strips, metric)}
    names = levels.configs(r)
    every = [s.name for s in strips]
    height = STRIP * len(strips) + 50

    def draw(data: Mapping[str, Sequence[Row]]) -> Any:
        return _chart(data, names, every, title, height - 50)

    off = sum(s.off_scale for s in strips)
    beyond = f" {off} requests lie off the scale and are not drawn." if off else ""
    return Figure(
        id=f"latency-{metric}",
        title=f"{title}, request by request",
        see=f"Each strip is the distribution of {what}; its height is the share of requests, ticks are the p50 of "
        f"each launch. Two humps may be two kinds of requests. Logarithmic axis.{beyond}",
        rows=rows,
        draw=draw,
        table=_table(strips, metric, title),
        keys=levels.keys(r, {s.config for s in strips}),
        height=height,
    )


def _strips(r: ReportInput, metric: str) -> list[Strip]:
    """By prompt length and concurrency, then by configuration."""
    series = {(d.experiment.id, c.cell): c for d in r.experiments for c in (d.series.cells if d.series else [])}
    order = {name: i for i, name in enumerate(levels.configs(r))}
    edges: dict[tuple[int, int, int], list[tuple[Cell, CellSeries | None]]] = {}
    for d in levels.ordered(r):
        for c in d.cells:
            if c.concurrency is not None and c.invalid is None:
                key = (c.isl, c.concurrency, order[d.experiment.config])
                edges.setdefault(key, []).append((c, series.get((d.experiment.id, c.cell))))
    several = len({isl for isl, _, _ in edges}) > 1
    names = levels.configs(r)
    found = []
    for (isl, concurrency, i), pairs in sorted(edges.items()):
        histograms = [getattr(s, metric) for _, s in pairs if s is not None]
        where = f"C={concurrency}" + (f" ISL {isl}" if several else "")
        bins = _added(histograms)
        off = sum(h.below + h.above for h in histograms)
        n = sum(h.n for h in histograms)
        found.append(Strip(names[i], f"{where} {names[i]}", [c for c, _ in pairs], bins, n, off))
    return found


def _added(histograms: Sequence[Histogram]) -> list[Bins]:
    """Bins are the same in every file, so that counts add up."""
    edges, counts = edges_s(), dict[int, int]()
    for h in histograms:
        for i, count in enumerate(h.counts, h.first_bin):
            counts[i] = counts.get(i, 0) + count
    return [(edges[i], edges[i + 1], n) for i, n in sorted(counts.items()) if n]


def _rows(s: Strip, strips: Sequence[Strip]) -> list[Row]:
    """Rectangles in units of strips, the first strip on top; a strip's floor is at its number."""
    floor = strips.index(s) + 1
    most = max(count for _, _, count in s.bins)
    return [
        {
            "config": s.config,
            "strip": s.name,
            "low_ms": 1e3 * low,
            "high_ms": 1e3 * high,
            "requests": count,
            "floor": floor,
            "top": floor - FILL * count / most,
        }
        for low, high, count in s.bins
    ]


def _ticks(strips: Sequence[Strip], metric: str) -> list[Row]:
    field = f"{metric}_p50_s"
    return [
        {"config": s.config, "strip": s.name, "p50_ms": 1e3 * value, "floor": i + 1, "top": i + 0.02}
        for i, s in enumerate(strips)
        for c in s.cells
        if (value := getattr(c, field)) is not None
    ]


def _chart(
    rows: Mapping[str, Sequence[Row]], names: Sequence[str], every: Sequence[str], title: str, height: int
) -> Any:
    import altair as alt

    low = min([b["low_ms"] for b in rows["bins"]] + [t["p50_ms"] for t in rows["p50"]])
    high = max([b["high_ms"] for b in rows["bins"]] + [t["p50_ms"] for t in rows["p50"]])
    ticks = drawing.round_ticks(low, high) if high / low < 500 else _decades(drawing.round_ticks(low, high))
    axis = alt.Axis(values=ticks, format="~r", labelOverlap="greedy", grid=True)
    x_scale = alt.Scale(type="log", domain=[low / 1.02, high * 1.02], nice=False)
    x = alt.X("low_ms:Q", scale=x_scale, axis=axis, title=f"{title}, ms")
    y = alt.Y("floor:Q", scale=alt.Scale(domain=[len(every), 0], nice=False), axis=None)
    names_axis = alt.Axis(labelLimit=140, grid=False, orient="left")
    bands = alt.Y("strip:N", sort=list(every), scale=alt.Scale(type="band", padding=0), axis=names_axis, title=None)
    color = drawing.config_color(names)
    tips = ["strip:N", alt.Tooltip("low_ms:Q", format=".4r"), alt.Tooltip("high_ms:Q", format=".4r"), "requests:Q"]
    strips = alt.layer(
        alt.Chart(drawing.data(rows, "bins"))
        .mark_rect()
        .encode(x=x, x2="high_ms:Q", y=y, y2="top:Q", color=color, tooltip=tips),
        alt.Chart(drawing.data(rows, "p50"))
        .mark_rule(strokeWidth=1.5, style="ink")
        .encode(x=alt.X("p50_ms:Q", scale=x_scale, axis=axis, title=f"{title}, ms"), y=y, y2="top:Q"),
    )
    labels = alt.Chart(drawing.data(rows, "bins")).mark_point(opacity=0, size=1).encode(y=bands)
    chart = alt.layer(labels, strips).resolve_scale(y="independent")
    return chart.properties(width="container", height=height)


def _decades(ticks: Sequence[float]) -> list[float]:
    return [t for t in ticks if f"{t:e}".startswith("1.0")]


def _table(strips: Sequence[Strip], metric: str, title: str) -> Table:
    rows = []
    for s in strips:
        shown = []
        for name in ("p50", "p90", "p99"):
            known = [v for c in s.cells if (v := getattr(c, f"{metric}_{name}_s")) is not None]
            shown.append(DASH if not known else _range(known))
        rows.append([s.name, str(s.n), *shown])
    head = ["level", "requests", f"{title} p50, ms", "p90, ms", "p99, ms"]
    return Table(f"{title} by nearest rank over completed requests; a range is over launches and repeats", head, rows)


def _range(values_s: Sequence[float]) -> str:
    low, high = ms(min(values_s)), ms(max(values_s))
    return low if low == high else f"{low} to {high}"


def _why_none(r: ReportInput, metric: str) -> str:
    if not any(d.series is not None for d in r.experiments):
        return "series.json is not there"
    cells = [c for d in r.experiments for c in d.cells]
    told = [why for c in cells if (why := c.why_null.get(f"{metric}_p50_s"))]
    if told:
        return "; ".join(dict.fromkeys(told))
    return "no request of a valid closed-loop level has one" if cells else "no level was measured"
