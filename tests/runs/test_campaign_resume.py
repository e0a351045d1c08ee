"""A campaign that was stopped, in whatever way, goes on where it was; predictions and profiles are made once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaign_lab import SCENARIO, Killed, Lab

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.campaign import CampaignStatus, LaunchStatus
from dsv4bench.records.verdict import Grade
from dsv4bench.runs.compare import CompareOptions, run_compare
from dsv4bench.runs.findings import check_findings, write_findings
from dsv4bench.runs.predictions import read_ledger
from dsv4bench.store import verdict_files
from dsv4bench.store.campaigns import CampaignDir

PREDICTION = """predictions:
  - {config: both, concurrency: 8, low_ratio: 1.4, high_ratio: 1.6, why: "half of the step is experts"}
"""
PROFILE = "profile: {concurrency: [8]}\n"
ORDER = ["baseline", "both", "both", "baseline"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def test_ctrl_c_puts_the_launch_back_and_resume_repeats_it(lab: Lab) -> None:
    lab.sweep_fails["both"] = [None, KeyboardInterrupt()]
    first = lab.run(blocks=2)
    c = first.campaign
    assert first.interrupted and c is not None and c.status is CampaignStatus.ABORTED and first.conclusion is None
    assert [n.status for n in c.launches] == [LaunchStatus.COMPLETE] * 2 + [LaunchStatus.PENDING] * 2
    assert lab.stopped == lab.launched == ORDER[:3]
    second = lab.run(resume=True)
    assert second.campaign is not None and second.campaign.id == c.id and second.campaign.resumed == 1
    assert second.campaign.status is CampaignStatus.COMPLETE and lab.launched == [*ORDER[:3], *ORDER[2:]]
    repeated = second.campaign.launches[2]
    assert repeated.attempt == 2 and repeated.notes == ["attempt 1 was cut short: its part is not used"]
    used = {n.experiment for n in second.campaign.launches}
    assert len(used) == 4 and len(lab.experiments()) == 5  # the partial one is kept, and not used
    assert "1 of 4 launches" not in "".join(lab.said) and any("2 remain, from block 2 on" in s for s in lab.said)


def test_a_kill_in_the_middle_reads_as_aborted_and_goes_on(lab: Lab) -> None:
    lab.sweep_fails["both"] = [Killed()]
    with pytest.raises(Killed):
        lab.run(blocks=2)
    (folder,) = [p.parent for p in lab.out.glob("*/campaign.json")]
    raw = json.loads((folder / "campaign.json").read_text())
    assert raw["status"] == "running" and raw["launches"][1]["status"] == "running"
    assert CampaignDir.open(folder).campaign.status is CampaignStatus.ABORTED
    result = lab.run(resume=True)
    assert result.campaign is not None and result.campaign.status is CampaignStatus.COMPLETE
    assert result.campaign.launches[1].attempt == 2


def test_a_full_disk_is_one_error_and_loses_nothing(lab: Lab) -> None:
    lab.sweep_fails["both"] = [StoreError("cannot write cells.jsonl: No space left on device", "free some space")]
    first = lab.run(blocks=2)
    assert isinstance(first.error, StoreError) and first.conclusion is None and lab.launched == ORDER[:2]
    assert first.campaign is not None and first.campaign.status is CampaignStatus.ABORTED
    assert [n.status for n in first.campaign.launches] == [LaunchStatus.COMPLETE] + [LaunchStatus.PENDING] * 3
    second = lab.run(resume=True)
    assert second.campaign is not None and second.campaign.status is CampaignStatus.COMPLETE


def test_a_changed_scenario_is_refused_with_what_differs(lab: Lab) -> None:
    lab.run(blocks=2, stop_after_blocks=1)
    lab.scenario.write_text(SCENARIO.replace("osl: 256", "osl: 128"))
    with pytest.raises(UsageError, match=r"has changed since .*osl: 256.*osl: 128"):
        lab.run(resume=True)
    assert lab.launched == ORDER[:2]


def test_blocks_by_blocks_on_a_machine_that_is_lent_for_a_short_time(lab: Lab) -> None:
    first = lab.run(blocks=4, stop_after_blocks=1)
    assert first.campaign is not None and first.campaign.status is CampaignStatus.PAUSED
    assert first.error is None and not first.interrupted and first.conclusion is not None
    assert first.conclusion.document is not None and {v.grade for v in first.conclusion.document.cells} == {Grade.E0}
    second = lab.run(resume=True, stop_after_launches=1)
    assert second.campaign is not None and lab.launched == ORDER[:3]
    third = lab.run(resume=True)
    assert third.campaign is not None and third.campaign.status is CampaignStatus.COMPLETE
    assert lab.launched == ORDER * 2 and third.conclusion is not None and third.conclusion.document is not None
    assert {v.grade for v in third.conclusion.document.cells} == {Grade.E2}


def test_a_finished_campaign_is_extended(lab: Lab) -> None:
    first = lab.run(blocks=4)
    lab.said.clear()
    same = lab.run(resume=True)
    assert same.campaign is not None and len(lab.launched) == 8 and same.campaign.resumed == 0
    assert first.campaign is not None and same.campaign.verdict == first.campaign.verdict
    assert len(list((lab.out / "verdicts").iterdir())) == 1
    assert f"the comparison is the same as {same.campaign.verdict}: no other was stored" in lab.said
    assert first.campaign is not None and same.campaign.ended_utc == first.campaign.ended_utc
    assert same.conclusion is not None and same.conclusion.document is not None
    longer = lab.run(resume=True, blocks=6)
    assert longer.campaign is not None and longer.campaign.blocks == 6 and longer.campaign.id == same.campaign.id
    assert longer.campaign.resumed == 1 and (longer.campaign.ended_utc or "") > (same.campaign.ended_utc or "z")
    assert lab.launched == ORDER * 3 and longer.campaign.status is CampaignStatus.COMPLETE
    assert longer.conclusion is not None and longer.conclusion.document is not None
    assert {v.n_base for v in longer.conclusion.document.cells} == {6}


def test_a_part_that_launches_nothing_is_no_part_and_does_not_move_the_end(lab: Lab) -> None:
    first = lab.run(blocks=2, stop_after_launches=3).campaign
    nothing = lab.run(resume=True, only=["both"]).campaign  # a launch waits, but not of this one
    assert first is not None and nothing is not None and lab.launched == ORDER[:3]
    assert nothing.resumed == 0 and nothing.ended_utc == first.ended_utc
    last = lab.run(resume=True).campaign
    assert last is not None and last.resumed == 1 and (last.ended_utc or "") > (first.ended_utc or "z")
    file = lab.out / last.id / "campaign.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ended_utc": None, "status": "running"}))  # killed
    after = lab.run(resume=True).campaign
    assert after is not None and after.resumed == 1 and after.ended_utc == last.launches[-1].ended_utc


def test_without_anything_to_resume_a_new_one_begins(lab: Lab) -> None:
    result = lab.run(resume=True, blocks=1)
    assert result.campaign is not None and result.campaign.resumed == 0
    assert any(line.startswith("nothing to resume") for line in lab.said)


def test_a_dry_run_says_that_there_is_nothing_to_resume(lab: Lab) -> None:
    plan = lab.run(resume=True, blocks=1, dry_run=True).plan
    assert (
        plan is not None
        and plan.basis[0] == f"nothing to resume: no campaign of lab in {lab.out}; a new one would begin"
    )
    lab.run(blocks=2, stop_after_blocks=1)
    plan = lab.run(resume=True, dry_run=True).plan
    assert plan is not None and not any("nothing to resume" in line for line in plan.basis)


def test_a_comparison_made_again_adds_no_verdict_and_no_line_to_the_ledger(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + PREDICTION)
    lab.run(blocks=4)
    options = CompareOptions(names=["lab"], root=str(lab.out))
    ledger = (lab.out / "predictions.jsonl").read_text()
    again = run_compare(options)
    assert again.again and again.document == verdict_files.read_all(lab.out, [])[-1]
    assert len(verdict_files.read_all(lab.out, [])) == 1 and (lab.out / "predictions.jsonl").read_text() == ledger
    other = run_compare(CompareOptions(names=["lab"], root=str(lab.out), metrics=["output_tok_s"]))
    assert not other.again and len(verdict_files.read_all(lab.out, [])) == 2
    assert (lab.out / "predictions.jsonl").read_text() == ledger  # it measured what was measured
    file = lab.out / "F.md"
    write_findings(str(lab.out), str(file), [other.document.id or ""])
    assert "1 of 1 measured predictions" in file.read_text() and "not in this file" not in file.read_text()


def test_a_part_of_a_campaign_compared_by_hand_leaves_the_findings_as_they_are(lab: Lab) -> None:
    own = lab.run(blocks=4).campaign
    file = str(lab.out / "PROFILE_FINDINGS.md")
    assert own is not None and check_findings(str(lab.out), file).problems == []
    by_hand = run_compare(CompareOptions(names=["baseline", "both"], root=str(lab.out))).document
    assert by_hand.campaign is None and {v.grade for v in by_hand.cells} == {Grade.E0}
    checked = check_findings(str(lab.out), file)
    assert checked.verdicts == [own.verdict] and checked.problems == []


def test_two_at_once_are_refused(lab: Lab) -> None:
    first = lab.run(blocks=2, stop_after_blocks=1)
    assert first.path is not None
    with (
        CampaignDir.resume(Path(first.path)),
        pytest.raises(StoreError, match="is writing here"),
    ):
        lab.run(resume=True)


def test_a_prediction_is_written_before_and_filled_after(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + PREDICTION)
    lab.run(blocks=4, stop_after_blocks=1)
    ((made, measured),) = read_ledger(str(lab.out))[0]
    first = next(e for e in lab.experiments() if e.experiment.config == "both")
    assert made.created_utc <= first.experiment.started_utc and made.scenario == "lab" and made.parent == "baseline"
    assert measured is not None and measured.hit and measured.grade == "E0"
    lab.run(resume=True)
    ((again, later),) = read_ledger(str(lab.out))[0]
    assert again == made and later is not None and later.grade == "E2" and later.ratio == pytest.approx(1.5, abs=0.01)


def test_a_prediction_of_one_campaign_is_not_answered_by_another(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + PREDICTION)
    lab.fails["both"] = [KeyboardInterrupt()]
    assert lab.run(blocks=1).interrupted  # predicted, not measured
    lab.scenario.write_text(SCENARIO.replace("name: lab", "name: elsewhere"))
    assert lab.run(blocks=1).conclusion is not None
    ((_, measured),) = read_ledger(str(lab.out))[0]
    assert measured is None


def test_what_was_measured_before_gets_no_prediction(lab: Lab) -> None:
    lab.run(blocks=1)
    lab.scenario.write_text(SCENARIO + PREDICTION)
    result = lab.run(blocks=1)
    assert read_ledger(str(lab.out))[0] == [] and result.campaign is not None
    assert any("is not in the ledger: both was measured at C=8 already" in n for n in result.campaign.notes)


def test_each_configuration_is_profiled_at_its_first_launch(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + PROFILE)
    result = lab.run(blocks=2)
    assert result.campaign is not None and lab.profiled == ["baseline", "both"] and lab.launched == ORDER
    assert [p.config for p in result.campaign.profiles] == ["baseline", "both"]


def test_no_profile_when_it_is_not_wanted(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("touches: [moe]", "touches: [moe], profile: false") + PROFILE)
    lab.run(blocks=1)
    assert lab.profiled == ["baseline"]
    lab.run(blocks=1, profile=False)
    assert lab.profiled == ["baseline"]


def test_a_profile_that_fails_is_noted_and_the_campaign_goes_on(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + PROFILE)
    lab.profile_error = "the trace holds no kernel"
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.campaign.status is CampaignStatus.COMPLETE
    assert [p.error for p in result.campaign.profiles] == ["the trace holds no kernel"] * 2


def test_a_profile_that_is_missing_at_the_end_gets_a_launch_of_its_own(lab: Lab) -> None:
    lab.run(blocks=1, profile=False)
    lab.scenario.write_text(SCENARIO + PROFILE)
    first = lab.run(blocks=1, profile=False)
    second = lab.run(resume=True)
    assert second.campaign is not None and first.campaign is not None and second.campaign.id == first.campaign.id
    assert lab.profiled == ["baseline", "both"] and lab.launched == ["baseline", "both"] * 3


def test_nsys_profiles_in_launches_of_its_own_after_the_first_block(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + "profile: {with: nsys, concurrency: [8]}\n")
    swept_at: list[int] = []
    profile = lab._profile_launched

    def noted(*args: object, **known: object) -> object:
        swept_at.append(len(lab.swept))
        return profile(*args, **known)  # type: ignore[arg-type]

    lab_module = __import__("dsv4bench.runs.campaign_measure", fromlist=["x"])
    lab_module.profile_launched = noted
    lab.run(blocks=2)
    assert lab.profiled == ["baseline", "both"] and swept_at == [2, 2]


def test_secrets_stay_out_of_the_folder(lab: Lab) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz012345"
    text = SCENARIO.replace('name: baseline, launch: "serve', f'name: baseline, launch: "serve --api-key {secret}')
    lab.scenario.write_text(text + f"env: {{HF_TOKEN: {secret}, PLAIN: kept}}\n")
    result = lab.run(blocks=1)
    assert result.path is not None and result.conclusion is not None and result.conclusion.document is not None
    for file in Path(result.path).rglob("*"):
        if file.is_file():
            assert secret not in file.read_text(), file
    assert "PLAIN: kept" in (Path(result.path) / "scenario.yaml").read_text()
    assert lab.run(resume=True).conclusion is not None  # the copy can be read, and the text counts as unchanged
