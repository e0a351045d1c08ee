"""`--range server`: the server bounds the windows of nsys itself, by cudaProfilerStart and cudaProfilerStop."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_profiles import Said, capture, quick_windows
from profiled_server import ProfiledServer, profiled

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "capture"))

import nsys_double

from dsv4bench.capture.nsys import Limits, NsysSession, NsysWindow
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.host.listening import listening
from dsv4bench.host.nsight import Nsight
from dsv4bench.runs import profile_server
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.server.launch import free_port

HERE = Path(__file__).parent
IDLE = f"{sys.executable} -S -c 'import time; time.sleep(600)'"
BOUNDED = "from the server's cudaProfilerStart to its cudaProfilerStop"


@pytest.fixture(autouse=True)
def quick(tmp_path: Path) -> Iterator[None]:
    with quick_windows(tmp_path):
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions are the real ones, of a stand-in for nsys; the file names the folder of the last one."""
    nsys = nsys_double.install(tmp_path)
    told = tmp_path / "session.json"

    class Session(NsysSession):
        def __init__(self, server: Any, **options: Any) -> None:
            limits = Limits(begin_s=1, range_s=3, need_bytes=1, spare_bytes=1)
            super().__init__(server, nsys=Nsight(str(nsys), (2023, 4, 4)), limits=limits, **options)
            told.write_text(json.dumps(str(self.folder)))

    monkeypatch.setattr(profile_server, "NsysSession", Session)
    return told


