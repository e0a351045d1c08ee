"""The colours of a report, light and dark: one source for the page's style sheet and for the charts' configuration.

Colours of configurations are told apart by people with any common colour vision, and keep 3:1 against the page;
each has a shape as well. Colours of parts of a bar keep 4.5:1 against the label written on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
# where the colours begin again, the shapes begin one later, so that colour and shape together tell 64 apart
ALL_SHAPES = tuple(SHAPES[(i + i // len(SHAPES)) % len(SHAPES)] for i in range(len(SHAPES) ** 2))


@dataclass(frozen=True, slots=True)
class Theme:
    """`page`, `panel`, `ink`, `soft` (secondary text), `line`: CSS colours. `configs` and `parts` are drawn with."""

    name: str
    page: str
    panel: str
    ink: str
    soft: str
    line: str
    link: str
    on_part: str
    configs: tuple[str, ...]
    parts: tuple[str, ...]
    grey_parts: tuple[str, ...]  # overlap, copies, idle


LIGHT = Theme(
    name="light",
    page="#ffffff",
    panel="#f6f7f9",
    ink="#1a1f26",
    soft="#56606c",
    line="#d9dee4",
    link="#0b5cad",
    on_part="#ffffff",
    configs=("#4a525c", "#0069b4", "#c8500a", "#007f5f", "#a8458c", "#8a6a00", "#5b4bc4", "#b3323f"),
    parts=("#2b5c8a", "#9c4a1a", "#2f6f57", "#7b4479", "#6b5f1d", "#3f6f7d", "#8a3f4f", "#545b80"),
    grey_parts=("#59616a", "#646c75", "#6e767f"),
)
DARK = Theme(
    name="dark",
    page="#12161c",
    panel="#1a2028",
    ink="#e6eaef",
    soft="#a4afbb",
    line="#333c47",
    link="#7db8f0",
    on_part="#12161c",
    configs=("#b4bdc8", "#5cb3f2", "#f58f4d", "#35c79b", "#e38fcb", "#dcb634", "#a99cf5", "#f08088"),
    parts=("#83b3dd", "#e0a078", "#86c7ab", "#cfa0cc", "#c9bc70", "#95c3d0", "#dd9aa8", "#a9b0d6"),
    grey_parts=("#a0a9b3", "#939ca6", "#8d96a0"),
)


def vega_config(t: Theme) -> dict[str, Any]:
    """What a chart takes from the theme. Scales name the ranges: `category` configurations, `ordinal` parts."""
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
        "axis": {
            "labelColor": t.soft,
            "titleColor": t.soft,
            "gridColor": t.line,
            "domainColor": t.line,
            "tickColor": t.line,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelPadding": 4,
            "titlePadding": 8,
            "tickSize": 4,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "title": {"color": t.soft, "fontSize": 12, "fontWeight": "normal", "anchor": "start", "frame": "bounds"},
        "text": {"fontSize": 12, "font": FONT},
        "rule": {"color": t.soft},
        "point": {"size": 60, "strokeWidth": 1.5},
        "line": {"strokeWidth": 2},
        "range": {
            "category": list(t.configs),
            "ordinal": [*t.parts, *t.grey_parts],
            "symbol": list(ALL_SHAPES),
        },
        "style": {"on-part": {"color": t.on_part}, "soft": {"color": t.soft}, "ink": {"color": t.ink}},
    }
