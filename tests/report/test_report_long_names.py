"""Configurations with names of three hundred letters, in a real browser: no text is drawn over another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_inputs as inputs
from test_report_in_chromium import CHROMIUM, WAIT_MS, playwright

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import html

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
    pytest.mark.skipif(bool(html.not_installed()), reason=f"not installed: {html.not_installed()}"),
    pytest.mark.timeout(400),
]
LONG = {name: name + "x" * (300 - len(name)) for name in inputs.LAWS}
OVER = """() => [...document.querySelectorAll('td, th')].filter(e => e.checkVisibility())
  .filter(e => { const r = document.createRange(); r.selectNodeContents(e);
    return r.getBoundingClientRect().right > e.getBoundingClientRect().right + 1; })
  .map(e => e.textContent.slice(0, 40))"""
LABELS = """() => [...document.querySelectorAll('.chart svg.marks text')]
  .map(t => [t.textContent, t.getBoundingClientRect().width])"""


def long_named() -> ReportInput:
    renamed = inputs._renamed(msgspec.to_builtins(inputs.whole()), LONG)
    return msgspec.convert(renamed, ReportInput)


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_stay_in_their_cells_and_charts(tmp_path: Path, width: int) -> None:
    path = tmp_path / "long.html"
    path.write_text(html.page(long_named()), encoding="utf-8")
    with playwright.sync_playwright() as p:
        browser: Any = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(path.as_uri())
            page.wait_for_function("() => window.dsv4bench.drawn === 'light'", timeout=WAIT_MS)
            page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OVER) == []
            drawn = page.evaluate(LABELS)
            assert any("…" in text for text, _ in drawn)
            assert max(w for _, w in drawn) < 0.9 * width
            assert not any("xxxxx" in text and w > 160 for text, w in drawn)
        finally:
            browser.close()