@pytest.fixture
def fake(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfiledServer]:
    """An SGLang whose start and stop reach the stand-in, as its scheduler's calls would."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the stand-in's functions set it
    with profiled(tmp_path, "sglang") as server:
        answered, ended = server.start, server.stop

        def start(body: dict[str, Any]) -> tuple[int, Any] | None:
            if server.configured:
                nsys_double.in_range(True, json.loads(home.read_text()))
            return answered(body)

        def stop(body: dict[str, Any]) -> tuple[int, Any] | None:
            if server.recording and "range" not in server.hangs:
                nsys_double.in_range(False, json.loads(home.read_text()))
            server.recording = False
            if "stop" in server.hangs:
                return ended(body)
            server.calls.append("stop")
            return 200, "Stop profiling.\n"

        server.server.behaviour.routes |= {"POST /start_profile": start, "POST /stop_profile": stop}
        yield server


def ranged(fake: ProfiledServer, root: Path, said: Said | None = None, **fields: Any) -> Any:
    options = {"launch": IDLE, "method": "nsys", "capture_range": "server", "concurrency": [1], **fields}
    return capture(fake.url, root, said, **options)


def verbs(tmp_path: Path) -> list[str]:
    return [line[0] for line in nsys_double.asked(tmp_path / "double" / "target-linux-x64" / "nsys")]


def test_an_sglang_bounds_two_windows(fake: ProfiledServer, tmp_path: Path) -> None:
    found = ranged(fake, tmp_path / "out", concurrency=[1, 2])
    assert fake.calls == ["start", "stop"] * 2
    assert [body["activities"] for body in fake.bodies] == [["CUDA_PROFILER"]] * 2
    assert all("num_steps" not in body for body in fake.bodies)
    captures = found.profile.document.captures
    assert [c.label for c in captures] == ["c1", "c2"] and all(BOUNDED in c.notes for c in captures)
    assert verbs(tmp_path).count("start") == 2 and "stop" not in verbs(tmp_path)


def test_from_outside_the_server_is_asked_for_nothing(fake: ProfiledServer, tmp_path: Path) -> None:
    found = ranged(fake, tmp_path / "out", capture_range="outside")
    assert fake.calls == [] and BOUNDED not in found.profile.document.captures[0].notes
    assert verbs(tmp_path).count("stop") == 1


def test_a_server_that_does_not_stop_is_stopped_for(
    fake: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsv4bench.runs.profile_windows.STOP_S", 0.5)
    fake.hangs |= {"stop", "range"}
    said = Said()
    found = ranged(fake, tmp_path / "out", said)
    notes = " ".join(found.profile.document.captures[0].notes)
    assert "its cudaProfilerStop did not come" in notes and BOUNDED not in notes
    assert said.has("gave no answer within 0.5 s") and verbs(tmp_path).count("stop") == 1


def test_ctrl_c_in_the_window_stops_the_server(
    fake: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = NsysWindow.open

    def interrupted(self: NsysWindow) -> None:
        opened(self)
        assert self.abort_s == 40 + 30  # nsys and the server
        raise KeyboardInterrupt

    monkeypatch.setattr(NsysWindow, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ranged(fake, tmp_path / "out")
    assert fake.calls == ["start", "stop"] and not fake.recording


def test_a_server_that_refuses_or_never_calls(fake: ProfiledServer, tmp_path: Path) -> None:
    fake.configured = False  # it answers, and calls nothing
    with pytest.raises(Unanswerable, match="no traced process called cudaProfilerStart"):
        ranged(fake, tmp_path / "out")
    assert fake.calls == ["start", "stop"]
    fake.status["start"] = (400, {"error": {"message": "CUDA_PROFILER needs a GPU"}})
    with pytest.raises(UsageError, match="CUDA_PROFILER needs a GPU"):
        ranged(fake, tmp_path / "out")
    assert verbs(tmp_path)[-1] == "stop", "nsys waits for no range any more"


def test_a_vllm_without_the_flag_is_refused_before_the_load(tmp_path: Path, home: Path) -> None:
    with profiled(tmp_path, "vllm", configured=False) as fake:
        fake.server.behaviour.routes["GET /openapi.json"] = lambda _: (200, {"paths": {"/health": {}}})
        with pytest.raises(UsageError, match="without a profiler") as caught:
            ranged(fake, tmp_path / "out")
        assert """--profiler-config '{"profiler": "cuda"}'""" in caught.value.hint and not fake.server.bodies


def test_options_are_checked_before_a_server_starts(tmp_path: Path) -> None:
    options: dict[str, Any] = {"capture_range": "server", "concurrency": [1]}
    LiveOptions(method="nsys", launch="dsv4bench serve --device cuda", **options).check()
    for method, launch, message in (
        ("torch", None, "--range server with --with torch"),
        ("pm", IDLE, "--range server with --with pm"),
        ("nsys", None, "--with nsys records a server that it started"),
        ("nsys", "vllm serve M", "without a profiler"),
        ("nsys", "SGLANG_PROFILE_V2=1 python -m sglang.launch_server", "cannot be stopped"),
        ("nsys", "dsv4bench serve", "no cudaProfilerStart"),
    ):
        with pytest.raises(UsageError, match=message):
            LiveOptions(method=method, launch=launch, **options).check()


def test_the_embedded_server_bounds_a_window_between_its_steps(tmp_path: Path, home: Path) -> None:
    """Its own endpoint and engine, in a process that the session starts; only the CUDA runtime is a stand-in."""
    pytest.importorskip("torch")
    port, calls = free_port(), tmp_path / "calls"
    script = f"{HERE / 'ranged_engine.py'} {home} {calls} {HERE.parent / 'capture'}"
    launch = f"CUDA_VISIBLE_DEVICES= {sys.executable} {script} --port {port} --kernels optimized --threads 1"
    found = capture(None, tmp_path / "out", launch=launch, method="nsys", capture_range="server", concurrency=[1])
    (recorded,) = found.profile.document.captures
    assert recorded.label == "c1" and BOUNDED in recorded.notes
    assert calls.read_text().split() == ["start", "stop"]
    assert verbs(tmp_path)[:1] == ["launch"] and "stop" not in verbs(tmp_path)
    assert listening(port) is None and not Path(json.loads(home.read_text())).exists()
