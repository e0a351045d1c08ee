"""report.html in a real browser: it asks for nothing, draws the data it was given, and can be read anywhere.

Playwright drives the Chromium that the system has. One file a report is written once; each test opens it anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import report_inputs as inputs

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import html, sections
from dsv4bench.report.page.blocks import Figure

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
    pytest.mark.skipif(bool(html.not_installed()), reason=f"not installed: {html.not_installed()}"),
    pytest.mark.timeout(400),
]
WAIT_MS = 120_000
RESULTS = Path(__file__).resolve().parents[2] / "results"
PAIR = ("20261130T065549Z-sweep-fallback-b7c5", "20261130T065519Z-sweep-optimized-2e98")


def stored_pair() -> ReportInput:
    """Two experiments of the repository, compared."""
    from dsv4bench.runs.compare import CompareOptions, run_compare
    from dsv4bench.runs.report import gather

    found = [gather(RESULTS, name).data for name in PAIR]
    options = CompareOptions(names=list(PAIR), root=str(RESULTS), keep=False)
    return ReportInput(
        campaign=None,
        experiments=[e for r in found for e in r.experiments],
        breakdowns=[b for r in found for b in r.breakdowns],
        verdict=run_compare(options).document,
    )


INPUTS: dict[str, Callable[[], ReportInput]] = {
    "whole": inputs.whole,
    "nothing": inputs.nothing,
    "hostile": inputs.hostile,
    "pair": stored_pair,
}


@dataclass
class Opened:
    """A page, and everything that must not happen in it."""

    page: Any
    wrong: list[str] = field(default_factory=list)

    def js(self, expression: str, argument: object = None) -> Any:
        return self.page.evaluate(expression, argument)

    def drawn(self, theme: str) -> None:
        self.page.wait_for_function("t => window.dsv4bench.drawn === t", arg=theme, timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        launched = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("reports")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(html.page(INPUTS[name]()), encoding="utf-8")
        return path

    return write


Open = Callable[..., AbstractContextManager[Opened]]


@pytest.fixture
def opened(browser: Any, written: Callable[[str], Path]) -> Open:
    @contextmanager
    def run(name: str, width: int = 1280, theme: str = "light", **context: Any) -> Iterator[Opened]:
        where = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **context)
        page = where.new_page()
        found = Opened(page)
        page.on("console", lambda m: found.wrong.append(f"console {m.type}: {m.text}"))
        page.on("pageerror", lambda e: found.wrong.append(f"page error: {e}"))
        page.on("dialog", lambda d: (found.wrong.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: _asked(found, r.url))
        page.goto(written(name).as_uri())
        if context.get("java_script_enabled", True):
            found.drawn(theme)
        try:
            yield found
            assert found.wrong == []
        finally:
            where.close()

    return run


def _asked(found: Opened, url: str) -> None:
    if not url.startswith(("file:", "data:")):
        found.wrong.append(f"request: {url}")


def figures(name: str) -> dict[str, Figure]:
    return {b.id: b for s in sections.sections(INPUTS[name]()) for b in s.blocks if isinstance(b, Figure)}


# --- data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["whole", "pair", "nothing", "hostile"])
def test_every_chart_is_drawn_from_its_rows(opened: Open, name: str) -> None:
    wanted = figures(name)
    with opened(name) as o:
        assert o.js("dsv4bench.failed") == []
        assert set(o.js("Object.keys(dsv4bench.views)")) == set(wanted)
        for f in wanted.values():
            for data, rows in f.rows.items():
                if rows:
                    got = o.js("([id, name]) => dsv4bench.views[id].data(name)", [f.id, data])
                    assert [{k: g[k] for k in row} for g, row in zip(got, rows, strict=True)] == [
                        dict(r) for r in rows
                    ]
            assert (
                o.js("id => document.querySelectorAll(`#chart-${id} svg [role='graphics-symbol']`).length", f.id) > 0
            )


MARKS = """id => {
  const view = dsv4bench.views[id], x = view.scale('x'), y = view.scale('y');
  return [...document.querySelectorAll(`#chart-${id} svg .mark-symbol path`)].map(p => {
    const [, px, py] = p.getAttribute('transform').match(/translate\\(([^,]+),([^)]+)\\)/);
    return [x.invert(+px), y.invert(+py)];
  });
}"""


@pytest.mark.parametrize("name", ["whole", "pair"])
@pytest.mark.parametrize("width", [1280, 390])
def test_marks_lie_where_the_cells_say(opened: Open, name: str, width: int) -> None:
    r = INPUTS[name]()
    cells = [c for d in r.experiments for c in d.cells]
    at = [f.id for f in figures(name).values() if f.id.startswith("throughput-")]
    with opened(name, width) as o:
        found = sorted(o.js(MARKS, at[0]))
        wanted = sorted([float(c.concurrency or 0), c.output_tok_s or 0.0] for c in cells)
        assert len(found) == len(wanted)
        assert [x for x, _ in found] == pytest.approx([x for x, _ in wanted], rel=1e-3)
        most = max(y for _, y in wanted)
        assert sorted(y for _, y in found) == pytest.approx(sorted(y for _, y in wanted), abs=2e-3 * most)


def test_bars_are_as_long_as_their_parts(opened: Open) -> None:
    first = "[...document.querySelectorAll('#chart-kernels-ms svg .mark-rect path')].map(p => p.getBBox().width)"
    with opened("whole") as o:
        widths = o.js(first)
        values = [row["value"] for row in figures("whole")["kernels-ms"].rows["parts"]]
        per_ms = max(widths) / max(values)
        assert widths == pytest.approx([v * per_ms for v in values], abs=0.01 * max(widths))


# --- readable ----------------------------------------------------------------------------------------------

TEXTS = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !e.checkVisibility() || ['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const css = getComputedStyle(e), svg = e.closest('svg');
    let under = e.parentElement, back = css.backgroundColor;
    while (under && back === 'rgba(0, 0, 0, 0)') {
      back = getComputedStyle(under).backgroundColor;
      under = under.parentElement;
    }
    const box = e.getBoundingClientRect();
    found.push({text, size: parseFloat(css.fontSize), colour: svg ? css.fill : css.color, back, svg: !!svg,
      left: box.left, right: box.right, on_part: !!e.closest('[id^=chart-kernels]') && !!e.closest('.mark-text')});
  }
  return found;
}"""


