"""Recorders that are not the server's own: a server started under nsys, and counters sampled from outside.

The recorders themselves have tests of their own; here stand-ins take their places, and the server is a real process.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from live_profiles import Said, capture, quick_windows
from openai_server import Behaviour, serve
from profile_traces import write_trace
from profiled_server import profiled
from rich.console import Console

from dsv4bench.capture.counters import Opened
from dsv4bench.errors import UsageError
from dsv4bench.host.listening import listening
from dsv4bench.records.capture import Captured, Moment
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.report.breakdown import print_breakdown
from dsv4bench.report.experiments import profiled_lines
from dsv4bench.runs import profile_server, profile_windows
from dsv4bench.runs.profile import ProfileOptions, run_profile
from dsv4bench.server.launch import free_port
from dsv4bench.store import breakdowns

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
    abort_s = 40.0

    def __init__(self, folder: Path, label: str, log: list[str], fails: bool, keep: Path | None) -> None:
        self.folder, self.label, self.log, self.fails, self.keep = folder, label, log, fails, keep
        self.opened = Moment.now()

    def open(self) -> None:
        self.log.append(f"open {self.label}")
        self.opened = Moment.now()
        if self.fails:
            raise UsageError("nsys does not begin", "see its words")

    def close(self) -> Captured:
        self.log.append(f"close {self.label}")
        path = write_trace(self.folder / f"{self.label}.json", batch=2)
        return Captured(
            method="nsys",
            opened=self.opened,
            closed=Moment.now(),
            files=[str(path)],
            kept=self.keeps(),
            notes=["by nsys"],
        )

    def keeps(self) -> list[str]:
        return [f"/kept/{self.label}.nsys-rep"] if self.keep is not None else []

    def abort(self) -> str:
        self.log.append(f"abort {self.label}")
        return "nsys was told to cancel, and did"


class Session:
    """In the place of `NsysSession`: its folder is gone when it ends, as the real one's is."""

    made: ClassVar[list[Session]] = []
    fails = False

    def __init__(
        self,
        server: Sequence[str],
        *,
        variables: Mapping[str, str],
        say: Callable[[str], None],
        keep: Path | None,
    ) -> None:
        self.command, self.env = list(server), {**variables, "UNDER_NSYS": "1"}
        self.variables, self.keep = dict(variables), keep
        self.folder = Path(tempfile.mkdtemp())
        self.log: list[str] = []
        self.made.append(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("end")
        shutil.rmtree(self.folder)

    def window(self, label: str, ended: Callable[[], str | None], by_server: object = None) -> Window:
        assert ended() is None and by_server is None  # the server runs; nsys bounds the window
        return Window(self.folder, label, self.log, self.fails, self.keep)


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
    assert [n.files for n in document.captures] == [[], []]  # they are gone with the session
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


def test_a_report_is_kept_on_request_and_the_servers_variables_reach_the_session(
    nsys: type[Session], tmp_path: Path
) -> None:
    launch = f"TMPDIR=/of/the/server {command(free_port())}"
    keep = tmp_path / "kept"
    found = capture(None, tmp_path / "out", launch=launch, method="nsys", concurrency=[1], keep_trace=str(keep))
    (session,) = nsys.made
    assert session.variables == {"TMPDIR": "/of/the/server"} and session.keep == keep and keep.is_dir()
    assert found.profile.document.captures[0].files == ["c1.nsys-rep"]
    with pytest.raises(UsageError, match="--with torch") as caught:
        capture("http://127.0.0.1:9", tmp_path / "out", keep_trace=str(keep))
    assert "torch's traces stay" in caught.value.hint


@pytest.mark.parametrize("says", ["pass", "print('no model there')"])
def test_a_launch_that_fails_leaves_its_log_or_nothing(tmp_path: Path, says: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError) as caught:
        capture("http://127.0.0.1:9", out, launch=f"""{sys.executable} -c "{says}; exit(3)" """)
    if says == "pass":
        assert not out.exists() and caught.value.hint == "it wrote nothing to its log"
        return
    (log,) = (p for p in out.rglob("*") if p.is_file())
    assert str(log) in caught.value.hint and log.read_text() == "no model there\n"


def test_a_program_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out" / "traces").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot start"):
        capture("http://127.0.0.1:9", tmp_path / "out", launch="/no/such/server")
    assert list((tmp_path / "out").rglob("*")) == [tmp_path / "out" / "traces"]  # which was there before


