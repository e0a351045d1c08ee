"""`profile URL` when it goes wrong: the server is told to stop in every case, and what happened is said."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_profiles import Said, capture, quick_windows
from profiled_server import ProfiledServer, profiled, until

from dsv4bench.capture import rank_files
from dsv4bench.errors import BenchError, MeasuredBad, UsageError


@pytest.fixture(autouse=True)
def quick(tmp_path: Path) -> Iterator[None]:
    with quick_windows(tmp_path):
        yield


@pytest.fixture
def sglang(tmp_path: Path) -> Iterator[ProfiledServer]:
    with profiled(tmp_path, "sglang") as fake:
        yield fake


def ended_badly(fake: ProfiledServer, root: Path, said: Said, **fields: Any) -> BenchError:
    with pytest.raises(BenchError) as caught:
        capture(fake.url, root, said, concurrency=[2], **fields)
    return caught.value


def test_a_start_that_hangs(sglang: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.server.profiling.START_S", 0.5)
    monkeypatch.setattr("dsv4bench.server.profiling.HttpProfiler.__init__.__defaults__", (0.5,))
    sglang.hangs = {"start"}
    said = Said()
    e = ended_badly(sglang, tmp_path / "out", said)
    assert isinstance(e, MeasuredBad) and "/start_profile: no answer within 0.5 s" in e.message
    assert sglang.calls == ["start", "stop"] and not sglang.recording
    assert said.has("was told to stop profiling, and did")


def test_a_stop_that_hangs(sglang: ProfiledServer, tmp_path: Path) -> None:
    sglang.hangs = {"stop"}
    said = Said()
    e = ended_badly(sglang, tmp_path / "out", said, flush_timeout_s=0.5)
    assert "gave no answer within 0.5 s" in e.message
    assert said.has("it may still write its trace, or still record")


def test_a_profile_of_somebody_else_is_not_ended(sglang: ProfiledServer, tmp_path: Path) -> None:
    sglang.status["start"] = (500, "Internal Server Error")
    e = ended_badly(sglang, tmp_path / "out", Said())
    assert isinstance(e, UsageError) and "is a profile already running" in e.hint and "stop_profile" in e.hint
    assert sglang.calls == ["start"]


def test_control_calls_may_need_a_key_of_their_own(
    sglang: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sglang.status["start"] = (401, {"error": {"message": "admin only"}})
    e = ended_badly(sglang, tmp_path / "out", Said())
    assert "admin only" in e.message and "DSV4BENCH_ADMIN_KEY" in e.hint


def test_a_server_that_dies_while_it_is_profiled(sglang: ProfiledServer, tmp_path: Path) -> None:
    def start(body: dict[str, Any]) -> tuple[int, Any] | None:
        answer = sglang.start(body)
        threading.Timer(0.05, sglang.server.die).start()
        return answer

    sglang.server.behaviour.routes["POST /start_profile"] = start
    said = Said()
    e = ended_badly(sglang, tmp_path / "out", said)
    assert isinstance(e, MeasuredBad) and "could not be held" in e.message
    assert said.has("could not be told to stop profiling, it is gone")


def test_a_server_that_dies_while_it_writes(sglang: ProfiledServer, tmp_path: Path) -> None:
    """It leaves the call unanswered: its front end waits for an engine that is gone."""

    def stop(_: dict[str, Any]) -> tuple[int, Any] | None:
        http = sglang.server._http
        assert http is not None
        threading.Thread(target=lambda: (http.shutdown(), http.server_close())).start()  # takes nothing more
        return None

    sglang.server.behaviour.routes["POST /stop_profile"] = stop
    e = ended_badly(sglang, tmp_path / "out", Said())
    assert isinstance(e, MeasuredBad) and "died while it was told to stop profiling" in e.message


def test_a_load_that_fails_while_it_is_profiled(sglang: ProfiledServer, tmp_path: Path) -> None:
    def start(body: dict[str, Any]) -> tuple[int, Any] | None:
        answer = sglang.start(body)
        threading.Timer(0.05, cut, (list(sglang.server._open),)).start()  # the server itself goes on
        return answer

    def cut(streams: list[socket.socket]) -> None:
        for s in streams:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    sglang.server.behaviour.routes["POST /start_profile"] = start
    said = Said()
    e = ended_badly(sglang, tmp_path / "out", said)
    assert "could not be held" in e.message
    assert sglang.calls == ["start", "stop"] and not sglang.recording


def test_no_space_for_the_trace(sglang: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sglang.torn = True
    free = {"bytes": 1 << 40}

    def stop(body: dict[str, Any]) -> tuple[int, Any] | None:
        free["bytes"] = 3_000_000
        return sglang.stop(body)

    sglang.server.behaviour.routes["POST /stop_profile"] = stop
    monkeypatch.setattr(rank_files, "free_bytes", lambda _: free["bytes"])
    e = ended_badly(sglang, tmp_path / "out", Said())
    assert "was not written to its end" in e.message and "3 MB left: no space for a trace" in e.hint


def test_without_space_nothing_is_started(
    sglang: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_files, "free_bytes", lambda _: 1000)
    assert "no space for a trace" in ended_badly(sglang, tmp_path / "out", Said()).message
    assert sglang.calls == []


def test_ctrl_c_in_the_window_tells_the_server_to_stop(sglang: ProfiledServer, tmp_path: Path) -> None:
    def interrupt() -> None:
        until(lambda: sglang.recording, "recording")
        os.kill(os.getpid(), signal.SIGINT)

    sglang.crawls = True
    said = Said()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        capture(sglang.url, tmp_path / "out", said, concurrency=[2], steps=100)
    thread.join()
    assert sglang.calls == ["start", "stop"] and not sglang.recording
    assert said.has("the server was told to stop profiling, and did")
    until(lambda: sglang.server.running == 0, "the load is cancelled")


def test_what_was_captured_before_an_end_is_broken_down(sglang: ProfiledServer, tmp_path: Path) -> None:
    def start(body: dict[str, Any]) -> tuple[int, Any] | None:
        if len(sglang.calls) >= 2:
            sglang.status["start"] = (500, "Internal Server Error")
        return sglang.start(body)

    sglang.server.behaviour.routes["POST /start_profile"] = start
    found = capture(sglang.url, tmp_path / "out", concurrency=[1, 2])
    assert isinstance(found.error, UsageError)
    assert [s.label for s in found.profile.document.steps_by_label] == ["c1"]


def test_a_batch_limit_is_named(sglang: ProfiledServer, tmp_path: Path) -> None:
    lock = threading.Semaphore(3)  # the probe's, and two of the four
    sglang.server.behaviour.routes["GET /metrics"] = lambda _: (
        200,
        "sglang:num_running_reqs 2\nsglang:num_queue_reqs 2\n",
    )
    sglang.server.behaviour.on_request = lambda body: None if body["max_tokens"] <= 32 else _enter(lock, sglang)
    with pytest.raises(MeasuredBad, match="the server runs 2 at once, 2 wait") as caught:
        capture(sglang.url, tmp_path / "out", concurrency=[4], timeout_s=1.0)
    assert "--max-running-requests" in caught.value.hint


def _enter(lock: threading.Semaphore, fake: ProfiledServer) -> None:
    if not lock.acquire(blocking=False):
        fake.server.stopping.wait()
