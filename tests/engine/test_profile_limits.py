"""Traces that cannot be written, or would take more memory than there is: said to whoever stops the profile."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from starlette.testclient import TestClient

from dsv4bench.engine import profile_limits
from dsv4bench.engine.app import create_app
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.loop import EngineLoop
from dsv4bench.engine.profile_limits import EventMemory

SMALL_FILES = """
import resource, sys
from pathlib import Path
import torch
from dsv4bench.engine.profile_limits import write_trace
profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with profile:
    for _ in range(3000):
        torch.ones(3) + 1
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    write_trace(profile, Path(sys.argv[1]))
except OSError as e:
    print(e)
"""


@pytest.fixture
def client() -> Iterator[TestClient]:
    config = EngineConfig(kernels="optimized", max_running=2, max_model_len=128)
    with TestClient(create_app(EngineLoop(config))) as client:
        yield client


def generate(client: TestClient, tokens: int) -> None:
    body = {"temperature": 0, "ignore_eos": True, "prompt": [1, 2], "max_tokens": tokens}
    assert client.post("/v1/completions", json=body).status_code == 200


@pytest.mark.parametrize("steps", [None, 3])  # ended by the call, or by itself before it
def test_a_write_that_failed_is_no_success(client: TestClient, tmp_path: Path, steps: int | None) -> None:
    folder = tmp_path / "traces"
    asked: dict[str, Any] = {"output_dir": str(folder)} | ({} if steps is None else {"num_steps": steps})
    assert client.post("/start_profile", json=asked).status_code == 200
    folder.rmdir()
    generate(client, 5)
    answer = client.post("/stop_profile")
    assert answer.status_code == 500 and "the trace was not written: [Errno 2]" in answer.json()["error"]["message"]
    generate(client, 2)  # it serves on
    assert client.post("/stop_profile").text == "Stop profiling: no step was recorded.\n"


def test_a_disk_that_fills_up_while_torch_writes_is_found_out(tmp_path: Path) -> None:
    """torch says nothing of it."""
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, str(tmp_path / "t.json.gz")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "is its disk full?" in done.stdout and not (tmp_path / "t.json.gz").exists()


def test_a_recording_that_outgrows_the_memory_ends_by_itself_with_a_trace(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_limits, "LEAST_BYTES", -(1 << 40))
    monkeypatch.setattr(profile_limits, "FLUSH_TIMES", 0.0)
    monkeypatch.setattr(profile_limits, "free_bytes", lambda: -1)
    assert client.post("/start_profile", json={"output_dir": str(tmp_path)}).status_code == 200
    generate(client, 40)
    told = client.post("/stop_profile").text
    assert "it ended by itself after 16 steps: its events take" in told
    (path,) = tmp_path.glob("*-TP-0.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(e["name"].startswith("step[") for e in events if e.get("cat") == "user_annotation") == 16
    client.post("/start_profile", json={"output_dir": str(tmp_path), "num_steps": 2})
    generate(client, 5)
    assert client.post("/stop_profile").text.count("\n") == 1  # of that one only


def test_events_are_held_against_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter([100 << 20, 150 << 20, 600 << 20, 600 << 20, None])
    monkeypatch.setattr(profile_limits, "resident_bytes", lambda: next(held))
    free = iter([10 << 30, 1 << 30, 10 << 30, 1 << 30])
    monkeypatch.setattr(profile_limits, "free_bytes", lambda: next(free))
    memory = EventMemory()
    memory.start()
    assert memory.short() == ""  # 50 MiB
    assert "its events take 0.52 GB and writing them 3.15 GB more; 1.07 GB are free" in memory.short()
    assert memory.short() == ""
    assert memory.short() == ""  # not told


def test_no_python_object_is_made_of_an_event(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch does so when events shall be accumulated: 2000 steps of the tiny model took more than 16 GB."""

    def parse(*_: Any, **__: Any) -> None:
        raise AssertionError("events were parsed")

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", parse)
    client.post("/start_profile", json={"output_dir": str(tmp_path)})
    generate(client, 3)
    assert client.post("/stop_profile").status_code == 200 and list(tmp_path.glob("*-TP-0.trace.json.gz"))
