"""Recorders that are not the server's own: a server started under nsys, and counters sampled from outside.

The recorders themselves have tests of their own; here stand-ins take their places, and the server is a real process.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from live_profiles import Said, capture, quick_windows
from openai_server import Behaviour, serve
from profile_traces import write_trace

from dsv4bench.errors import UsageError
from dsv4bench.host.listening import listening
from dsv4bench.records.capture import Captured, Moment
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.runs import profile_server, profile_windows
from dsv4bench.server.launch import free_port

HERE = Path(__file__).parent
SERVER = """
import sys, threading
sys.path.insert(0, sys.argv[2])
from openai_server import Behaviour, OpenAIServer
server = OpenAIServer(Behaviour())
server.start(int(sys.argv[1].removeprefix("--port=")))
threading.Event().wait(300)
"""


@pytest.fixture(autouse=True)
def quick(tmp_path: Path) -> Iterator[None]:
    with quick_windows(tmp_path):
        yield


class Window:
    """A recorder that does as it is told, and remembers it."""

    method = "nsys"

    def __init__(self, folder: Path, label: str, log: list[str], fails: bool) -> None:
        self.folder, self.label, self.log, self.fails = folder, label, log, fails
        self.opened = Moment.now()

    def open(self) -> None:
        self.log.append(f"open {self.label}")
        self.opened = Moment.now()
        if self.fails:
            raise UsageError("nsys does not begin", "see its words")

    def close(self) -> Captured:
        self.log.append(f"close {self.label}")
        path = write_trace(self.folder / f"{self.label}.json", batch=2)
        return Captured(method="nsys", opened=self.opened, closed=Moment.now(), files=[str(path)], notes=["by nsys"])

    def abort(self) -> str:
        self.log.append(f"abort {self.label}")
        return "nsys was told to cancel, and did"


class Session:
    """In the place of `NsysSession`: its folder is gone when it ends, as the real one's is."""

    made: ClassVar[list[Session]] = []
    fails = False

    def __init__(self, server: Sequence[str], *, say: Callable[[str], None]) -> None:
        self.command, self.env = list(server), {"UNDER_NSYS": "1"}
        self.folder = Path(tempfile.mkdtemp())
        self.log: list[str] = []
        self.made.append(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("end")
        shutil.rmtree(self.folder)

    def window(self, label: str, ended: Callable[[], str | None]) -> Window:
        assert ended() is None  # the server runs
        return Window(self.folder, label, self.log, self.fails)


@pytest.fixture
def nsys(monkeypatch: pytest.MonkeyPatch) -> type[Session]:
    monkeypatch.setattr(Session, "made", [])
    monkeypatch.setattr(Session, "fails", False)
    monkeypatch.setattr(profile_server, "NsysSession", Session)
    return Session


def command(port: int) -> str:
    return f"{sys.executable} -c '{SERVER}' --port={port} {HERE}"


def test_a_server_under_nsys(nsys: type[Session], tmp_path: Path) -> None:
    port, said = free_port(), Said()
    options: dict[str, Any] = {"launch": command(port), "method": "nsys", "concurrency": [1, 2]}
    found = capture(None, tmp_path / "out", said, **options)
    (session,) = nsys.made
    assert found.error is None and session.log == ["open c1", "close c1", "open c2", "close c2", "end"]
    document = found.profile.document
    assert [n.method for n in document.captures] == ["nsys", "nsys"]
    assert [s.median_ns for s in document.steps_by_label] == [100_000, 100_000]  # read before the session ended
    assert "by nsys" in document.captures[0].notes
    assert listening(port) is None  # the server was ended with it
    assert said.has("starting the server") and not said.has("hf_")


def test_a_session_ends_with_the_server_when_a_window_does_not_open(nsys: type[Session], tmp_path: Path) -> None:
    nsys.fails = True
    port, said = free_port(), Said()
    with pytest.raises(UsageError, match="nsys does not begin"):
        capture(None, tmp_path / "out", said, launch=command(port), method="nsys", concurrency=[1])
    assert nsys.made[0].log == ["open c1", "abort c1", "end"] and said.has("told to cancel, and did")
    assert listening(port) is None


def test_a_launched_server_that_dies_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exited with code 3 before it was ready") as caught:
        capture(
            "http://127.0.0.1:9",
            tmp_path / "out",
            launch=f"""TELL=why {sys.executable} -c 'import os; print("no", os.environ["TELL"]); exit(3)'""",
        )
    assert "no why" in caught.value.hint


class Counters:
    """In the place of `PmWindow`."""

    method = "pm"

    def prepare(self) -> None: ...

    def open(self) -> None:
        self.opened = Moment.now()

    def close(self) -> Captured:
        closed = Moment.now()
        ends = np.linspace(self.opened.epoch_ns, closed.epoch_ns, 101, dtype=np.int64)[1:]
        metrics = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": np.full(100, 2.5)}
        samples = [DeviceSamples("", 0, ends, metrics)]
        notes = ["CUPTI PM sampling: sm__pipe_tensor"]
        return Captured(method="pm", opened=self.opened, closed=closed, samples=samples, notes=notes)

    def abort(self) -> str:
        return "sampling was stopped"


def test_counters_from_outside_have_no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(profile_windows, "PmWindow", Counters)
    with serve(Behaviour()) as server:
        found = capture(server.url, tmp_path / "out", method="pm", concurrency=[2])
    assert found.error is None and found.profile.document.devices == []
    (note,) = found.profile.document.captures
    assert note.activity is not None and note.activity.tensor_pipe is not None
    assert note.activity.tensor_pipe.mean_frac == pytest.approx(0.025)
    assert note.activity.method == "CUPTI PM sampling" and note.inflation_ratio is not None


def test_counters_are_of_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dsv4bench.server.target.Target.on_this_host", property(lambda _: False))
    with serve(Behaviour()) as server, pytest.raises(UsageError, match=r"--with pm: 127\.0\.0\.1 is another host"):
        capture(server.url, tmp_path / "out", method="pm")
