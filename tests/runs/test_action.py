"""action.yml: its scripts run in bash against a real server here, as the runner would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweeping import sweep

from dsv4bench.load.paced import PacedServer
from dsv4bench.runs.baselines import set_baseline

ROOT = Path(__file__).resolve().parent.parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
GATE = next(s for s in STEPS if s.get("id") == "gate")


def run_gate_step(tmp_path: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """(exit code, outputs, log) of the step that sweeps and gates."""
    wrapper = tmp_path / "dsv4bench"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dsv4bench "$@"\n')
    wrapper.chmod(0o755)
    outputs = tmp_path / "outputs"
    outputs.touch()
    given = {f"INPUT_{k.upper().replace('-', '_')}": str(v.get("default", "")) for k, v in ACTION["inputs"].items()}
    env = {**os.environ, **given, **{f"INPUT_{k.upper()}": v for k, v in inputs.items()}}
    env |= {
        "DSV4BENCH": str(wrapper),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_ACTIONS": "true",
    }
    env.pop("GITHUB_STEP_SUMMARY", None)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", GATE["run"]],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, found, done.stdout + done.stderr


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s["name"])
def test_values_reach_the_scripts_through_the_environment_only(step: dict[str, Any]) -> None:
    """An input written into a script is a script that its author did not write."""
    assert "${{" not in step["run"]
    assert step["shell"] == "bash"
    used = set(re.findall(r"\$\{?(INPUT_\w+)", step["run"]))
    assert used == {name for name in step.get("env", {}) if name.startswith("INPUT_")}


def test_every_input_is_used_and_no_key_is_one() -> None:
    used = {m for s in STEPS for v in s.get("env", {}).values() for m in re.findall(r"inputs\.([\w-]+)", v)}
    assert used == set(ACTION["inputs"])
    assert not any("key" in name or "token" in name for name in ACTION["inputs"])


def test_a_sweep_is_gated_against_the_pinned_baseline(tmp_path: Path) -> None:
    with PacedServer(ttft_s=0.010, itl_s=0.005) as server:
        options: dict[str, Any] = {
            "concurrency": [2],
            "isl": [40],
            "osl": 6,
            "requests": 12,
            "repeat": 5,
            "name": "base",
        }
        base = sweep(server.url, tmp_path / "results", **options)
        assert base.result.id is not None
        set_baseline(str(tmp_path / "results"), "main", base.result.id, "paced")
        code, outputs, log = run_gate_step(
            tmp_path,
            baseline="main",
            url=server.url,
            concurrency="2",
            sweep_args="--isl=40\n--osl=6\n--requests=12\n--vocab=1000\n--no-warmup\n",
        )
    # nothing was relaunched and the pace is the server's own: what the noise of this machine leaves open is left open
    assert (code, outputs["outcome"]) in {(0, "PASS"), (3, "INCONCLUSIVE"), (4, "NOT COMPARABLE")}, log
    assert outputs["exit-code"] == str(code)
    verdict = json.loads((tmp_path / outputs["verdict"]).read_text())
    assert verdict["outcome"] == outputs["outcome"] and verdict["inputs"][1]["ids"] == [outputs["experiment"]]
    assert (tmp_path / "dsv4bench-gate.xml").exists() and "title=gate " in log


def test_a_server_that_is_not_there_is_red(tmp_path: Path) -> None:
    code, outputs, log = run_gate_step(tmp_path, baseline="main", url="http://127.0.0.1:9")
    assert code == int(outputs["exit-code"]) != 0
    assert "outcome" not in outputs and "::error title=dsv4bench gate::the sweep measured nothing" in log


def test_a_gate_without_its_baseline_is_red(tmp_path: Path) -> None:
    with PacedServer(ttft_s=0.010, itl_s=0.005) as server:
        code, outputs, log = run_gate_step(
            tmp_path,
            baseline="main",
            url=server.url,
            concurrency="1",
            repeat="1",
            sweep_args="--isl=40\n--osl=6\n--requests=3\n--vocab=1000\n--no-warmup",
        )
    assert (code, outputs["exit-code"], outputs["outcome"]) == (2, "2", ""), log
    assert (tmp_path / "dsv4bench-gate.xml").exists()


def test_neither_url_nor_demo_is_a_usage_error(tmp_path: Path) -> None:
    code, _, log = run_gate_step(tmp_path, baseline="main")
    assert code == 2 and "neither url nor demo" in log
