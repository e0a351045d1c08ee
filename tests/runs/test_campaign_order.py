"""The order of a campaign, what becomes of launches that fail, and what is made of those that do not."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from campaign_lab import HANGS, OUT_OF_MEMORY, SCENARIO, Lab

from dsv4bench.errors import MeasuredBad, StoreError, UsageError
from dsv4bench.records.campaign import CampaignStatus, LaunchStatus, Live
from dsv4bench.records.experiment import GpuInfo, Machine
from dsv4bench.records.verdict import Grade, LeverStatus, Verdict
from dsv4bench.runs.campaign import left_out
from dsv4bench.runs.campaign_begin import CampaignOptions
from dsv4bench.runs.campaign_end import findings_path
from dsv4bench.runs.campaign_plan import planned, within
from dsv4bench.runs.compare import CompareOptions, run_compare
from dsv4bench.store.campaigns import CampaignDir

MORE = """  - {name: third, parent: baseline, lever: other, launch: "serve --port {port}"}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def test_every_second_block_runs_in_reverse() -> None:
    notes = planned(["a", "b", "c"], 3)
    assert [n.config for n in notes] == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert [n.order for n in notes] == list(range(9)) and [n.block for n in notes] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [n.order for n in within(notes, blocks=2, most=None)] == list(range(6))
    assert [n.order for n in within(notes, blocks=None, most=2, only=["a"])] == [0, 5]


def test_four_blocks_give_paired_verdicts_findings_and_a_report(lab: Lab) -> None:
    result = lab.run(blocks=4)
    c = result.campaign
    assert c is not None and c.status is CampaignStatus.COMPLETE and result.error is None
    assert lab.launched == lab.stopped == ["baseline", "both", "both", "baseline"] * 2
    assert [n.status for n in c.launches] == [LaunchStatus.COMPLETE] * 8
    heads = [e.experiment for e in lab.experiments()]
    assert {(h.extra["campaign"], h.extra["block"], h.config) for h in heads} == {
        (c.id, block, config) for block in range(4) for config in ("baseline", "both")
    }
    assert {n.experiment for n in c.launches} == {h.id for h in heads}
    both = next(h for h in heads if h.config == "both")
    assert (both.parent, both.lever, both.lever_keys, both.touches, both.scenario) == (
        "baseline",
        "kernels",
        ["kernels"],
        ["moe"],
        "lab",
    )
    end = result.conclusion
    assert end is not None and end.document is not None and end.document.campaign == "lab"
    cell = next(v for v in end.document.cells if v.metric == "output_tok_s")
    assert (cell.grade, cell.verdict) == (Grade.E2, Verdict.GAIN) and cell.delta_frac == pytest.approx(0.5, abs=0.01)
    assert end.document.levers[0].status is LeverStatus.VERIFIED
    assert c.verdict == end.document.id and lab.reports == [c.id]
    assert end.findings == str(lab.out / "PROFILE_FINDINGS.md") and Path(end.findings).is_file()
    assert CampaignDir.open(lab.out / c.id).campaign == c


def test_one_seed_is_recorded_and_each_launch_has_its_own(lab: Lab) -> None:
    result = lab.run(blocks=2)
    seeds = [o.seed for o in lab.swept]
    assert result.campaign is not None and result.campaign.seed == 7
    assert len(set(seeds)) == 4 and all(s is not None and 0 <= s < 2**31 for s in seeds)
    again = [o.seed for o in lab.swept]
    lab.swept.clear()
    lab.run(blocks=2)
    assert [o.seed for o in lab.swept] == again  # the scenario's seed gives the same prompts anywhere


