"""`dsv4bench campaign` on the command line: what it prints, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import Call

from dsv4bench.errors import MeasuredBad, StoreError
from dsv4bench.records.campaign import (
    Campaign,
    CampaignDocument,
    CampaignStatus,
    LaunchNote,
    LaunchStatus,
    LeverLive,
    Live,
    LiveCheck,
    OutputPair,
    OutputParity,
    ProfileNote,
)
from dsv4bench.runs import campaign as runs
from dsv4bench.runs.campaign import CampaignResult
from dsv4bench.runs.campaign_begin import CampaignOptions
from dsv4bench.runs.campaign_end import Conclusion

SCENARIO = """
name: lab
levels: {concurrency: [1, 8], duration_s: 10}
blocks: 2
configs:
  - {name: baseline, launch: "serve --port {port}"}
  - {name: both, parent: baseline, lever: kernels, launch: "serve --port {port}"}
"""


def ended(**fields: Any) -> Campaign:
    known: dict[str, Any] = {
        "id": "20261201T000000Z-lab-0a0b",
        "name": "lab",
        "status": CampaignStatus.COMPLETE,
        "scenario_sha256": "ab",
        "started_utc": "2026-12-01T00:00:00.000Z",
        "baseline": "baseline",
        "configs": ["baseline", "both"],
        "blocks": 1,
        "seed": 7,
        "launches": [
            LaunchNote(order=i, block=0, config=c, status=LaunchStatus.COMPLETE, ready_s=2.5 + i)
            for i, c in enumerate(("baseline", "both"))
        ],
    }
    return Campaign(**{**known, **fields})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the verb was called with; `result` is what it answers."""
    found: dict[str, Any] = {"result": CampaignResult(ended(), "results/x", conclusion=Conclusion())}

    def run(o: CampaignOptions, on_progress: object, say: object) -> CampaignResult:
        found["options"] = o
        if isinstance(found["result"], BaseException):
            raise found["result"]
        result: CampaignResult = found["result"]
        return result

    monkeypatch.setattr(runs, "run_campaign", run)
    return found


def test_a_dry_run_shows_the_launches_and_starts_none(call: Call, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(SCENARIO)
    done = call("campaign", "lab.yaml", "--dry-run")
    assert done.code == 0
    assert "block 1: baseline · both" in done.out and "block 2: both · baseline" in done.out
    assert "2 blocks: paired verdicts (grade E2) need 4" in done.out and "time: at least 5 min" in done.out
    assert "4 launches, a seed drawn at start" in done.out
    assert not (tmp_path / "results").exists()
    document = json.loads(call("campaign", "lab.yaml", "--dry-run", "--json").out)
    assert [n["config"] for n in document["plan"]["launches"]] == ["baseline", "both", "both", "baseline"]
    msgspec.convert(document, CampaignDocument)


def test_a_dry_run_names_the_seed_that_will_be_used(call: Call, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(SCENARIO + "workload: {seed: 1234}\n")
    assert "4 launches, seed 1234" in call("campaign", "lab.yaml", "--dry-run").out
    assert json.loads(call("campaign", "lab.yaml", "--dry-run", "--json").out)["plan"]["seed"] == 1234


def test_options_reach_the_run(call: Call, asked: dict[str, Any]) -> None:
    done = call(
        *("campaign", "x.yaml", "--out", "o", "--blocks", "6", "--resume", "--max-blocks-now", "1"),
        *(
            "--stop-after-launches",
            "3",
            "--only",
            "baseline,both",
            "--no-profile",
            "--no-report",
            "--findings",
            "F.md",
        ),
    )
    o = asked["options"]
    assert done.code == 0 and (o.scenario, o.out, o.blocks, o.resume, o.findings) == ("x.yaml", "o", 6, True, "F.md")
    assert (o.stop_after_blocks, o.stop_after_launches, o.only) == (1, 3, ["baseline", "both"])
    assert not o.profile and not o.report and not o.dry_run and o.command[0] == "campaign"


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (CampaignResult(ended(), "p", conclusion=Conclusion()), 0),
        (CampaignResult(ended(launches=[LaunchNote(order=0, block=0, config="both", status="failed")]), "p"), 1),
        (CampaignResult(ended(launches=[LaunchNote(order=0, block=0, config="both", status="skipped")]), "p"), 1),
        (CampaignResult(ended(parity=[OutputParity(config="both", base="baseline", same=False)]), "p"), 1),
        (CampaignResult(ended(parity=[OutputParity(config="both", base="baseline", same=None)]), "p"), 0),
        (CampaignResult(ended(), "p", error=MeasuredBad("the baseline could not be launched")), 1),
        (CampaignResult(ended(), "p", error=StoreError("no space")), 2),
        (CampaignResult(ended(), "p", interrupted=True), 130),
        (KeyboardInterrupt(), 130),
        (StoreError("no space"), 2),
    ],
)
def test_exit_codes_and_one_document(call: Call, asked: dict[str, Any], result: Any, code: int) -> None:
    asked["result"] = result
    assert call("campaign", "x.yaml").code == code
    done = call("campaign", "x.yaml", "--json")
    assert done.code == code and done.out.count("\n") == 1
    document = msgspec.json.decode(done.out, type=CampaignDocument)
    assert (document.error is None) == (
        code in (0, 130) or not isinstance(getattr(result, "error", result), Exception)
    )


