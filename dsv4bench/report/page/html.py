"""report.html: one file that needs no network, in both themes, with every chart's numbers in a table beside it.

The page forbids itself any request and any script but its own (a Content-Security-Policy with their hashes); Vega's
expressions are interpreted, not compiled, so that no `eval` is allowed either. Foreign text is escaped by the
template, and in the charts' JSON every `<`, `>` and `&` is written as an escape.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import json
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import Any

from dsv4bench import __version__
from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import sections, theme
from dsv4bench.report.page.blocks import Block, Figure, Fold, Lines, Section, Table

NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}
INSTALL = "pip install 'dsv4bench[report]'"
BUNDLE = "window.vegaEmbed = vegaEmbed;"  # what the page calls
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "page.css.j2", "page.js"
# paths in a box from -8 to 8, one a shape of the theme
GLYPHS = {
    "circle": "M6,0A6,6,0,1,1,-6,0A6,6,0,1,1,6,0",
    "square": "M-5.5,-5.5H5.5V5.5H-5.5Z",
    "triangle-up": "M0,-6.5L6.5,5.5H-6.5Z",
    "diamond": "M0,-7L6,0L0,7L-6,0Z",
    "cross": "M-2.2,-6.5H2.2V-2.2H6.5V2.2H2.2V6.5H-2.2V2.2H-6.5V-2.2H-2.2Z",
    "triangle-down": "M0,6.5L6.5,-5.5H-6.5Z",
    "triangle-right": "M6.5,0L-5.5,-6.5V6.5Z",
    "triangle-left": "M-6.5,0L5.5,-6.5V6.5Z",
}


def not_installed() -> list[str]:
    """The packages of the extra `report` that are not here; none: a page can be made."""
    return [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]


def page(r: ReportInput) -> str:
    """The whole file. Needs the extra `report`; see `not_installed`."""
    import jinja2
    from markupsafe import Markup

    found = sections.sections(r)
    figures = [b for s in found for b in s.blocks if isinstance(b, Figure)]
    library, own = script_text(_library()), script_text(_file(SCRIPT))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests.update(
        {
            "table": lambda b: isinstance(b, Table),
            "lines": lambda b: isinstance(b, Lines),
            "fold": lambda b: isinstance(b, Fold),
            "figures": lambda b: isinstance(b, list),
        }
    )
    style = environment.from_string(_file(STYLE)).render(light=theme.LIGHT, dark=theme.DARK, font=theme.FONT)
    return environment.from_string(_file(TEMPLATE)).render(
        title=sections.title(r),
        subtitle=sections.subtitle(r),
        sections=[(s, _grouped(s)) for s in found],
        policy=_policy(library, own),
        style=Markup(style),
        library=Markup(library),
        script=Markup(own),
        charts=Markup(charts_json(figures)),
        shapes=theme.ALL_SHAPES,
        glyphs=GLYPHS,
        n_configs=len(theme.LIGHT.configs),
        version=__version__,
    )


def charts_json(figures: Sequence[Figure]) -> str:
    """Both themes and every chart's Vega-Lite document, safe inside a script element."""
    document = {
        "themes": {t.name: theme.vega_config(t) for t in (theme.LIGHT, theme.DARK)},
        "charts": {f.id: _spec(f) for f in figures},
    }
    raw = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def script_text(source: str) -> str:
    """JavaScript that cannot end its own element, whatever strings it holds."""
    return source.replace("</script", "<\\/script").replace("<!--", "\\x3c!--")


def _spec(f: Figure) -> dict[str, Any]:
    spec: dict[str, Any] = f.draw(f.rows).to_dict()
    spec.pop("config", None)  # the theme's
    return {**spec, "description": f"{f.title}. {f.see}"}


def _policy(*scripts: str) -> str:
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{d}'" for d in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _grouped(s: Section) -> list[Block | list[Figure]]:
    """Neighbouring figures together, so that two may stand side by side."""
    found: list[Block | list[Figure]] = []
    for is_figure, run in groupby(s.blocks, key=lambda b: isinstance(b, Figure)):
        if is_figure:
            found.append([b for b in run if isinstance(b, Figure)])
        else:
            found += list(run)
    return found


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs nothing else."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(BUNDLE)
    return bundle


def _file(name: str) -> str:
    return resources.files("dsv4bench.report.page").joinpath(name).read_text(encoding="utf-8")
