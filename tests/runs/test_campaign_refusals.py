"""What a campaign refuses before a launch, what it does not try twice, and which servers it never joins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from campaign_lab import OUT_OF_MEMORY, SCENARIO, Lab

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.records.campaign import CampaignStatus, LaunchStatus
from dsv4bench.runs import campaign_sweep
from dsv4bench.server.group import PortTaken
from dsv4bench.store.campaigns import CampaignDir


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


# --- --resume and the environment ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        SCENARIO.replace("serve --port {port}", "serve ${MODEL:-small} --port {port}"),
        SCENARIO + "env: {WEIGHTS: 'at-${MODEL:-small}'}\n",
    ],
)
def test_other_variables_are_another_server(lab: Lab, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MODEL", "first")
    lab.scenario.write_text(text)
    begun = lab.run(blocks=2, stop_after_blocks=1)
    monkeypatch.setenv("MODEL", "second")
    for options in ({}, {"dry_run": True}):
        with pytest.raises(UsageError, match="began with other variables: MODEL was first, is second"):
            lab.run(resume=True, **options)
    monkeypatch.delenv("MODEL")
    with pytest.raises(UsageError, match="MODEL was first, is not set"):
        lab.run(resume=True)
    assert len(lab.launched) == 2
    monkeypatch.setenv("MODEL", "first")
    gone_on = lab.run(resume=True)
    assert gone_on.campaign is not None and begun.campaign is not None and gone_on.campaign.id == begun.campaign.id
    assert gone_on.campaign.status is CampaignStatus.COMPLETE


def test_the_campaign_of_these_variables_is_taken_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.scenario.write_text(SCENARIO.replace("serve --port {port}", "serve ${MODEL} --port {port}"))
    ids = {}
    for model in ("first", "second"):
        monkeypatch.setenv("MODEL", model)
        begun = lab.run(blocks=2, stop_after_blocks=1)
        assert begun.campaign is not None
        ids[model] = begun.campaign.id
    monkeypatch.setenv("MODEL", "first")
    gone_on = lab.run(resume=True)
    assert gone_on.campaign is not None and gone_on.campaign.id == ids["first"]


def test_a_secret_variable_is_not_kept_and_may_change(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz012345")
    lab.scenario.write_text(SCENARIO + "env: {HF_TOKEN: '${HF_TOKEN}'}\n")
    begun = lab.run(blocks=2, stop_after_blocks=1)
    assert begun.path is not None and "hf_abc" not in (Path(begun.path) / "campaign.json").read_text()
    monkeypatch.setenv("HF_TOKEN", "hf_zyxwvutsrqponmlkjihgfedcba543210")
    assert lab.run(resume=True).campaign is not None and len(lab.launched) == 4


# --- names of files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"), [("a+b", "a-b"), ("x" * 40 + "1", "x" * 40 + "2"), ("Fast", "fast"), ("both+mtp", "both-mtp")]
)
def test_names_that_look_alike_have_files_of_their_own(lab: Lab, one: str, other: str) -> None:
    lab.scenario.write_text(
        SCENARIO.replace("name: both", f"name: {one}")
        + f'  - {{name: {other}, parent: baseline, lever: other, launch: "serve --port {{port}}"}}\n'
    )
    lab.tok_s |= {one: 150.0, other: 160.0}
    lab.texts = {other: ["a", "x", "c", "d"]}
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.path is not None
    assert {p.config: p.same for p in result.campaign.parity} == {one: True, other: False}
    opened = CampaignDir.open(Path(result.path))
    stems = [opened.stem(c).lower() for c in ("baseline", one, other)]
    assert len(set(stems)) == 3 and stems[0] == "baseline"
    assert len(list(Path(result.path).glob("outputs-*.json"))) == 3


def test_a_name_alone_keeps_its_plain_file(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("name: both", "name: both+mtp"))
    lab.tok_s["both+mtp"] = 150.0
    result = lab.run(blocks=1)
    assert result.path is not None and (Path(result.path) / "outputs-both-mtp.json").is_file()


# --- before the first launch ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("concurrency: [8]", "concurrency: [100000000]", "open files"),
        ("concurrency: [8]", f"concurrency: [{10**400}]", "levels.concurrency"),
        ("isl: [1024]", f"isl: [{10**400}]", "workload.isl"),
        ("seed: 7", f"seed: {10**400}", "workload.seed"),
        ("concurrency: [8]", "concurrency: [8], repeat: 100000", "repeat 100000"),
        ("concurrency: [8]", "concurrency: [8], duration_s: 90000000", "duration"),
    ],
)
def test_what_a_sweep_would_refuse_is_refused_at_once(lab: Lab, old: str, new: str, said: str) -> None:
    lab.scenario.write_text(SCENARIO.replace(old, new))
    for options in ({}, {"dry_run": True}):
        with pytest.raises(UsageError, match=said) as refused:
            lab.run(**options)
        assert "lab.yaml" in refused.value.message
    assert lab.launched == [] and not lab.out.exists()


def test_a_profile_needs_its_files_as_well(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(campaign_sweep, "need_files", asked.append)
    lab.scenario.write_text(SCENARIO + "profile: {concurrency: [8, 64]}\n")
    lab.run(dry_run=True)
    assert asked == [64]


# --- the baseline ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [UsageError("no program serve"), PortTaken("port 8000 is taken by process 7", "end it")]
)
def test_what_only_the_user_can_mend_is_not_tried_twice(lab: Lab, wrong: UsageError) -> None:
    lab.fails["baseline"] = [wrong]
    result = lab.run(blocks=1)
    assert isinstance(result.error, UsageError) and result.error.exit_code == 2 and lab.launched == ["baseline"]
    assert result.error.message.startswith("the baseline could not be launched: ")
    assert result.campaign is not None and result.campaign.launches[0].status is LaunchStatus.FAILED
    assert lab.run(resume=True).error is None and lab.launched == ["baseline", "baseline", "both"]


def test_a_baseline_that_came_up_is_not_called_unlaunched(lab: Lab) -> None:
    lab.sweep_fails["baseline"] = [UsageError("ISL 1024 is longer than the model's 512")]
    result = lab.run(blocks=1)
    assert isinstance(result.error, UsageError) and result.error.exit_code == 2 and lab.launched == ["baseline"]
    assert "the baseline was launched and could not be measured: ISL 1024" in result.error.message


def test_a_crash_is_tried_twice_and_is_measured_bad(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("baseline", "plain"))
    lab.fails["plain"] = [OUT_OF_MEMORY, OUT_OF_MEMORY]
    result = lab.run(blocks=1)
    assert isinstance(result.error, MeasuredBad) and lab.launched == ["plain", "plain"]
    assert result.error.message.startswith("the baseline plain could not be launched: ")


# --- what is said at the start and at the end ---------------------------------------------------------------------


def test_another_campaign_in_the_same_folder_is_named(lab: Lab, tmp_path: Path) -> None:
    begun = lab.run(blocks=2, stop_after_blocks=1)
    assert begun.path is not None and not any("another campaign" in line for line in lab.said)
    with CampaignDir.resume(Path(begun.path)) as other:
        result = lab.run(blocks=1)
    named = f"another campaign is running in this results folder: {other.id}, process {os.getpid()}"
    assert sum(named in line for line in lab.said) == 1
    assert result.campaign is not None and any(named in note for note in result.campaign.notes)


def test_an_estimate_that_leaves_something_out_says_at_least(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("concurrency: [8]", "concurrency: [8], duration_s: 10"))
    assumed = lab.run(blocks=1, dry_run=True).plan
    assert assumed is not None and assumed.at_least and any("left out" in line for line in assumed.basis)
    lab.run(blocks=1)
    known = lab.run(blocks=1, dry_run=True).plan
    assert known is not None and not known.at_least and not any("left out" in line for line in known.basis)


def test_a_resumed_dry_run_has_the_campaign_s_seed(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace(", seed: 7", ""))
    begun = lab.run(blocks=2, stop_after_blocks=1)
    new, resumed = lab.run(blocks=2, dry_run=True).plan, lab.run(resume=True, dry_run=True).plan
    assert begun.campaign is not None and new is not None and resumed is not None
    assert new.seed is None and resumed.seed == begun.campaign.seed


def test_the_report_s_warnings_are_passed_on(lab: Lab) -> None:
    lab.report_warnings = ["report.html was not written: altair not installed"]
    result = lab.run(blocks=1)
    assert result.conclusion is not None and lab.report_warnings[0] in result.conclusion.warnings
    assert f"warning: {lab.report_warnings[0]}" in lab.said