def test_a_configuration_that_fails_twice_alike_is_left_out_and_the_others_go_on(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + MORE)
    lab.tok_s["third"] = 100.0
    lab.fails["both"] = [OUT_OF_MEMORY] * 9
    result = lab.run(blocks=4)
    c = result.campaign
    assert c is not None and c.status is CampaignStatus.PARTIAL and result.error is None
    own = [n for n in c.launches if n.config == "both"]
    assert [n.status for n in own] == [LaunchStatus.FAILED] * 2 + [LaunchStatus.SKIPPED] * 2
    assert (own[0].cause, own[0].log_tail) == ("GPU memory ran out", "OOM")
    assert own[2].reason is not None and "2 times in the same way" in own[2].reason
    assert sum(n.status is LaunchStatus.COMPLETE for n in c.launches) == 8
    assert lab.launched.count("both") == 2 and lab.stopped == lab.launched
    document = result.conclusion.document if result.conclusion else None
    assert document is not None and {v.config for v in document.cells} == {"third"}
    assert any(note.startswith("both: 4 of 4 launches failed") for note in document.notes)


def test_failures_of_two_kinds_are_not_alike() -> None:
    notes = planned(["a"], 3)
    failed = [
        msgspec.structs.replace(n, status=LaunchStatus.FAILED, reason=r)
        for n, r in zip(notes, ("port 1 within 5 s", "exited with code 3", "port 2 within 6 s"), strict=True)
    ]
    assert left_out(failed[:2], "a") is None
    assert left_out(failed, "a") is not None and left_out(failed, "b") is None


def test_a_baseline_that_cannot_be_launched_ends_the_campaign(lab: Lab) -> None:
    lab.fails["baseline"] = [OUT_OF_MEMORY] * 2
    result = lab.run(blocks=2)
    assert isinstance(result.error, MeasuredBad) and "GPU memory ran out" in result.error.message
    assert lab.launched == ["baseline", "baseline"] and result.campaign is not None
    assert result.campaign.status is CampaignStatus.PARTIAL and result.campaign.launches[0].attempt == 2
    resumed = lab.run(resume=True)  # repaired meanwhile
    assert resumed.campaign is not None and resumed.campaign.status is CampaignStatus.COMPLETE
    assert resumed.campaign.id == result.campaign.id


def test_a_baseline_that_hangs_is_not_waited_for_twice(lab: Lab) -> None:
    lab.fails["baseline"] = [HANGS, HANGS]
    result = lab.run(blocks=2)
    assert isinstance(result.error, MeasuredBad) and lab.launched == ["baseline"]


def test_a_baseline_that_crashes_once_goes_on(lab: Lab) -> None:
    lab.fails["baseline"] = [OUT_OF_MEMORY]
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.campaign.status is CampaignStatus.COMPLETE
    assert result.campaign.launches[0].attempt == 2


def test_a_server_that_goes_away_under_load_is_a_failed_launch(lab: Lab) -> None:
    lab.sweep_fails["both"] = [MeasuredBad("the server went away during C=8")]
    result = lab.run(blocks=1)
    assert result.campaign is not None
    note = result.campaign.launches[1]
    assert (note.status, note.reason, note.cause) == (
        LaunchStatus.FAILED,
        "the server went away during C=8",
        "a cause",
    )
    assert note.experiment is None and result.conclusion is not None and result.conclusion.document is None


def test_a_lever_that_is_not_live_gets_no_verdict(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("touches: [moe]", "touches: [moe], live: {args: {kernels: faster}}"))
    result = lab.run(blocks=4)
    document = result.conclusion.document if result.conclusion else None
    assert document is not None and result.campaign is not None
    assert [(x.config, x.state) for x in result.campaign.live] == [("both", Live.NOT_LIVE)]
    assert document.levers[0].status is LeverStatus.NOT_LIVE
    assert {v.verdict for v in document.cells} == {Verdict.NOT_COMPARABLE}
    assert all("not live" in v.reason and "kernels=faster" in v.reason for v in document.cells)
    assert any("NOT LIVE" in line for line in lab.said)


