"""Profiles one after the other in one process, as a campaign runs them: nothing of one is left for the next."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_profiles import capture, quick_windows
from profiled_server import ProfiledServer, profiled

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[ProfiledServer]:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as server:
        yield server


def children() -> set[str]:
    tasks = Path(f"/proc/{os.getpid()}/task")
    return {pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()}


def ours() -> set[str]:
    """Names of threads that a profile starts; the test's server has a thread a connection."""
    return {t.name for t in threading.enumerate() if t.name in ("held-load", "stop-profile", "gauge-scraper")}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux tells its processes")
def test_one_after_the_other_leaves_nothing(fake: ProfiledServer, tmp_path: Path) -> None:
    before = [signal.getsignal(n) for n in SIGNALS]
    files = []
    for _ in range(3):
        found = capture(fake.url, tmp_path / "out", concurrency=[2], name="base")
        assert found.error is None and len(found.profile.stored) == 1
        files.append({str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists()})
        assert children() == set() and ours() == set()
    assert [signal.getsignal(n) for n in SIGNALS] == before
    assert not {f for f in files[2] if not f.startswith("socket:")} - files[0]
    assert fake.calls == ["start", "stop"] * 3


def test_from_another_thread(fake: ProfiledServer, tmp_path: Path) -> None:
    before, errors = [signal.getsignal(n) for n in SIGNALS], []

    def run() -> None:
        for _ in range(2):
            errors.append(capture(fake.url, tmp_path / "out", concurrency=[2]).error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(120)
    assert errors == [None, None] and not thread.is_alive() and ours() == set()
    assert [signal.getsignal(n) for n in SIGNALS] == before
