"""One writer: refused while alive, taken over when dead."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from store_samples import make_experiment

from dsv4bench.errors import StoreError
from dsv4bench.records.experiment import Status
from dsv4bench.store import lock
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def hold(folder: Path, **fields: object) -> None:
    holder = msgspec.structs.replace(lock.me(), **fields)
    (folder / "lock").write_bytes(msgspec.json.encode(holder))


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        with pytest.raises(StoreError, match=f"process {os.getpid()} is writing here"):
            Store(tmp_path).resume(e.id)
        assert ExperimentDir.open(e.path).experiment.status is Status.RUNNING
    assert not (e.path / "lock").exists()


@pytest.mark.parametrize("case", ["dead", "reboot", "pid reused", "torn", "empty"])
def test_a_dead_lock_is_taken_over(tmp_path: Path, case: str) -> None:
    if case == "dead":
        hold(tmp_path, pid=dead_pid())
    elif case == "reboot":
        hold(tmp_path, boot="another boot")
    elif case == "pid reused":
        hold(tmp_path, started="1")
    else:
        (tmp_path / "lock").write_bytes(b'{"pid": 1' if case == "torn" else b"")
    assert not lock.held(tmp_path)
    taken = lock.Lock(tmp_path)
    assert lock.held(tmp_path) and lock.read(tmp_path / "lock") == lock.me()
    taken.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fields", [{"boot": "b", "host_sha256": "h"}, {"pid_namespace": "pid:[1]"}])
def test_what_cannot_be_seen_from_here_counts_as_alive(tmp_path: Path, fields: dict[str, str]) -> None:
    hold(tmp_path, **fields)
    with pytest.raises(StoreError, match="another host or container") as e:
        lock.Lock(tmp_path)
    assert f"delete {tmp_path}/lock" in e.value.hint


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = lock._started(child.pid)
    holder = msgspec.structs.replace(lock.me(), pid=child.pid, started=started)
    assert started and lock.liveness(holder) == "alive"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
    assert lock.liveness(holder) == "dead"
    child.communicate()


def test_a_lock_that_another_took_is_not_released(tmp_path: Path) -> None:
    mine = lock.Lock(tmp_path)
    hold(tmp_path, started="2")
    mine.release()
    assert (tmp_path / "lock").exists()


def test_a_taker_waits_for_another_and_then_finds_it_alive(tmp_path: Path) -> None:
    hold(tmp_path, pid=dead_pid())
    outcome: list[str] = []

    def take() -> None:
        try:
            lock.Lock(tmp_path)
        except StoreError as e:
            outcome.append(e.message)

    with (tmp_path / "lock").open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        taker = threading.Thread(target=take)
        taker.start()
        taker.join(timeout=0.3)
        assert taker.is_alive() and outcome == []
        other.truncate()
        other.write(msgspec.json.encode(lock.me()))
    taker.join()
    assert len(outcome) == 1 and f"process {os.getpid()} is writing here" in outcome[0]


def test_of_many_takers_one_wins(tmp_path: Path) -> None:
    hold(tmp_path, pid=dead_pid())
    script = (
        "import sys, pathlib; from dsv4bench.store.lock import Lock; from dsv4bench.errors import StoreError\n"
        "input()\n"
        "try: Lock(pathlib.Path(sys.argv[1])); print('won', flush=True)\n"
        "except StoreError: print('lost', flush=True)\n"
        "input()\n"
    )
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for t in takers:
        assert t.stdin is not None
        t.stdin.write("\n")
        t.stdin.flush()
    said = [t.stdout.readline().strip() for t in takers if t.stdout is not None]
    for t in takers:
        t.communicate("\n")
    assert sorted(said) == ["lost", "lost", "lost", "won"]
