"""Kernels: where does a decode step go, component by component, and which implementations ran?

A bar is one decode step: the exclusive time of each component (nothing else ran), then overlap, copies and idle time,
all medians over the steps. Medians of parts need not add up to the median of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv4bench.records.breakdown import BreakdownDocument, DeviceBreakdown, Steps
from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page import drawing, levels
from dsv4bench.report.page.blocks import Block, Figure, Fold, Key, Lines, Row, Table, missing
from dsv4bench.report.page.words import figure, level, part

NS_PER_MS = 1e6
MOST = 7  # components with a colour of their own; the theme has one more for the rest
REST = "the rest"
BETWEEN = ("several at once", "copies only", "idle")
LETTER, MARGIN = 6.8, 10  # CSS pixels that a label needs
BAR, FRAME = 34, 46
TOP_KERNELS = 12


def blocks(r: ReportInput) -> list[Block]:
    if not r.breakdowns:
        return [missing("No kernel breakdown is stored: dsv4bench profile URL --kernel-breakdown makes one.")]
    timed = [b for b in _ordered(r) if _timed(b.steps)]
    found: list[Block] = []
    if timed:
        found += _figures(timed)
    found += [missing(f"{_name(b)}: {_why_not(b)}.") for b in _ordered(r) if b not in timed]
    found.append(_implementations(r))
    found += [fold for b in _ordered(r) if (fold := _top(b)) is not None]
    notes = [f"{_name(b)}: {w}" for b in _ordered(r) for w in _warnings(b)]
    return [*found, Lines(list(dict.fromkeys(notes)), "note")] if notes else found


def _ordered(r: ReportInput) -> list[BreakdownDocument]:
    order = {name: i for i, name in enumerate(levels.configs(r))}
    return sorted(r.breakdowns, key=lambda b: (order.get(b.config or "", 99), b.concurrency or 0, b.isl or 0))


def _name(b: BreakdownDocument) -> str:
    return f"{b.config or 'a file without a configuration'}, {level(b.concurrency, isl=b.isl)}"


def _warnings(b: BreakdownDocument) -> list[str]:
    """Of the document, and those of its steps that it does not repeat."""
    own = [w for w in (b.steps.warnings if b.steps is not None else []) if not any(x.endswith(w) for x in b.warnings)]
    return [*b.warnings, *own]


def _timed(steps: Steps | None) -> bool:
    return steps is not None and bool(steps.median_ns) and bool(steps.components)


def _why_not(b: BreakdownDocument) -> str:
    told = _warnings(b)
    return f"no decode step was found in the trace{': ' + '; '.join(told) if told else ''}"


def parts(steps: Steps) -> dict[str, float]:
    """Milliseconds a step by component (exclusive where known, else its kernel time), then what no component owns."""
    found = {}
    for c in steps.components:
        time_ns = c.exclusive_median_ns if c.exclusive_median_ns is not None else c.median_ns
        if time_ns:
            found[c.component] = time_ns / NS_PER_MS
    between = zip(BETWEEN, (steps.overlap_median_ns, steps.copy_only_median_ns, steps.idle_median_ns), strict=True)
    return {**found, **{name: ns / NS_PER_MS for name, ns in between if ns}}


def _figures(timed: Sequence[BreakdownDocument]) -> list[Block]:
    bars = {_bar(b, timed): parts(b.steps) for b in timed if b.steps is not None}
    spans = {_bar(b, timed): (b.steps.median_ns or 0) / NS_PER_MS for b in timed if b.steps is not None}
    shown, names = _shown(bars)
    keys = [Key("part", _color(name, shown), name) for name in names]
    table = _table(bars, spans)
    height = BAR * len(bars) + FRAME

    def figure_of(kind: str, title: str, see: str, rows: list[Row], axis: str) -> Figure:
        def draw(data: Mapping[str, Sequence[Row]]) -> Any:
            return _chart(data, list(bars), shown, axis, height - FRAME)

        return Figure(kind, title, see, {"parts": rows}, draw, table, keys, height, wide=True)

    times = _rows(bars, names, dict.fromkeys(bars, 1.0), "{:.3g}")
    shares = _rows(bars, names, {k: 100 / sum(p.values()) for k, p in bars.items()}, "{:.0f} %")
    return [
        figure_of(
            "kernels-ms",
            "One decode step, in milliseconds",
            "The length of a bar is the time of a decode step; the widest part is what to change first.",
            times,
            "ms a decode step",
        ),
        figure_of(
            "kernels-share",
            "The same step, as shares",
            "Every bar is 100 % of the sum of its parts; this shows what a short step is made of.",
            shares,
            "% of the step",
        ),
    ]


def _bar(b: BreakdownDocument, every: Sequence[BreakdownDocument]) -> str:
    several = len({x.isl for x in every}) > 1
    return f"{b.config or 'not named'} {level(b.concurrency, isl=b.isl if several else None)}"


def _shown(bars: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[str]]:
    """Components with a colour of their own, the largest first; and every name in the order of drawing."""
    total: dict[str, float] = {}
    for one in bars.values():
        for name, time_ms in one.items():
            total[name] = total.get(name, 0.0) + time_ms / sum(one.values())
    ranked = sorted((n for n in total if n not in BETWEEN), key=lambda n: -total[n])
    shown = ranked[:MOST]
    rest = [REST] if len(ranked) > MOST else []
    return shown, [*shown, *rest, *(n for n in BETWEEN if n in total)]


def _color(name: str, shown: Sequence[str]) -> int:
    """Index into the theme's range `ordinal`: components, the rest, then the greys."""
    if name in shown:
        return list(shown).index(name)
    return MOST if name == REST else MOST + 1 + BETWEEN.index(name)


