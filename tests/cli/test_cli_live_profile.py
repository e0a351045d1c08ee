"""`dsv4bench profile URL` as a user types it: one document, exit codes, Ctrl-C, a real server from its command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import SMALL, Call, Done, environment, finish, start
from live_profiles import quick_windows
from profiled_server import profiled, until

from dsv4bench.host.listening import listening
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.server.launch import free_port

SHORT = ["--kernel-breakdown", "--isl", "16", "--steps", "12", "--vocab", "1000"]


def document(done: Done) -> dict[str, Any]:
    """The one document on stdout."""
    assert done.out.count("\n") == 1, done.out
    found: dict[str, Any] = json.loads(done.out)
    msgspec.convert(found, BreakdownDocument)
    return found


def test_one_document_and_progress_on_stderr(call: Call, tmp_path: Path) -> None:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as fake:
        done = call("profile", fake.url, *SHORT, "-c", "1,2", "--name", "base", "--json")
        again = call("profile", fake.url, *SHORT, "-c", "2")
    assert done.code == 0
    found = document(done)
    assert [c["label"] for c in found["captures"]] == ["c1", "c2"] and found["error"] is None
    assert found["config"] == "base" and found["isl"] == 16 and found["concurrency"] == 2
    assert "recorded by torch" in done.err
    assert again.code == 0 and again.out.startswith("Captures\n")
    assert "live by its kernels: moe fallback-slot-gemv, attention fallback-perhead" in again.out
    assert (tmp_path / "results" / "breakdowns" / "base-c2.json").is_file()


def test_what_failed_is_said_and_what_was_captured_is_shown(call: Call, tmp_path: Path) -> None:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang", gpu=False) as fake:
        done = call("profile", fake.url, *SHORT, "-c", "2", "--json")
    found = document(done)
    assert done.code == 4 == found["error"]["exit_code"]
    assert "saw no GPU" in found["error"]["message"] and done.error == found["error"]["message"]
    assert [c["label"] for c in found["captures"]] == ["c2"]


def test_an_experiment_says_what_was_live(call: Call, tmp_path: Path) -> None:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as fake:
        assert call("sweep", fake.url, *SMALL, "-c", "2", "--name", "base").code == 0
        assert call("profile", fake.url, *SHORT, "-c", "2", "--name", "base").code == 0
    shown = call("show", "base")
    assert "profiled at C=2 ISL 16: moe fallback-slot-gemv, attention fallback-perhead" in shown.out
    (kernels,) = (tmp_path / "results").glob("*-base-*/kernels.json")
    kernels.write_text("{")
    broken = call("show", "base")
    assert broken.code == 0 and "profiled" not in broken.out and "kernels.json" in broken.err


def test_ctrl_c_in_the_window(tmp_path: Path) -> None:
    """A real signal to a real process: exit 130, and the server profiles no more."""
    with profiled(tmp_path, "sglang", crawls=True) as fake:
        process = start(["profile", fake.url, *SHORT, "--steps", "100", "-c", "2"], tmp_path)
        until(lambda: fake.recording or process.poll() is not None, "recording", 60)
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert fake.calls == ["start", "stop"] and not fake.recording
    assert done.code == 130 and "interrupted; nothing was captured" in done.err
    assert "the server was told to stop profiling, and did" in done.err


def test_termination_is_as_good_as_ctrl_c(tmp_path: Path) -> None:
    with profiled(tmp_path, "sglang", crawls=True) as fake:
        process = start(["profile", fake.url, *SHORT, "--steps", "100", "-c", "1"], tmp_path)
        until(lambda: fake.recording or process.poll() is not None, "recording", 60)
        process.terminate()
        done = finish(process)
        assert fake.calls == ["start", "stop"] and not fake.recording
    assert done.code == 130


def test_the_embedded_server_from_its_command(tmp_path: Path) -> None:
    """Started, held, profiled over HTTP, its rank file found, diagnosed (it has no GPU here), and ended."""
    pytest.importorskip("torch")
    port = free_port()
    command = f"{sys.executable} -m dsv4bench serve --port {port} --kernels optimized --threads 1"
    args = ["profile", "--launch", command, *SHORT, "-c", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "dsv4bench", *args],
        cwd=tmp_path,
        env={**environment(), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    found = json.loads(done.stdout)
    (capture,) = found["captures"]
    assert capture["label"] == "c1" and capture["steps_seen"] >= 12 and capture["running"] == 1
    assert capture["tpot_without_s"] > 0 and capture["inflation_ratio"] > 0
    assert "the host only" in found["error"]["message"]
    (trace,) = (tmp_path / "results" / "traces").rglob("*.trace.json.gz")
    assert trace.name == capture["files"][0] and trace.name.endswith("-TP-0.trace.json.gz")
    assert listening(port) is None  # the server was ended with us