def test_a_baseline_that_is_another_one_carries_no_verdict(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("name: baseline,", "name: baseline, live: {args: {kernels: other}},"))
    result = lab.run(blocks=4)
    document = result.conclusion.document if result.conclusion else None
    assert document is not None and {v.verdict for v in document.cells} == {Verdict.NOT_COMPARABLE}
    assert all("not live in baseline" in v.reason for v in document.cells)
    assert any("baseline: what it stands for is NOT LIVE" in line for line in lab.said)


def test_a_lever_that_is_live_is_said_to_be(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("touches: [moe]", "touches: [moe], live: {args: {kernels: fast}}"))
    result = lab.run(blocks=1)
    assert result.campaign is not None and [x.state for x in result.campaign.live] == [Live.LIVE]


def test_outputs_that_differ_stand_beside_the_verdict(lab: Lab) -> None:
    lab.texts["both"] = ["a", "x", "c", "d"]
    result = lab.run(blocks=4)
    document = result.conclusion.document if result.conclusion else None
    assert result.campaign is not None and document is not None
    (parity,) = result.campaign.parity
    assert (parity.config, parity.base, parity.same) == ("both", "baseline", False)
    assert any("greedy output differs from baseline's on 1 of 1 prompts" in note for note in document.notes)
    assert any(v.verdict is Verdict.GAIN for v in document.cells)


def test_outputs_that_may_differ_are_not_compared(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("touches: [moe]", "touches: [moe], same_output: false"))
    lab.texts["both"] = ["x"]
    result = lab.run(blocks=1)
    assert result.campaign is not None and [p.same for p in result.campaign.parity] == [None]


def test_another_server_under_the_same_name_is_said(lab: Lab) -> None:
    lab.run(blocks=1)
    lab.args["both"] = {"kernels": "fast", "version": "2"}
    result = lab.run(resume=True, blocks=2)
    assert result.campaign is not None and result.conclusion is not None and result.conclusion.document is not None
    assert any("another server than at the first launch" in note for note in result.conclusion.document.notes)


def test_compare_loads_a_campaign_by_its_id_and_by_its_folder(lab: Lab) -> None:
    result = lab.run(blocks=4)
    assert result.campaign is not None and result.conclusion is not None and result.conclusion.document is not None
    for name in (result.campaign.id, str(lab.out / result.campaign.id)):
        found = run_compare(CompareOptions(names=[name], root=str(lab.out), keep=False)).document
        assert found.cells == result.conclusion.document.cells and found.campaign == "lab"
        assert found.setup[0].startswith(f"campaign {result.campaign.id}: 8 of 8 launches in 4 blocks")


def test_the_target_is_held_against_what_was_measured(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + "target: {output_tok_s: 1000, concurrency: 8}\n")
    result = lab.run(blocks=1)
    goal = result.conclusion.document.goal if result.conclusion and result.conclusion.document else None
    assert goal is not None and goal.measured_tok_s == pytest.approx(100, rel=0.01)
    assert goal.needed_cut_frac == pytest.approx(0.9, rel=0.01) and goal.why == "no plan: profile baseline at C=8"
    assert result.campaign is not None and result.campaign.goal is not None


def test_a_report_that_fails_loses_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(root: object, name: str) -> Path:
        raise ValueError("a drawing went wrong")

    monkeypatch.setattr("dsv4bench.runs.campaign_end.report.build_report", broken)
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.campaign.status is CampaignStatus.COMPLETE
    assert result.conclusion is not None and result.conclusion.warnings == ["no report: a drawing went wrong"]


def test_findings_lie_beside_the_default_results_folder_and_inside_another() -> None:
    def path(**options: str) -> str:
        return findings_path(CampaignOptions(scenario="s.yaml", **options))

    assert path() == path(out="./results") == path(out="results/") == "PROFILE_FINDINGS.md"
    here = Path.cwd()
    assert path(out=str(here / "results")) == str(here / "PROFILE_FINDINGS.md")
    assert path(out="results/.demo") == "results/.demo/PROFILE_FINDINGS.md"
    assert path(out="/elsewhere/results") == "/elsewhere/results/PROFILE_FINDINGS.md"
    assert path(out="other", findings="F.md") == "F.md"