def _rows(
    bars: Mapping[str, Mapping[str, float]], names: Sequence[str], scale: Mapping[str, float], form: str
) -> list[Row]:
    """Rectangles from `start` to `end`; which label a rectangle carries follows from its width when it is drawn."""
    rows: list[Row] = []
    for bar, own in bars.items():
        drawn = {n: t for n, t in own.items() if n in names}
        if REST in names:
            drawn[REST] = sum(t for n, t in own.items() if n not in names)
        at = 0.0
        for name in names:
            value = drawn.get(name, 0.0) * scale[bar]
            if value > 0:
                label = f"{name} {form.format(value)}"
                rows.append(
                    {"bar": bar, "part": name, "value": value, "start": at, "end": at + value, "label": label}
                )
                at += value
    return rows


def _chart(
    rows: Mapping[str, Sequence[Row]], bars: Sequence[str], shown: Sequence[str], axis: str, height: int
) -> Any:
    import altair as alt

    domain = [*shown, *(f"no component {i}" for i in range(MOST - len(shown))), REST, *BETWEEN]
    color = alt.Color("part:N", scale=alt.Scale(domain=domain, range="ordinal"), legend=None)
    y = alt.Y("bar:N", sort=list(bars), title=None, axis=alt.Axis(labelLimit=150), scale=alt.Scale(paddingInner=0.28))
    longest = max(row["end"] for row in rows["parts"])
    x = alt.X("start:Q", title=axis, axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=[0, longest], nice=False))
    tips = ["bar:N", "part:N", alt.Tooltip("value:Q", format=".4r", title=axis)]
    base = alt.Chart(drawing.data(rows, "parts"))
    room = f"(datum.end - datum.start) / {longest!r} * width"
    fits = (
        f"{room} > {LETTER} * length(datum.label) + {MARGIN} ? datum.label : "
        f"{room} > {LETTER} * length(datum.part) + {MARGIN} ? datum.part : ''"
    )
    chart = alt.layer(
        base.mark_bar().encode(x=x, x2="end:Q", y=y, color=color, tooltip=tips),
        base.transform_calculate(shown=fits)
        .mark_text(align="left", dx=5, style="on-part")
        .encode(x=x, y=y, text="shown:N"),
    )
    return chart.properties(width="container", height=height)


def _table(bars: Mapping[str, Mapping[str, float]], spans: Mapping[str, float]) -> Table:
    names = list(dict.fromkeys(n for own in bars.values() for n in own if n not in BETWEEN))
    names.sort(key=lambda n: -max(own.get(n, 0.0) for own in bars.values()))
    rows = []
    for name in [*names, *(b for b in BETWEEN if any(b in own for own in bars.values()))]:
        shown = []
        for own in bars.values():
            time_ms = own.get(name)
            shown.append(DASH if time_ms is None else f"{figure(time_ms, 3)} ({part(time_ms / sum(own.values()))})")
        rows.append([name, *shown])
    rows.append(["median of whole steps", *(figure(span, 4) for span in spans.values())])
    caption = "Milliseconds a decode step (share of the sum of the parts); exclusive times, medians over steps"
    return Table(caption, ["part", *bars], rows)


def _implementations(r: ReportInput) -> Block:
    """Which kernels were live, on which unit they run, and what the trace rests on."""
    rows = []
    for b in _ordered(r):
        live = [one for one in b.live if one.moe or one.attention]
        steps = f"{b.steps.count} ({b.steps.method})" if b.steps is not None else "none found"
        rows.append([_name(b), live[0].text if live else "no kernel name tells", _units(b.devices), steps, _gpus(b)])
    head = ["profile", "live implementations", "kernel time runs on", "decode steps", "GPU"]
    return Table("What ran, by the names of the kernels", head, rows, prose=(1, 2, 3, 4))


def _units(devices: Sequence[DeviceBreakdown]) -> str:
    """Of the first device that tells."""
    named = {"tensor": "tensor cores", "cuda": "CUDA cores", "unknown": "unknown"}
    for d in devices:
        told = [f"{named[u.runs_on]} {part(u.share_of_busy_frac)}" for u in d.units if u.share_of_busy_frac]
        if told:
            return f"{', '.join(told)} (of busy time)"
    return "not told"


def _gpus(b: BreakdownDocument) -> str:
    return ", ".join(dict.fromkeys(d.gpu for d in b.devices if d.gpu)) or "not told"


def _top(b: BreakdownDocument) -> Fold | None:
    rows = sorted((row for d in b.devices[:1] for row in d.rows), key=lambda row: -row.time_ns)[:TOP_KERNELS]
    if not rows:
        return None
    head = ["kernel", "component", "runs on (evidence)", "share of kernel time", "launches", "waves"]
    shown = [
        [
            row.name,
            row.component,
            f"{row.runs_on} ({row.evidence})",
            part(row.share_of_sum_frac),
            str(row.count),
            DASH if row.waves is None else f"{row.waves:.2f}",
        ]
        for row in rows
    ]
    caption = f"The {len(rows)} longest kernels of {_name(b)}; shares of the sum of kernel times in the whole window"
    return Fold(f"Longest kernels, {_name(b)}", table=Table(caption, head, shown, text_columns=3))
