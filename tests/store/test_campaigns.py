"""The folder of a campaign: written whole, by one process, readable after a kill, and closed to newer versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv4bench.errors import SchemaError, StoreError
from dsv4bench.records.campaign import Campaign, CampaignStatus, LaunchNote, LaunchStatus
from dsv4bench.store import campaigns, files
from dsv4bench.store.campaigns import CampaignDir, campaign_id, find, list_all, sha256_of
from dsv4bench.store.store import Store

SCENARIO = "name: lab\n# a comment\n"


def make(name: str = "lab", **fields: Any) -> Campaign:
    known: dict[str, Any] = {
        "id": campaign_id(name),
        "name": name,
        "status": CampaignStatus.RUNNING,
        "scenario_sha256": sha256_of(SCENARIO),
        "started_utc": "2026-12-01T00:00:00.000Z",
        "baseline": "baseline",
        "configs": ["baseline"],
        "blocks": 1,
        "seed": 7,
        "launches": [LaunchNote(order=i, block=0, config="baseline") for i in range(2)],
    }
    return Campaign(**{**known, **fields})


def test_what_was_written_is_read_and_the_scenario_lies_beside_it(tmp_path: Path) -> None:
    campaign = make()
    with CampaignDir.begin(tmp_path / "results", campaign, SCENARIO) as opened:
        opened.change_launch(1, status=LaunchStatus.COMPLETE, experiment="e1")
        opened.add_notes("one", "one", "two")
        opened.add_notes("two")
        opened.write_outputs("a/b", b"{}")
        assert opened.logs.is_dir() and opened.read_outputs("a/b") == b"{}" and opened.read_outputs("c") is None
    read = CampaignDir.open(opened.path).campaign
    assert [(n.status, n.experiment) for n in read.launches] == [("pending", None), ("complete", "e1")]
    assert read.notes == ["one", "two"] and (opened.path / "scenario.yaml").read_text() == SCENARIO
    assert opened.path.name == campaign.id and Store(tmp_path / "results").list() == []  # no experiment


def test_running_without_a_holder_was_killed(tmp_path: Path) -> None:
    opened = CampaignDir.begin(tmp_path, make(), SCENARIO)
    assert CampaignDir.open(opened.path).campaign.status is CampaignStatus.RUNNING
    opened.close()
    found = CampaignDir.open(opened.path).campaign
    assert found.status is CampaignStatus.ABORTED and found.reason is not None and "killed" in found.reason
    assert json.loads((opened.path / "campaign.json").read_text())["status"] == "running"  # reading never writes


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        CampaignDir.begin(tmp_path, make(), SCENARIO) as opened,
        pytest.raises(StoreError, match="is writing here"),
    ):
        CampaignDir.resume(opened.path)
    with CampaignDir.resume(opened.path) as again:
        again.update(status=CampaignStatus.COMPLETE)
    with pytest.raises(StoreError, match="open for reading only"):
        CampaignDir.open(opened.path).update(reason="x")


def test_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    with CampaignDir.begin(tmp_path, make(), SCENARIO) as opened:
        pass
    file = opened.path / "campaign.json"
    file.write_text(file.read_text().replace("dsv4bench.campaign/1", "dsv4bench.campaign/2"))
    with pytest.raises(SchemaError, match=r"dsv4bench\.campaign/2, this dsv4bench reads dsv4bench\.campaign up to"):
        CampaignDir.open(opened.path)
    warnings: list[str] = []
    assert list_all(tmp_path, warnings) == [] and len(warnings) == 1 and "campaign/2" in warnings[0]


def test_an_unknown_field_is_no_fault(tmp_path: Path) -> None:
    with CampaignDir.begin(tmp_path, make(), SCENARIO) as opened:
        pass
    file = opened.path / "campaign.json"
    file.write_text(file.read_text().replace("{", '{"later": 1,', 1))
    assert CampaignDir.open(opened.path).campaign.name == "lab"


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CampaignDir.begin(tmp_path, make(), SCENARIO) as opened:
        before = (opened.path / "campaign.json").read_bytes()

        def full(fd: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files, "write_all", full)
        with pytest.raises(StoreError, match="No space left on device; the launches that ended are safe"):
            opened.update(reason="x")
        assert (opened.path / "campaign.json").read_bytes() == before and opened.campaign.reason is None
    assert sorted(p.name for p in opened.path.iterdir()) == ["campaign.json", "logs", "scenario.yaml"]


def test_a_folder_that_cannot_be_begun_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, safe: object = None) -> None:
        raise StoreError("cannot write")

    monkeypatch.setattr(campaigns.files, "write_whole", full)
    with pytest.raises(StoreError):
        CampaignDir.begin(tmp_path, make(), SCENARIO)
    assert list(tmp_path.iterdir()) == []


def test_campaigns_are_found_by_id_and_folder_and_listed_oldest_first(tmp_path: Path) -> None:
    made = []
    for day in (2, 1):
        campaign = make(started_utc=f"2026-12-0{day}T00:00:00.000Z", status=CampaignStatus.COMPLETE)
        with CampaignDir.begin(tmp_path, campaign, SCENARIO) as opened:
            made.append(opened)
    assert [d.id for d in list_all(tmp_path, [])] == [made[1].id, made[0].id]
    assert find(tmp_path, made[0].id) == tmp_path / made[0].id == find("elsewhere", str(made[0].path))
    assert find(tmp_path, "baseline") is None and find(tmp_path, "") is None


def test_a_campaigns_name_finds_the_newest_of_that_name(tmp_path: Path) -> None:
    ids = {
        "old": "20261201T000000Z-lab-aaaa",
        "new": "20261202T000000Z-lab-0000",
        "x": "20261203T000000Z-lab-two-0000",
    }
    for key, name in (("new", "lab"), ("old", "lab"), ("x", "lab-two")):
        with CampaignDir.begin(tmp_path, make(name, id=ids[key]), SCENARIO):
            pass
    damaged = tmp_path / "20261209T000000Z-lab-ffff"
    damaged.mkdir()
    (damaged / "campaign.json").write_text("{")
    assert find(tmp_path, "lab") == tmp_path / ids["new"]
    assert find(tmp_path, "lab-two") == tmp_path / ids["x"] and find(tmp_path, "la") is None


def test_secrets_are_hidden_before_anything_is_written(tmp_path: Path) -> None:
    token = "hf_abcdefghijklmnopqrstuvwxyz012345"
    launch = LaunchNote(
        order=0, block=0, config="baseline", command=["serve", "--api-key", token], log_tail=f"HF_TOKEN={token}"
    )
    with CampaignDir.begin(tmp_path, make(launches=[launch]), SCENARIO) as opened:
        opened.add_notes(f"Authorization: Bearer {token}")
    assert token not in (opened.path / "campaign.json").read_text()
    assert opened.campaign.launches[0].command == ["serve", "--api-key", "***"]


def test_ids_are_safe_names(tmp_path: Path) -> None:
    assert "/" not in campaign_id("a/../b c") and campaign_id("lab") != campaign_id("lab")
    assert msgspec.json.encode(make())  # every field has a plain form
