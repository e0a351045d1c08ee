"""One experiment in one file: enough to repeat it, and nothing of the place it was made at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaign_samples import ROOT
from store_samples import make_cell, make_experiment, make_server

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.bundle import Bundle
from dsv4bench.records.codec import decode
from dsv4bench.records.experiment import Tool
from dsv4bench.records.workload import Plan, Slo
from dsv4bench.runs.bundle import bundle
from dsv4bench.scenario.file import read_scenario

assert ROOT.is_dir()


def made(root: Path, **fields: Any) -> str:
    experiment = make_experiment(root, **fields)
    experiment.append_cell(make_cell("r0-c8-i1024"))
    experiment.append_cell(make_cell("r0-c1-i1024", concurrency=1))
    experiment.finish()
    return experiment.id


def test_it_holds_what_a_repeat_needs(tmp_path: Path) -> None:
    plan = Plan(concurrency=[1, 8], isl=[1024], repeat=5, requests=24, slo=Slo(ttft_s=2.0))
    root = tmp_path / "results"
    made_id = made(root, plan=plan, tool=Tool(version="0.1.0", packages={"httpx": "0.28"}), parent="p", lever="l")
    written, path = bundle(str(root), "baseline", str(tmp_path / "b.json"))
    read = decode(path.read_bytes(), Bundle, str(path))
    assert read.id == made_id and [c.concurrency for c in read.cells] == [8, 1] and len(written.cells) == 2
    assert read.versions["dsv4bench"] == "0.1.0" and read.versions["package httpx"] == "0.28"
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps(read.scenario))
    again = read_scenario(scenario)
    assert (again.levels.concurrency, again.levels.repeat, again.levels.requests) == ([1, 8], 5, 24)
    assert (again.workload.isl, again.workload.osl, again.workload.seed) == ([1024], 256, 7)
    assert (again.config.name, again.config.parent, again.config.lever) == ("baseline", "p", "l")
    assert again.levels.slo is not None and again.levels.slo.ttft == 2.0
    assert any("sweep" in line and "--scenario" in line for line in read.reproduce)


def test_the_command_that_it_gives_extracts_the_scenario(tmp_path: Path) -> None:
    import subprocess

    made(tmp_path / "results")
    written, path = bundle(str(tmp_path / "results"), "baseline", None)
    try:
        extract = next(line for line in written.reproduce if "scenario.yaml" in line and "python" in line)
        subprocess.run(extract.replace("scenario.yaml", str(tmp_path / "s.yaml")), shell=True, check=True)
        assert read_scenario(tmp_path / "s.yaml").name == "c16"
    finally:
        path.unlink()


def test_secrets_hosts_and_homes_stay_here(tmp_path: Path) -> None:
    server = make_server(
        url="http://gpu7.corp.example:8000",
        model="/home/alice/models/flash",
        args={"api_key": "sk-abcdefghijklmnopqrstuv", "log": "gpu7.corp.example started"},
    )
    made(
        tmp_path / "results",
        server=server,
        command=["dsv4bench", "sweep", "http://gpu7.corp.example:8000", "--header", "Authorization: Bearer abcdefgh"],
        extra={"note": "token=hf_abcdefghijklmnopqrstuv in /Users/bob/x"},
    )
    _, path = bundle(str(tmp_path / "results"), "baseline", str(tmp_path / "b.json"))
    text = path.read_text()
    for secret in ("gpu7", "corp.example", "alice", "bob", "sk-abc", "abcdefgh", "hf_abc"):
        assert secret not in text, secret
    assert "http://SERVER:8000" in text and "~/models/flash" in text


def test_a_taken_name_and_an_unknown_one(tmp_path: Path) -> None:
    made(tmp_path / "results")
    (tmp_path / "b.json").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        bundle(str(tmp_path / "results"), "baseline", str(tmp_path / "b.json"))
    assert (tmp_path / "b.json").read_text() == "mine"
    with pytest.raises(StoreError, match="nothing is called"):
        bundle(str(tmp_path / "results"), "nowhere", str(tmp_path / "c.json"))
