"""What charts have in common: named data, the scales of configurations and concurrency, the line above the plot.

Colours are not in a chart: its scales name ranges of the theme (`theme.vega_config`), so that the page can draw it
again in the other theme. Altair is imported where a chart is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dsv4bench.report.page.blocks import Row

WIDE_RATIO = 10.0  # from here on a logarithmic axis shows both ends


def data(rows: Mapping[str, Sequence[Row]], name: str) -> Any:
    import altair as alt

    return alt.InlineData(values=[dict(row) for row in rows[name]], name=name)


def config_color(names: Sequence[str]) -> Any:
    """Configurations in the order of the report; the theme's range `category` gives the colours."""
    import altair as alt

    return alt.Color("config:N", scale=alt.Scale(domain=list(names)), legend=None)


def config_shape(names: Sequence[str]) -> Any:
    import altair as alt

    return alt.Shape("config:N", scale=alt.Scale(domain=list(names)), legend=None)


def concurrency_axis(levels: Sequence[int]) -> Any:
    """Doubling levels at equal distances, a tick at each that was measured."""
    import altair as alt

    scale = alt.Scale(type="log", base=2, domain=[min(levels) / 1.15, max(levels) * 1.15], nice=False)
    axis = alt.Axis(values=sorted(set(levels)), format="d", labelOverlap="greedy")
    return alt.X("concurrency:Q", scale=scale, axis=axis, title="C, concurrent requests")


def value_axis(field: str, values: Sequence[float], *, title: str | None = None, channel: str = "y") -> Any:
    """From zero; logarithmic, from decade steps, where the values lie more than a factor of ten apart."""
    import altair as alt

    kind: Any = alt.Y if channel == "y" else alt.X
    if not is_wide(values):
        return kind(f"{field}:Q", scale=alt.Scale(domainMin=0, nice=True), axis=alt.Axis(tickCount=5), title=title)
    low, high = min(values), max(values)
    scale = alt.Scale(type="log", domain=[low / 1.3, high * 1.3], nice=False)
    axis = alt.Axis(values=round_ticks(low / 1.3, high * 1.3), format="~r", labelOverlap="greedy")
    return kind(f"{field}:Q", scale=scale, axis=axis, title=title)


def is_wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > WIDE_RATIO


def round_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every decade inside."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (m * 10.0**d for d in decades for m in (1, 2, 5))
    return [s for s in steps if low <= s <= high]


def framed(chart: Any, above: str, height: int) -> Any:
    """Full width, and the unit of the y axis in a line above the plot."""
    return chart.properties(width="container", height=height, title=above)
