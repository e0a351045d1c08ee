"""`report`: from what git holds of an experiment or a campaign to its two files, and what is said of what is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsv4bench.cli.main import app
from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.campaign import Campaign, CampaignStatus, LaunchNote, LaunchStatus, ProfileNote
from dsv4bench.records.codec import encode
from dsv4bench.report.page import html
from dsv4bench.runs import report
from dsv4bench.runs.compare import CompareOptions, run_compare

RESULTS = Path(__file__).resolve().parents[2] / "results"
FALLBACK, OPTIMIZED = "20261130T065549Z-sweep-fallback-b7c5", "20261130T065519Z-sweep-optimized-2e98"
CAMPAIGN = "20261201T000000Z-kernels-00aa"
needs_extra = pytest.mark.skipif(bool(html.not_installed()), reason=f"not installed: {html.not_installed()}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone's results: two experiments without their bulky files, their comparison, and the campaign they were."""
    results = tmp_path / "results"
    for name in (FALLBACK, OPTIMIZED):
        shutil.copytree(RESULTS / name, results / name)
    verdict = run_compare(CompareOptions(names=[FALLBACK, OPTIMIZED], root=str(results))).document
    write_campaign(results, verdict.id)
    return results


def write_campaign(results: Path, verdict: str | None, name: str = CAMPAIGN) -> None:
    launches = [
        LaunchNote(order=1, block=1, config="fallback", status=LaunchStatus.COMPLETE, experiment=FALLBACK),
        LaunchNote(order=2, block=1, config="optimized", status=LaunchStatus.COMPLETE, experiment=OPTIMIZED),
        LaunchNote(order=3, block=2, config="optimized", status=LaunchStatus.FAILED, reason="it did not come up"),
    ]
    campaign = Campaign(
        id=name,
        name="kernels",
        status=CampaignStatus.PARTIAL,
        scenario_sha256="00" * 32,
        started_utc="2026-12-01T00:00:00Z",
        baseline="fallback",
        configs=["fallback", "optimized"],
        blocks=2,
        seed=1,
        launches=launches,
        profiles=[ProfileNote(config="fallback", experiment=FALLBACK, method="torch")],
        verdict=verdict,
    )
    (results / name).mkdir()
    (results / name / "campaign.json").write_bytes(encode(campaign))


def test_a_campaign_is_gathered_from_its_launches_profiles_and_comparison(root: Path) -> None:
    found = report.gather(root, CAMPAIGN)
    assert found.folder == root / CAMPAIGN
    r = found.data
    assert [d.experiment.id for d in r.experiments] == [FALLBACK, OPTIMIZED]
    assert all(len(d.cells) == 6 and d.series is not None for d in r.experiments)
    assert sorted((b.config, b.concurrency) for b in r.breakdowns) == [("fallback", 16), ("optimized", 16)]
    assert r.verdict is not None and r.verdict.baseline == "fallback"
    assert r.warnings == []


@needs_extra
def test_both_files_lie_beside_campaign_json(root: Path) -> None:
    path = report.build_report(root, CAMPAIGN).html
    assert path is not None
    assert path == root / CAMPAIGN / "report.html"
    page, short = path.read_text(), (root / CAMPAIGN / "report.md").read_text()
    for text in (page, short):
        assert "it did not come up" in text and "268.0" in text
    assert "vegaEmbed" in page and page.rstrip().endswith("</html>")


def test_an_experiment_has_its_law_and_no_verdict(root: Path) -> None:
    r = report.gather(root, FALLBACK).data
    assert r.campaign is None and len(r.experiments) == 1
    assert r.verdict is not None and r.verdict.cells == []
    assert r.verdict.scaling is not None and r.verdict.scaling.laws[0].config == "fallback"
    assert report.gather(root, "20261130T065549Z").folder == root / FALLBACK
    assert report.gather(root, str(root / FALLBACK)).folder == root / FALLBACK
    assert report.gather(root, "optimized").folder == root / OPTIMIZED


def test_what_cannot_be_read_is_said_in_the_report(root: Path) -> None:
    (root / OPTIMIZED / "kernels.json").write_text("{")
    (root / OPTIMIZED / "series.json").unlink()
    shutil.rmtree(root / FALLBACK)
    shutil.rmtree(root / "verdicts")
    written = report.build_report(root, CAMPAIGN)
    said = "\n".join(written.warnings)
    assert "kernels.json: not a dsv4bench.breakdowns/1 document" in said
    assert FALLBACK in said and "no such verdict" in said
    text = written.markdown.read_text()
    assert text.count("could not be read") == len(written.warnings)
    assert "No comparison is stored for this campaign" in text


def test_a_torn_last_line_is_dropped_and_said(root: Path) -> None:
    with (root / FALLBACK / "cells.jsonl").open("a") as f:
        f.write('{"cell": "r0-c64')
    r = report.gather(root, FALLBACK).data
    assert len(r.experiments[0].cells) == 6 and any(FALLBACK in w for w in r.warnings)


def test_nothing_of_that_name(root: Path) -> None:
    with pytest.raises(StoreError, match="nothing is called nowhere"):
        report.gather(root, "nowhere")
    write_campaign(root, None, "20261201T000000Z-kernels-00ab")
    with pytest.raises(UsageError, match="begins 2 campaigns"):
        report.gather(root, "20261201T000000Z")


def test_without_the_extra_there_is_markdown_and_a_line_on_what_to_install(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "NEEDED", {"no_such_module_here": "altair"})
    written = report.build_report(root, CAMPAIGN)
    assert (written.html, written.markdown) == (None, root / CAMPAIGN / "report.md")
    assert not (root / CAMPAIGN / "report.html").exists()
    done = CliRunner().invoke(app, ["report", CAMPAIGN, "--out", str(root)])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "warning: report.html was not written: altair not installed; pip install 'dsv4bench[report]'"
    ]
    assert done.stdout.strip() == str(root / CAMPAIGN / "report.md")


@needs_extra
def test_a_library_that_fails_costs_the_page_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise RuntimeError("no bundle\nand a long stack")

    monkeypatch.setattr(html, "_library", broken)
    written = report.build_report(root, CAMPAIGN)
    assert written.html is None and written.markdown.exists()
    assert written.warnings == ["report.html was not written: no bundle"]


@needs_extra
def test_the_verb_prints_where_the_files_are(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "shown.html"
    done = CliRunner().invoke(app, ["report", FALLBACK, "--out", str(root), "--file", str(out)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [str(out), str(tmp_path / "shown.md")]
    assert out.exists() and not (root / FALLBACK / "report.html").exists()
    done = CliRunner().invoke(app, ["report", FALLBACK, "--out", str(root), "--file", str(out), "--json"])
    document = json.loads(done.stdout)
    assert document == {
        "schema": "dsv4bench.report/1",
        "html": str(out),
        "markdown": str(tmp_path / "shown.md"),
        "warnings": [],
    }
    with pytest.raises(StoreError, match="there is no such folder"):
        report.build_report(root, FALLBACK, tmp_path / "nowhere" / "x.html")