def test_findings_edited_by_hand_are_left_alone(lab: Lab) -> None:
    lab.run(blocks=1)
    file = lab.out / "PROFILE_FINDINGS.md"
    edited = file.read_text().replace("at C=8", "at C=9")
    assert edited != file.read_text()
    file.write_text(edited)
    result = lab.run(resume=True)
    assert result.conclusion is not None and file.read_text() == edited
    assert any("was not written" in w for w in result.conclusion.warnings)


def test_only_some_configurations(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO + MORE)
    lab.tok_s["third"] = 100.0
    result = lab.run(blocks=1, only=["baseline", "third"])
    assert result.campaign is not None and result.campaign.configs == ["baseline", "third"] == lab.launched
    with pytest.raises(UsageError, match="both is judged against baseline, which is left out"):
        lab.run(only=["both", "third"])
    with pytest.raises(UsageError, match="--only nobody: no configuration"):
        lab.run(only=["nobody"])


def test_a_dry_run_writes_nothing_and_says_what_it_assumes(lab: Lab) -> None:
    result = lab.run(blocks=2, dry_run=True)
    assert result.plan is not None and [n.config for n in result.plan.launches] == [
        "baseline",
        "both",
        "both",
        "baseline",
    ]
    assert result.plan.seconds is None and "number of requests" in result.plan.basis[0]
    assert not lab.out.exists() and lab.launched == []
    lab.scenario.write_text(SCENARIO.replace("concurrency: [8]", "concurrency: [8, 16], duration_s: 10"))
    timed = lab.run(blocks=2, dry_run=True)
    assert timed.plan is not None and timed.plan.seconds == 4 * (60 + 20)
    assert "baseline: 60 s to start (assumed), 20 s of levels" in timed.plan.basis


def test_what_earlier_launches_took_is_the_estimate(lab: Lab) -> None:
    lab.run(blocks=1)
    plan = lab.run(blocks=1, dry_run=True).plan
    assert plan is not None and plan.seconds is not None and "the median of 1 earlier ones" in plan.basis[0]


def test_a_results_folder_that_cannot_be_written_stops_before_a_launch(lab: Lab) -> None:
    lab.out.write_text("a file")
    with pytest.raises(StoreError):
        lab.run()
    assert lab.launched == []


def test_a_launch_says_that_it_was_throttled_in_one_note_and_only_when_it_was(lab: Lab) -> None:
    cap = {"gpu_throttle": ["sw_power_cap"]}
    lab.cells = {
        "baseline": {**cap, "gpu_sm_clock_mean_mhz": 1976.0},
        "both": {**cap, "gpu_sm_clock_mean_mhz": 1679.0},
    }
    gpus = [GpuInfo(name="NVIDIA H200", sm_clock_max_mhz=1980)]
    known = {
        "cpu": "x",
        "cores": 2,
        "memory_bytes": 1,
        "os": "l",
        "kernel": "6",
        "python": "3",
        "hostname_sha256": "a",
    }
    lab.experiment = {"machine": msgspec.convert({**known, "gpus": gpus}, Machine)}
    c = lab.run(blocks=1).campaign
    assert c is not None
    assert {n.config: n.notes for n in c.launches} == {
        "baseline": [],
        "both": ["GPU throttled at C=8: SM clock 1679 MHz of 1980 (sw_power_cap)"],
    }


def test_the_python_that_runs_us_is_recorded_by_the_scenarios_word(lab: Lab) -> None:
    lab.scenario.write_text(SCENARIO.replace("serve --port", "{python} -m serve --port"))
    c = lab.run(blocks=1).campaign
    assert c is not None
    for n, o in zip(c.launches, lab.swept, strict=True):
        assert n.command == o.command and n.command[:4] == ["{python}", "-m", "serve", "--port"]
        assert n.command[4].isdigit()
    assert lab.planned[0].parts[0].command[-5:] == [sys.executable, *c.launches[0].command[1:]]
