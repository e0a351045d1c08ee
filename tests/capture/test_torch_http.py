"""The window around a server's own profiler: what each answer of the server means for it."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from dsv4bench.capture import CaptureWindow, torch_http
from dsv4bench.capture.torch_http import TorchHttpWindow
from dsv4bench.errors import MeasuredBad, UsageError


class Answer(NamedTuple):
    state: str = "stopped"
    line: str = "told and stopped"

    @property
    def ended(self) -> bool:
        return self.state in ("stopped", "over")


class Calls:
    """A profiler that does as it is told."""

    def __init__(self, answer: Answer | None = None, folder: Path | None = None, ranks: int = 1) -> None:
        self.answer, self.folder, self.ranks = answer or Answer(), folder, ranks
        self.refuses: Exception | None = None
        self.stops: list[float] = []
        self.flush_s = 0.0
        self.dead: list[str | None] = []  # what each look finds; alive after that

    def start(self) -> None:
        if self.refuses is not None:
            raise self.refuses

    def stop(self, timeout_s: float) -> Answer:
        self.stops.append(timeout_s)
        time.sleep(self.flush_s)
        if self.folder is not None:
            for rank in range(self.ranks):
                (self.folder / f"9-TP-{rank}.trace.json.gz").write_bytes(gzip.compress(b"{}"))
        return self.answer

    def gone(self) -> str | None:
        return self.dead.pop(0) if self.dead else None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_http, "QUIET_S", 0.2)
    monkeypatch.setattr(torch_http, "LATE_S", 0.3)
    monkeypatch.setattr(torch_http, "LOOK_S", 0.05)


def window(calls: Calls, folder: Path | None, **more: object) -> TorchHttpWindow:
    return TorchHttpWindow(calls, folder=folder, server_folder="/its/folder", **more)  # type: ignore[arg-type]


def test_a_window_gathers_the_ranks(tmp_path: Path) -> None:
    made: CaptureWindow = window(Calls(folder=tmp_path, ranks=2), tmp_path, expected=2)
    made.open()
    captured = made.close()
    assert [Path(f).name for f in captured.files] == ["9-TP-0.trace.json.gz", "9-TP-1.trace.json.gz"]
    assert (captured.method, captured.server_path, captured.notes) == ("torch", "/its/folder", [])
    assert 0 <= captured.seconds < 60 and captured.opened.epoch_ns <= captured.closed.epoch_ns
    assert "is left in /its/folder" in made.abort()  # nothing to end any more


def test_missing_ranks_are_said(tmp_path: Path) -> None:
    made = window(Calls(folder=tmp_path, ranks=1), tmp_path, expected=4)
    made.open()
    assert made.close().notes == ["1 of 4 ranks wrote a trace"]


def test_the_files_of_another_host_are_its_path() -> None:
    made = window(Calls(), None)
    made.open()
    captured = made.close()
    assert (captured.files, captured.server_path) == ([], "/its/folder")


def test_a_container_shows_no_file(tmp_path: Path) -> None:
    made = window(Calls(), tmp_path)
    made.open()
    assert made.close().files == []


def test_a_server_that_stopped_by_itself_is_noted(tmp_path: Path) -> None:
    made = window(Calls(Answer("over", "it had stopped"), tmp_path), tmp_path)
    made.open()
    assert made.close().notes == ["it had stopped"]


@pytest.mark.parametrize("state", ["gone", "hung", "failed"])
def test_a_stop_that_did_not_work_raises_and_is_tried_again(state: str, tmp_path: Path) -> None:
    calls = Calls(Answer(state, f"the server is {state}"))
    made = window(calls, tmp_path, flush_timeout_s=7)
    made.open()
    with pytest.raises(MeasuredBad, match=f"the server is {state}"):
        made.close()
    assert f"the server is {state}" in made.abort()
    assert calls.stops == [7, torch_http.ABORT_S]


def test_a_refused_start_is_not_ended(tmp_path: Path) -> None:
    calls = Calls()
    calls.refuses = UsageError("already running")
    made = window(calls, tmp_path)
    with pytest.raises(UsageError):
        made.open()
    assert made.abort() == "the server was not profiling for us" and calls.stops == []


def test_a_start_without_an_answer_is_ended(tmp_path: Path) -> None:
    calls = Calls()
    calls.refuses = MeasuredBad("no answer")
    made = window(calls, tmp_path)
    with pytest.raises(MeasuredBad):
        made.open()
    assert made.abort() == "told and stopped" and len(calls.stops) == 1


def test_a_window_that_was_never_open_ends_nothing() -> None:
    calls = Calls()
    assert window(calls, None).abort() == "the server was not profiling for us" and calls.stops == []


def test_a_server_that_dies_while_it_writes_is_not_waited_for(tmp_path: Path) -> None:
    calls = Calls(folder=tmp_path)
    calls.flush_s, calls.dead = 20.0, ["refused"] * 3
    made = window(calls, tmp_path)
    made.open()
    with pytest.raises(MeasuredBad, match=r"died while it was told to stop profiling \(refused\)"):
        made.close()


def test_a_server_that_is_busy_while_it_writes_is_waited_for(tmp_path: Path) -> None:
    calls = Calls(folder=tmp_path)
    calls.flush_s, calls.dead = 0.5, ["refused", "refused", None, "refused", "refused", None]
    made = window(calls, tmp_path)
    made.open()
    assert len(made.close().files) == 1


def test_a_long_flush_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_http, "SAY_S", 0.05)
    calls, said = Calls(folder=tmp_path), list[str]()
    calls.flush_s = 0.3
    made = window(calls, tmp_path, say=said.append)
    made.open()
    made.close()
    assert any("is writing" in line for line in said)
