"""No secret of a launch is in what a campaign writes or says: its file, its scenario's copy, its logs, its words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from dsv4bench.records.campaign import LaunchStatus
from dsv4bench.runs.campaign import run_campaign
from dsv4bench.runs.campaign_begin import CampaignOptions, clean_scenario
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.redaction import clean_log

FLAG, VARIABLE, OUTER, OTHER = "flagkey-GGGG7777", "envkey-HHHH8888", "outer-IIII9999", "defaultkey-JJJJ1111"
SECRETS = (FLAG, VARIABLE, OUTER, OTHER)
SERVER = """
import os, sys
print("argv:", sys.argv)
print("refused", sys.argv[2][::1], "and", os.environ["LAB_API_KEY"], "and", os.environ["OUTER_TOKEN"])
print("ValueError: the model", os.environ["OTHER_API_KEY"], "was not found")
sys.exit(3)
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="launches run on a leash")


def scenario(folder: Path) -> Path:
    server = folder / "server.py"
    server.write_text(SERVER)
    file = folder / "secret.yaml"
    file.write_text(
        f"""
name: secret
env: {{LAB_API_KEY: {VARIABLE}, OUTER_TOKEN: "${{PLAINNAME}}"}}
workload: {{isl: [16], osl: 8}}
levels: {{concurrency: [1], requests: 4}}
configs:
  - name: baseline
    env: {{OTHER_API_KEY: "${{UNSET_HERE:-{OTHER}}}"}}
    launch: "{{python}} {server} --api-key {FLAG} --port {{port}}"
  - {{name: b, parent: baseline, lever: x, launch: "{{python}} {server} --port {{port}}"}}
"""
    )
    return file


def test_a_failed_launch_tells_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAINNAME", OUTER)
    said: list[str] = []
    out = tmp_path / "results"
    o = CampaignOptions(scenario=str(scenario(tmp_path)), out=str(out), report=True, findings=str(tmp_path / "F.md"))
    result = run_campaign(o, lambda _: None, said.append)
    failed = result.campaign.launches[0] if result.campaign is not None else None
    assert failed is not None and failed.status is LaunchStatus.FAILED
    assert failed.log_tail is not None and "refused *** and *** and ***" in failed.log_tail, failed
    error = f"{result.error.message} {result.error.hint}" if result.error is not None else ""
    assert "could not be launched" in error
    files = [p for p in out.rglob("*") if p.is_file()]
    assert {".gitignore", "campaign.json", "scenario.yaml", "block0-baseline.log"} <= {p.name for p in files}
    written = {str(p): p.read_text(errors="replace") for p in files}
    for secret in SECRETS:
        assert [name for name, text in written.items() if secret in text] == []
        assert secret not in error and secret not in "\n".join(said)
    (ignore,) = out.glob("*/logs/.gitignore")
    assert ignore.read_text() == "*\n"


def test_resume_cleans_the_logs_that_a_kill_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAINNAME", OUTER)
    o = CampaignOptions(scenario=str(scenario(tmp_path)), out=str(tmp_path / "results"), report=False)
    first = run_campaign(o, lambda _: None, lambda _: None)
    assert first.campaign is not None
    left = CampaignDir.open(tmp_path / "results" / first.campaign.id).logs / "block7-killed.log"
    left.write_text(f"plain line\nword {FLAG}, {VARIABLE}, {OUTER}, {OTHER}\n")
    again = CampaignOptions(scenario=o.scenario, out=o.out, report=False, resume=True)
    resumed = run_campaign(again, lambda _: None, lambda _: None)
    assert resumed.campaign is not None and resumed.campaign.id == first.campaign.id
    assert left.read_text() == "plain line\nword ***, ***, ***, ***\n"


def test_a_log_without_secrets_is_left_untouched(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"plain \xff line\n")
    before = log.stat().st_ino
    clean_log(log, ["not-in-there"])
    assert log.stat().st_ino == before and log.read_bytes() == b"plain \xff line\n"
    log.write_bytes(b"a not-in-there \xff\n")
    clean_log(log, ["not-in-there"])
    assert log.read_bytes() == b"a *** \xff\n" and [p.name for p in tmp_path.iterdir()] == ["a.log"]


def test_the_copy_of_a_scenario_keeps_placeholders_and_hides_values() -> None:
    text = (
        "env: {HF_TOKEN: '${MYKEY}', LAB_API_KEY: literal-value, MODE: fast}\n"
        "launch: env API_KEY=${MYKEY} serve --api-key ${MYKEY} --admin-api-key literal-value --port {port}\n"
    )
    copy = yaml.safe_load(clean_scenario(text))
    assert copy["env"] == {"HF_TOKEN": "${MYKEY}", "LAB_API_KEY": "***", "MODE": "fast"}
    assert copy["launch"] == ("env API_KEY=${MYKEY} serve --api-key ${MYKEY} --admin-api-key *** --port {port}")
    untouched = "launch: env API_KEY=${MYKEY} serve  # a comment that stays\n"
    assert clean_scenario(untouched) == untouched
