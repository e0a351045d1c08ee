"""Throughput: how does it grow with concurrency, does the fitted law describe it, and how far is the roofline?

The law X = C·AL/t(C), t(C) = a + b·C, is drawn as the comparison stored it (AL: acceptance length, 1 without
speculation); nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import ScalingLaw
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page import drawing, levels
from dsv4bench.report.page.blocks import Block, Figure, Lines, Row, Table, missing
from dsv4bench.report.page.levels import Measured
from dsv4bench.report.page.words import figure, ms, reason

CURVE_POINTS = 64
ROOF_FITS = 2.5  # a roofline beyond this many times the largest figure would flatten every curve


def blocks(r: ReportInput) -> list[Block]:
    found: list[Block] = []
    cells = levels.measured(r)
    isls = levels.prompt_lengths(cells)
    if not isls:
        found.append(missing(f"No throughput against concurrency: {_why_none(cells)}."))
    for isl in isls:
        found.append(_figure(r, cells, isl, several=len(isls) > 1))
    return found


def conditions(r: ReportInput) -> list[Block]:
    """What the law and the roofline rest on, and what was measured and stands in no curve."""
    cells = levels.measured(r)
    lines = []
    if any(law_tok_s(law, 1) is not None for isl in levels.prompt_lengths(cells) for law in _laws(r, isl)):
        lines.append(
            "A law from TPOT leaves out a request's own prefill and the ramps: measured throughput lies below it."
        )
    for isl in levels.prompt_lengths(cells):
        here = levels.closed(cells, isl)
        every = sorted({m.cell.concurrency for m in here if m.cell.concurrency is not None})
        near, far = _roof(_laws(r, isl), every, levels.by_level(here))
        if far:
            lines.append(f"The roofline lies above the drawing: {'; '.join(far)}.")
        elif not near:
            lines.append("The roofline is not known: it needs the model's dimensions and the GPU's bandwidth.")
    lines += levels.excluded(cells)
    return [Lines(lines, "note")] if lines else []


def _figure(r: ReportInput, cells: list[Measured], isl: int, several: bool) -> Block:
    here = levels.closed(cells, isl)
    title = "Throughput against concurrency" + (f", ISL {isl}" if several else "")
    drawn = [m for m in here if m.cell.output_tok_s is not None]
    if not drawn:
        return missing(f"{title}: no data: {reason((m.cell for m in here), 'output_tok_s')}.")
    laws = [law for law in _laws(r, isl) if law_tok_s(law, 1) is not None]
    names = levels.configs(r)
    every = sorted({m.cell.concurrency for m in drawn if m.cell.concurrency is not None})
    roof, _ = _roof(_laws(r, isl), every, levels.by_level(here))
    rows = {
        "points": [_point(m) for m in drawn if m.why_not is None],
        "means": _means(here, laws),
        "curve": [row for law in laws for row in _curve(law, every)],
        "roof": roof,
        "invalid": [_point(m) for m in drawn if m.why_not is not None],
    }

    def draw(data: Mapping[str, Sequence[Row]]) -> Any:
        return _chart(data, names, every)

    return Figure(
        id=f"throughput-{isl}",
        title=title,
        see=_see(r, laws, rows),
        rows=rows,
        draw=draw,
        table=_table(r, here, laws),
        keys=levels.keys(r, {m.config for m in drawn}),
        height=320,
    )


def _laws(r: ReportInput, isl: int) -> list[ScalingLaw]:
    found = r.verdict.scaling.laws if r.verdict is not None and r.verdict.scaling is not None else []
    return [law for law in found if law.isl == isl]


def _point(m: Measured) -> Row:
    return {
        "config": m.config,
        "concurrency": m.cell.concurrency,
        "output_tok_s": m.cell.output_tok_s,
        "launch": m.launch,
        "state": m.why_not or "valid",
    }


def _means(here: list[Measured], laws: Sequence[ScalingLaw]) -> list[Row]:
    """A line through the means of a configuration without a law that holds."""
    lawful = {law.config for law in laws if law.holds}
    return [
        {"config": config, "concurrency": c, "output_tok_s": value, "n": len(cells)}
        for (config, (c, _)), cells in sorted(levels.by_level(here).items())
        if config not in lawful and (value := levels.mean(cells, "output_tok_s")) is not None
    ]


def law_tok_s(law: ScalingLaw, concurrency: float) -> float | None:
    """X = C·AL/(a + b·C), output tok/s; None for a law without a ceiling, which does not tell its AL."""
    if law.a_s is None or law.b_s is None or law.ceiling_tok_s is None:
        return None
    accepted = law.ceiling_tok_s * law.b_s  # the ceiling is AL/b; AL is 1 without speculation
    step_s = law.a_s + law.b_s * concurrency
    return concurrency * accepted / step_s if step_s > 0 else None


def _curve(law: ScalingLaw, every: Sequence[int]) -> list[Row]:
    fitted = law.levels or list(every)
    low, high = min(fitted), max(fitted)
    steps = [low * (high / low) ** (i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)] if high > low else [low]
    line = "law" if law.holds else "law rejected"
    return [
        {"config": law.config, "concurrency": c, "output_tok_s": x, "line": line}
        for c in steps
        if (x := law_tok_s(law, c)) is not None
    ]


def _roof(
    laws: Sequence[ScalingLaw], every: Sequence[int], found: Mapping[tuple[str, levels.Place], Sequence[Cell]]
) -> tuple[list[Row], list[str]]:
    """What fits the axis, and in words what lies far above it."""
    most = max((x for cells in found.values() if (x := levels.mean(cells, "output_tok_s")) is not None), default=0.0)
    known = [(law.config, int(c), x) for law in laws for c, x in law.roofline_tok_s.items() if int(c) in every]
    beyond = {config for config, _, x in known if x > ROOF_FITS * most}
    rows: list[Row] = [
        {"config": config, "concurrency": c, "output_tok_s": x} for config, c, x in known if config not in beyond
    ]
    top: dict[tuple[int, float], list[str]] = {}
    for config in _in_order_of(beyond, laws):
        c, x = max((c, x) for of, c, x in known if of == config)
        now = next(
            (levels.mean(v, "output_tok_s") for (of, (at, _)), v in found.items() if (of, at) == (config, c)), None
        )
        top.setdefault((c, x), []).append(f"{x / now:.3g} times {config}" if now else f"{config} not measured there")
    return rows, [f"{figure(x, 3)} tok/s at C={c} ({', '.join(of)})" for (c, x), of in top.items()]


def _in_order_of(names: set[str], laws: Sequence[ScalingLaw]) -> list[str]:
    """The names in the order of the laws, each once."""
    return list(dict.fromkeys(law.config for law in laws if law.config in names))


def _chart(rows: Mapping[str, Sequence[Row]], names: Sequence[str], every: Sequence[int]) -> Any:
    import altair as alt

    values = [row["output_tok_s"] for part in rows.values() for row in part]
    x, y = drawing.concurrency_axis(every), drawing.value_axis("output_tok_s", [0.0, *values])
    color, shape = drawing.config_color(names), drawing.config_shape(names)
    dash = alt.StrokeDash(
        "line:N", scale=alt.Scale(domain=["law", "law rejected"], range=[[1, 0], [2, 3]]), legend=None
    )
    tips = [
        "config:N",
        "launch:N",
        "concurrency:Q",
        alt.Tooltip("output_tok_s:Q", format=".4r", title="output tok/s"),
    ]
    layers = [
        alt.Chart(drawing.data(rows, "curve")).mark_line().encode(x=x, y=y, color=color, strokeDash=dash),
        alt.Chart(drawing.data(rows, "means")).mark_line(strokeWidth=1).encode(x=x, y=y, color=color),
        alt.Chart(drawing.data(rows, "roof")).mark_line(strokeDash=[8, 4], point=False).encode(x=x, y=y, color=color),
        alt.Chart(drawing.data(rows, "points"))
        .mark_point(filled=True, opacity=0.9)
        .encode(x=x, y=y, color=color, shape=shape, tooltip=tips),
        alt.Chart(drawing.data(rows, "invalid"))
        .mark_point(filled=False, opacity=0.9)
        .encode(x=x, y=y, color=color, shape=shape, tooltip=[*tips, "state:N"]),
    ]
    drawn = [
        one for one, name in zip(layers, ("curve", "means", "roof", "points", "invalid"), strict=True) if rows[name]
    ]
    return drawing.framed(alt.layer(*drawn), "output tok/s, all requests together", 320)


def _see(r: ReportInput, laws: Sequence[ScalingLaw], rows: Mapping[str, Sequence[Row]]) -> str:
    said = ["One mark a launch and level; where a curve goes flat, more concurrency buys nothing."]
    if laws:
        held = all(law.holds for law in laws)
        lines = "" if held else "; dotted: a law that was rejected, beside a thin line through the means"
        said.append(f"Lines: the fitted law, step time t(C) = a + b·C{lines}.")
    else:
        said.append(f"Lines join the means: no law was fitted ({_why_no_law(r)}).")
    if rows["invalid"]:
        said.append("Hollow marks do not count; the notes say why.")
    if rows["roof"]:
        said.append("Dashed: the roofline.")
    return " ".join(said)


def _why_no_law(r: ReportInput) -> str:
    if r.verdict is None:
        return "no comparison is stored with this report"
    laws = r.verdict.scaling.laws if r.verdict.scaling is not None else []
    notes = [note.removeprefix("no law: ") for law in laws for note in law.notes if note.startswith("no law: ")]
    return "; ".join(dict.fromkeys(notes)) or "the scaling section says why"


def _table(r: ReportInput, here: list[Measured], laws: Sequence[ScalingLaw]) -> Table:
    by_config = {law.config: law for law in laws}
    rows = []
    for (config, (c, _)), cells in _in_order(r, levels.by_level(here)):
        law = by_config.get(config)
        known = [v for x in cells if (v := x.output_tok_s) is not None]
        roof = law.roofline_tok_s.get(str(c)) if law is not None else None
        rows.append(
            [
                config,
                str(c),
                figure(levels.mean(cells, "output_tok_s")),
                f"{figure(min(known))} to {figure(max(known))}" if len(known) > 1 else DASH,
                str(len(known)),
                figure(law_tok_s(law, c)) if law is not None else DASH,
                ms(law.a_s + law.b_s * c)
                if law is not None and law.a_s is not None and law.b_s is not None
                else DASH,
                figure(roof),
            ]
        )
    head = [
        "configuration",
        "C",
        "output tok/s, mean",
        "range",
        "cells",
        "law, tok/s",
        "law's t(C), ms",
        "roofline, tok/s",
    ]
    return Table("Throughput by configuration and concurrency; valid cells only", head, rows)


def _in_order(r: ReportInput, found: Mapping[tuple[str, levels.Place], Any]) -> list[Any]:
    order = {name: i for i, name in enumerate(levels.configs(r))}
    return sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][1]))


def _why_none(cells: list[Measured]) -> str:
    return "every level was an open loop, with a rate and no concurrency" if cells else "no level was measured"