# counters from outside

TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


class Counters:
    """Counters of one GPU, sampled a hundred times a recording; `log` says what was asked of them."""

    method, metrics, gpus, chip = "CUPTI PM sampling", [TENSOR], [0], "GH100"
    ended: str | None = None
    said: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.log: list[str] = []
        self.since = 0

    def start(self) -> None:
        self.log.append("start")
        self.since = Moment.now().epoch_ns

    def stop(self) -> list[DeviceSamples]:
        self.log.append("stop")
        ends = np.linspace(self.since, Moment.now().epoch_ns, 101, dtype=np.int64)[1:]
        return [DeviceSamples("", 0, ends, {TENSOR: np.full(100, 2.5)})]

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    made = Counters()

    def opening() -> Opened:
        made.log.append("open")
        return Opened(made, (9, 0), [])

    monkeypatch.setattr(profile_windows, "open_counters", opening)
    return made


def test_counters_from_outside_have_no_kernels(counters: Counters, tmp_path: Path) -> None:
    with serve(Behaviour()) as server:
        found = capture(server.url, tmp_path / "out", method="pm", concurrency=[1, 2])
    assert found.error is None and found.profile.document.devices == [] and found.profile.stored == []
    for note in found.profile.document.captures:
        assert note.activity is not None and note.activity.tensor_pipe is not None
        assert note.activity.tensor_pipe.mean_frac == pytest.approx(0.025)
        assert note.activity.method == "CUPTI PM sampling" and note.inflation_ratio is not None
    assert counters.log == ["open", *["start", "stop"] * 2, "close"]  # once for all windows


def test_what_was_sampled_is_stored_beside_the_kernels(counters: Counters, tmp_path: Path) -> None:
    with profiled(tmp_path, "sglang") as fake:
        capture(fake.url, tmp_path / "out", concurrency=[2], name="base")
        found = capture(fake.url, tmp_path / "out", method="pm", concurrency=[2, 4], name="base")
        both, alone = (one for path in found.profile.stored for one in breakdowns.read(path))
        assert both.devices and [c.method for c in both.captures] == ["torch", "pm"]
        assert alone.devices == [] and alone.captures[0].activity is not None and alone.concurrency == 4
        (again,) = capture(fake.url, tmp_path / "out", concurrency=[2], name="base").profile.stored
    assert [c.method for c in breakdowns.read(again)[0].captures] == ["torch", "pm"]
    assert {s.concurrency for s in breakdowns.shares_of(tmp_path / "out", "base").shares} == {2}
    back = run_profile(ProfileOptions(traces=[str(p) for p in found.profile.stored], root=str(tmp_path / "out")))
    assert [c.method for c in back.document.captures if c.activity is not None] == ["pm", "pm"]
    console = Console(file=io.StringIO(), width=200)
    print_breakdown(back.document, console)
    assert "tensor pipe 2.5 %" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "sampled at C=4 ISL 16: GPU 0" in profiled_lines([alone])[0]


def test_counters_that_cannot_be_read_are_found_out_before_the_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused() -> Opened:
        raise UsageError("the GPU's counters cannot be sampled: not for this user", "NVreg_…=0")

    monkeypatch.setattr(profile_windows, "open_counters", refused)
    with serve(Behaviour()) as server:
        with pytest.raises(UsageError, match=r"--with pm: .* not for this user") as caught:
            capture(server.url, tmp_path / "out", method="pm")
        assert caught.value.hint == "NVreg_…=0" and not server.bodies


def test_counters_are_of_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dsv4bench.server.target.Target.on_this_host", property(lambda _: False))
    with serve(Behaviour()) as server, pytest.raises(UsageError, match=r"--with pm: 127\.0\.0\.1 is another host"):
        capture(server.url, tmp_path / "out", method="pm")