CHARTS = """() => [...document.querySelectorAll('.chart svg.marks')].map(s => {
  const box = s.getBoundingClientRect();
  return [box.left, box.right];
})"""
FITS = (
    "w => [...document.querySelectorAll('.chart svg.marks')].every(s => s.getBoundingClientRect().right <= w + 0.5)"
)


@pytest.mark.parametrize("name", ["whole", "pair", "nothing", "hostile"])
def test_it_can_be_read_wide_and_narrow_light_and_dark(opened: Open, name: str) -> None:
    with opened(name, 1280, "light") as o:
        readable(o, 1280)
        o.page.emulate_media(color_scheme="dark")
        o.drawn("dark")
        readable(o, 1280)
        o.page.set_viewport_size({"width": 390, "height": 900})
        o.page.wait_for_function(FITS, arg=390, timeout=WAIT_MS)
        readable(o, 390)
        o.page.emulate_media(color_scheme="light")
        o.drawn("light")
        readable(o, 390)


def readable(o: Opened, width: int) -> None:
    assert o.js("document.documentElement.scrollWidth") <= width
    assert [c for c in o.js(CHARTS) if c[0] < 0 or c[1] > width + 0.5] == []
    texts = o.js(TEXTS)
    assert len(texts) > 40
    assert [t["text"] for t in texts if t["size"] < 11] == []
    assert [t["text"] for t in texts if t["svg"] and (t["left"] < -0.5 or t["right"] > width + 0.5)] == []
    assert [t for t in texts if not t["on_part"] and contrast(t["colour"], t["back"]) < 4.5] == []


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of two CSS colours `rgb(r, g, b)`."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [float(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_reader_of_contrast_sees_a_bad_one() -> None:
    assert contrast("rgb(255, 255, 255)", "rgb(0, 0, 0)") == pytest.approx(21)
    assert contrast("rgb(150, 150, 150)", "rgb(255, 255, 255)") < 4.5


