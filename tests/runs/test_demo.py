"""`sweep --demo`: what can be told without a server is told before one is started, and a failure brings the log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.runs import demo
from dsv4bench.runs.options import SweepOptions
from dsv4bench.server.launch import launch

COUNTERS = "the GPU's counters cannot be sampled"


@pytest.fixture(autouse=True)
def no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(gpus: Any) -> None:
        raise UsageError(COUNTERS)

    monkeypatch.setattr(demo, "open_counters", refused)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"concurrency": [0]}, "--concurrency 0"),
        ({"tensor_pipe_gpus": [-1]}, "--tensor-pipe-gpus -1"),
        ({"tensor_pipe": True}, COUNTERS),
    ],
)
def test_values_are_checked_first(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BenchError, match=said):
        demo.check_before_start(SweepOptions(out=str(tmp_path / "results"), **fields))
    assert list(tmp_path.iterdir()) == []
    demo.check_before_start(SweepOptions(out=str(tmp_path / "results")))


def test_the_verb_starts_no_server_for_values_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from dsv4bench.cli.main import app

    def started(*args: Any, **more: Any) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(demo, "launch", started)
    done = CliRunner().invoke(app, ["sweep", "--demo", "-c", "0"])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)


def serving(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def other(command: list[str], **more: Any) -> Any:
        return launch([sys.executable, "-c", program], **more)

    monkeypatch.setattr(demo, "launch", other)


def test_a_server_that_does_not_start_brings_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, "print('no room for the weights'); raise SystemExit(3)")
    with pytest.raises(UsageError, match="exited with code 3") as failed, demo.demo_server("fallback", print):
        pass
    assert failed.value.hint == "the end of its log:\nno room for the weights"


def test_a_server_that_ends_while_it_is_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[Any] = []

    def other(command: list[str], **more: Any) -> Any:
        servers.append(launch([sys.executable, "-c", "print('out of memory')"], **more))
        servers[0].wait_ready = lambda *a: None
        return servers[0]

    monkeypatch.setattr(demo, "launch", other)
    said: list[str] = []
    with demo.demo_server("fallback", said.append):
        servers[0]._process.wait(30)
    assert said[-1] == "the embedded server ended before it was stopped; the end of its log:\nout of memory"
