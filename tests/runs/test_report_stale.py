"""A report never puts new cells beside verdicts that were made from other ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from campaign_lab import Lab

from dsv4bench.records.campaign import CampaignStatus, ReportInput
from dsv4bench.report.campaign_markdown import markdown
from dsv4bench.runs import report
from dsv4bench.runs.campaign_begin import as_resumed
from dsv4bench.runs.report import build_report  # as it is, whatever the lab plays
from dsv4bench.store.campaigns import CampaignDir


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def ran(lab: Lab, **options: object) -> Path:
    path = lab.run(**options).path
    assert path is not None
    return Path(path)


def written(folder: Path, **fields: object) -> None:
    with CampaignDir.resume(folder) as opened:
        opened.write(msgspec.structs.replace(opened.campaign, **fields))


def drawn(lab: Lab, folder: Path) -> ReportInput:
    return report.gather(lab.out, folder.name).data


def test_a_comparison_of_these_cells_is_taken_as_it_is(lab: Lab) -> None:
    r = drawn(lab, ran(lab, blocks=4))
    assert r.verdict is not None and r.campaign is not None and r.verdict.id == r.campaign.verdict
    assert r.cautions == [] and r.warnings == []


def test_launches_added_since_bring_a_comparison_made_anew(lab: Lab) -> None:
    folder = ran(lab, blocks=4)
    old = CampaignDir.open(folder).campaign.verdict
    ran(lab, blocks=6, resume=True)
    written(folder, verdict=old)
    stored = sorted((lab.out / "verdicts").iterdir())
    r = drawn(lab, folder)
    assert r.verdict is not None and {v.n_base for v in r.verdict.cells} == {6}
    (said,) = r.cautions
    assert said.startswith("the stored comparison was made from other cells; the verdicts here were made")
    assert said in build_report(lab.out, folder.name).warnings
    assert said in markdown(r) and f"could not be read: {said}" not in markdown(r)
    assert sorted((lab.out / "verdicts").iterdir()) == stored  # nothing is stored by drawing a report


def test_an_edited_cell_is_no_longer_what_was_compared(lab: Lab) -> None:
    folder = ran(lab, blocks=1)
    cells = next(e.path for e in lab.experiments() if e.experiment.config == "both") / "cells.jsonl"
    cells.write_text(cells.read_text().replace('"output_tok_s":150', '"output_tok_s":300'))
    r = drawn(lab, folder)
    assert r.cautions and "made from other cells" in r.cautions[0]


def test_where_no_comparison_can_be_made_there_is_none(lab: Lab) -> None:
    folder = ran(lab, blocks=4)
    old = CampaignDir.open(folder).campaign.verdict
    ran(lab, blocks=6, resume=True)
    written(folder, verdict=old)
    (folder / "scenario.yaml").unlink()
    r = drawn(lab, folder)
    assert r.verdict is None
    said = f"the stored comparison was made from other cells: run dsv4bench compare {folder.name} ("
    assert r.cautions[0].startswith(said)


def test_taken_up_for_more_launches_a_campaign_has_no_verdict(lab: Lab) -> None:
    folder = ran(lab, blocks=1)
    c = CampaignDir.open(folder).campaign
    assert c.verdict is not None and as_resumed(c, CampaignStatus.COMPLETE, 2).verdict is None
    assert as_resumed(c, CampaignStatus.COMPLETE, None).verdict == c.verdict
    lab.sweep_fails["both"] = [KeyboardInterrupt()]
    assert lab.run(resume=True, blocks=2).interrupted
    r = drawn(lab, folder)
    assert r.verdict is not None and r.cautions[0].startswith("no comparison is stored; the verdicts here were made")