COLOURS = """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
  getComputedStyle(document.querySelector('.chart svg.marks text')).fill]"""


def test_the_theme_follows_the_button_and_the_system(opened: Open) -> None:
    with opened("whole", 1280, "light") as o:
        light = o.js(COLOURS)
        o.page.focus("#theme")
        o.page.keyboard.press("Enter")
        o.drawn("dark")
        dark = o.js(COLOURS)
        assert all(a != b for a, b in zip(light, dark, strict=True))
        assert o.page.inner_text("#theme") == "Light theme"
        o.page.click("#theme")
        o.drawn("light")
        assert o.js(COLOURS) == light
    with opened("whole", 1280, "light") as o:
        o.page.emulate_media(color_scheme="dark")
        o.drawn("dark")
        assert o.js(COLOURS) == dark


def test_the_keyboard_reaches_the_skip_link_first_and_then_everything(opened: Open) -> None:
    with opened("whole") as o:
        o.page.keyboard.press("Tab")
        assert o.js("document.activeElement.textContent") == "To the bottom line"
        o.page.keyboard.press("Tab")
        assert o.js("document.activeElement.id") == "theme"
        wide = "[...document.querySelectorAll('.scroll, pre')].filter(e => e.tabIndex < 0).length"
        assert o.js(wide) == 0
        levels = o.js("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))


def test_every_chart_has_its_numbers_in_a_table_and_a_name(opened: Open) -> None:
    with opened("whole") as o:
        cells = o.js(
            "[...document.querySelectorAll('figure')].map(f => f.querySelectorAll('details table td').length)"
        )
        assert len(cells) == len(figures("whole")) and min(cells) > 2
        names = o.js("[...document.querySelectorAll('.chart')].map(c => c.getAttribute('aria-label') || '')")
        assert names == [f"{f.title}. {f.see}" for f in figures("whole").values()]


def test_a_narrow_window_that_grows_redraws(opened: Open) -> None:
    width = "document.querySelector('.chart svg.marks').getBoundingClientRect().width"
    with opened("whole", 390) as o:
        before = o.js(width)
        o.page.set_viewport_size({"width": 1280, "height": 900})
        o.page.wait_for_function(f"before => {width} > before + 20", arg=before, timeout=WAIT_MS)


# --- hostile -----------------------------------------------------------------------------------------------


def test_hostile_text_does_nothing_and_is_shown_as_it_is(opened: Open) -> None:
    with opened("hostile") as o:
        assert o.js("document.querySelectorAll('img, iframe, [onerror]').length") == 0
        assert inputs.HOSTILE in o.page.inner_text("h1")
        assert any(inputs.HOSTILE in t["text"] for t in o.js(TEXTS))
        o.page.hover("#chart-pareto-1024 .mark-symbol path >> nth=0", force=True)
        tip = o.page.wait_for_selector("#vg-tooltip-element.visible", timeout=WAIT_MS)
        assert inputs.HOSTILE in tip.inner_text()
        assert o.js("document.querySelectorAll('img').length") == 0


def test_the_policy_stops_what_would_get_through(opened: Open) -> None:
    """A script and a request put into the page by hand: the browser refuses both, and says so."""
    with opened("nothing") as o:
        o.js(
            """() => {
              const s = document.createElement('script'); s.textContent = 'window.through = 1';
              document.body.append(s);
              const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i);
            }"""
        )
        o.page.wait_for_timeout(200)
        assert o.js("window.through === undefined")
        refused = [w for w in o.wrong if "Content Security Policy" in w]
        asked = [w for w in o.wrong if w.startswith("request: ")]  # asked for by the page, and never sent
        assert len(refused) == 2 and len(asked) == 1 and len(o.wrong) == 3
        o.wrong.clear()


def test_without_scripts_the_tables_still_say_it(opened: Open) -> None:
    with opened("whole", java_script_enabled=False) as o:
        assert o.page.locator("noscript").count() == 1
        o.page.click("figure summary >> nth=0")
        assert o.page.locator("figure details table").first.is_visible()