def test_a_scenario_that_is_none_is_a_usage_error(call: Call, tmp_path: Path) -> None:
    done = call("campaign", "nowhere.yaml")
    assert done.code == 2 and "nowhere.yaml" in done.error
    (tmp_path / "sweep.yaml").write_text("name: decode\nlevels: {concurrency: [1]}\n")
    assert call("campaign", "sweep.yaml").code == 2


def test_the_end_says_what_failed_what_was_live_and_what_differs(call: Call, asked: dict[str, Any]) -> None:
    campaign = ended(
        status=CampaignStatus.PARTIAL,
        reason="1 of 3 launches failed or were left out",
        launches=[
            *ended().launches,
            LaunchNote(
                order=2,
                block=1,
                config="both",
                status=LaunchStatus.FAILED,
                reason="the server exited with code 1",
                cause="GPU memory ran out",
                log_tail="\nTraceback\n\nOOM\n",
            ),
        ],
        live=[
            LeverLive(
                config="both",
                lever="kernels",
                state=Live.NOT_LIVE,
                checks=[LiveCheck(where="args", wanted="kernels=fast", seen="kernels=slow", state=Live.NOT_LIVE)],
            )
        ],
        parity=[
            OutputParity(
                config="both",
                base="baseline",
                same=False,
                pairs=[OutputPair(prompt=0, n_base=4, n_new=4, first_difference=1, near_tie=False)],
            )
        ],
        profiles=[ProfileNote(config="baseline", method="torch", live_label="moe marlin, attention fallback")],
    )
    asked["result"] = CampaignResult(
        campaign, "results/x", conclusion=Conclusion(findings="PROFILE_FINDINGS.md", report="results/x/report.html")
    )
    done = call("campaign", "x.yaml")
    assert done.code == 1
    for text in (
        "block 2, both: FAILED: the server exited with code 1",
        "likely cause: GPU memory ran out",
        "both: lever kernels: NOT LIVE: no verdict",
        "args: kernels=fast: not live (seen kernels=slow)",
        "both: DIFFERS from baseline's (1 prompts, 1 apart, 0 of them at a near-tie)",
        "baseline: moe marlin, attention fallback",
        "campaign 20261201T000000Z-lab-0a0b: partial (1 of 3 launches failed or were left out), 2 of 3 launches",
        "report: results/x/report.html",
        "findings: PROFILE_FINDINGS.md",
    ):
        assert text in done.out, done.out
