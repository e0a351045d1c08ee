"""Interrupts and deaths: one Ctrl-C keeps what was measured, and no worker stays behind or fails in silence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import level
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, post
from sse_streams import NORMAL, TOKENS

from dsv4bench.errors import MeasuredBad
from dsv4bench.load import pool
from dsv4bench.load.pool import run_level

STREAM = HEAD + chunk(b"".join(data for _, data in NORMAL)) + LAST_CHUNK
SLOW: list[Step] = [HEAD, *(step for _, data in NORMAL for step in (0.01, chunk(data))), LAST_CHUNK]


def wait_until(true: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{pid}\n" in status.read_text():
                found.append(int(status.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


IN_A_PROCESS = """
import json, sys
from dsv4bench.load.pool import Level, run_level
from hostile_server import post

def tick(t, elapsed):
    print(json.dumps([t.in_flight, t.done]), flush=True)

outcome = run_level(Level(host="127.0.0.1", port=int(sys.argv[1]), tls=False, verify=True, requests=post(50),
                          requested=[8] * 50, slots=3, timeout_s=60), tick)
print(json.dumps({"interrupted": outcome.interrupted, "unsent": outcome.unsent,
                  "errors": [r.error for r in outcome.records],
                  "chunks": [len(r.chunk_ns) for r in outcome.records]}))
"""


def level_in_a_process(port: int) -> subprocess.Popen[str]:
    """run_level in the main thread of a process of its own, in its own group."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    command = [sys.executable, "-c", IN_A_PROCESS, str(port)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": path}
    )


def six_then_silence(seen: Seen) -> list[Step]:
    return [STREAM] if seen.number <= 6 else [HEAD + chunk(TOKENS[0][1] + TOKENS[1][1]), End.HANG]


def wait_for_progress(process: subprocess.Popen[str], done: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line) == [3, done]:
            return
    raise AssertionError("it ended before that")


@pytest.mark.parametrize("whole_group", [False, True])
def test_one_interrupt_keeps_what_was_measured(whole_group: bool) -> None:
    with HostileServer(six_then_silence) as server:
        process = level_in_a_process(server.port)
        wait_for_progress(process, 6)
        if whole_group:  # what a terminal's Ctrl-C does: the workers get it too
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    outcome = json.loads(said.splitlines()[-1])
    assert (outcome["interrupted"], outcome["unsent"]) == (True, 41)
    assert sorted(map(str, outcome["errors"])) == ["None"] * 6 + ["cancelled"] * 3
    assert sorted(outcome["chunks"]) == [2] * 3 + [8] * 6


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it looks for the worker in /proc")
def test_a_killed_parent_leaves_no_worker() -> None:
    with HostileServer(six_then_silence) as server:
        process = level_in_a_process(server.port)
        wait_for_progress(process, 6)
        (worker,) = children_of(process.pid)
        assert is_alive(worker)
        assert os.getpgid(worker) == worker  # so that a terminal's Ctrl-C reaches the parent alone
        process.kill()
        process.communicate(timeout=20)
        wait_until(lambda: not is_alive(worker))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it looks for the worker in /proc")
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_killed_worker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, n_workers: int) -> None:
    monkeypatch.setattr(pool, "worker_count", lambda _: n_workers)
    before = set(children_of(os.getpid()))
    workers: set[int] = set()

    def kill_one() -> None:
        wait_until(lambda: server.in_flight >= 2)
        workers.update(set(children_of(os.getpid())) - before)
        os.kill(min(workers), signal.SIGKILL)

    with HostileServer(lambda _: [HEAD + chunk(TOKENS[0][1]), End.HANG]) as server:
        killer = threading.Thread(target=kill_one)
        killer.start()
        with pytest.raises(MeasuredBad, match=r"a load worker ended unexpectedly \(exit code -9\)"):
            run_level(level(server.port, 20, 2))
        killer.join()
    assert len(workers) == n_workers
    assert not any(is_alive(pid) for pid in workers)


def test_a_worker_that_cannot_start_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.load.pool.sys.executable", "/bin/false")
    with HostileServer(lambda _: [STREAM]) as server, pytest.raises(MeasuredBad, match="exit code 1"):
        run_level(level(server.port, requests=post(1, size=1 << 20)))  # more than a pipe holds
