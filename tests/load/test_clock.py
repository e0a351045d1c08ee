"""The two clocks: what the kernel stamped, and when it may be believed."""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hostile_server import HEAD, LAST_CHUNK, HostileServer, Step, chunk, post
from sse_streams import NORMAL

from dsv4bench.load import clock, connection, loop, worker
from dsv4bench.load.clock import SO_TIMESTAMPNS, kernel_stamps_available, realtime_offset_ns, stamp_from
from dsv4bench.load.connection import make_poller
from dsv4bench.load.loop import Loop
from dsv4bench.load.messages import Finished, Job

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SO_TIMESTAMPNS is Linux's")
PIECES = [data for _, data in NORMAL]
SLOW: list[Step] = [HEAD, *(step for data in PIECES for step in (0.01, chunk(data))), 0.01, LAST_CHUNK]
SLACK_NS = 1_000_000  # two clocks, read one after the other


@pytest.fixture
def control() -> Iterator[int]:
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def loop_for(server: HostileServer, control: int, n: int = 1, kernel_stamps: bool = True) -> Loop:
    job = Job(
        host="127.0.0.1",
        port=server.port,
        slots=1,
        requests=post(n),
        indices=list(range(n)),
        requested=[None] * n,
        timeout_s=30,
        kernel_stamps=kernel_stamps,
    )
    made = Loop(job, control, lambda _: None, lambda _: None)
    assert made.connect() == 1
    return made


def test_a_stamp_is_found_among_the_ancillary_data() -> None:
    stamp = (socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("qq", 1_700_000_000, 123_456_789))
    other = (socket.SOL_SOCKET, SO_TIMESTAMPNS + 1, struct.pack("qq", 1, 1))
    assert stamp_from([other, stamp]) == 1_700_000_000_123_456_789
    assert stamp_from([other]) == stamp_from([]) == 0
    assert stamp_from([(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"short")]) == 0


def test_the_offset_joins_the_two_clocks() -> None:
    assert abs(time.monotonic_ns() + realtime_offset_ns() - time.time_ns()) < SLACK_NS * 50


def test_the_offset_is_that_of_the_quickest_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading during which the process was put aside says nothing."""
    mono = iter([0, 900, 1000, 1010, *(v for i in range(7) for v in (2000 * (i + 1), 2000 * (i + 1) + 500))])
    real = iter([50_000, 1005 + 7, *(99_999 for _ in range(7))])
    clocks = SimpleNamespace(monotonic_ns=lambda: next(mono), time_ns=lambda: next(real))
    monkeypatch.setattr(clock, "time", clocks)
    assert realtime_offset_ns() == 7


@LINUX
def test_linux_stamps() -> None:
    assert kernel_stamps_available()


def test_elsewhere_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.load.clock.sys.platform", "darwin")
    assert not kernel_stamps_available()


@LINUX
def test_every_read_is_stamped_between_the_server_s_send_and_our_own_stamp(control: int) -> None:
    with HostileServer(lambda _: SLOW) as server:
        running = loop_for(server, control)
        offset = realtime_offset_ns()
        running.run()
    (capture,) = running.kept
    assert len(capture.reads) == len(server.sent_ns) == len(PIECES) + 2
    for sent_ns, read in zip(server.sent_ns, capture.reads, strict=True):
        kernel_ns = read.kernel_ns - offset
        assert sent_ns - SLACK_NS <= kernel_ns <= read.user_ns + SLACK_NS


class SleepyPoller:
    """What the poller of a client looks like whose machine is busy."""

    def __init__(self) -> None:
        self._poller = make_poller()
        self.register, self.modify = self._poller.register, self._poller.modify
        self.unregister = self._poller.unregister

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        time.sleep(0.3)
        return self._poller.poll(timeout, maxevents)


@LINUX
def test_a_busy_client_does_not_move_the_kernel_s_stamps(control: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "make_poller", SleepyPoller)
    with HostileServer(lambda _: [HEAD + chunk(b"".join(PIECES)) + LAST_CHUNK]) as server:
        running = loop_for(server, control)
        offset = realtime_offset_ns()
        running.run()
    (read,) = next(iter(running.kept)).reads
    assert server.sent_ns[0] - SLACK_NS <= read.kernel_ns - offset <= read.user_ns - 100_000_000


def measured(server: HostileServer, control: int, **more: bool) -> Finished:
    return worker._measure(loop_for(server, control, 3, **more))


@LINUX
def test_a_level_uses_the_kernel_s_stamps_and_tells_the_client_s_lag(control: int) -> None:
    with HostileServer(lambda _: SLOW) as server:
        finished = measured(server, control)
    assert (finished.timestamps, finished.notes) == ("kernel", [])
    lag = array.array("q", finished.lag_ns)
    assert len(lag) == finished.reads == sum(r.reads for r in finished.records)
    assert min(lag) > -SLACK_NS


@LINUX
def test_a_stepped_clock_discards_the_kernel_s_stamps(control: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 3_600_000_000_000
    offsets = iter([realtime_offset_ns() + hour, realtime_offset_ns()])
    monkeypatch.setattr(worker, "realtime_offset_ns", lambda: next(offsets))
    with HostileServer(lambda _: SLOW) as server:
        finished = measured(server, control)
    assert finished.timestamps == "user"
    assert "clock was stepped" in finished.notes[0]
    for r in finished.records:
        assert r.ok and r.ttft_s is not None and 0 < r.ttft_s < 60  # by the wrong offset it would be an hour


def test_without_the_kernel_the_user_s_stamps_serve(control: int) -> None:
    with HostileServer(lambda _: SLOW) as server:
        finished = measured(server, control, kernel_stamps=False)
    assert finished.timestamps == "user"
    assert [(r.ok, len(r.chunk_ns)) for r in finished.records] == [(True, 8)] * 3
    assert len(array.array("q", finished.lag_ns)) > 0  # how long the loop's turns took stands in for the lag


@LINUX
def test_a_level_with_too_few_stamps_uses_none(control: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the reads without a stamp: two kinds of time must not meet in one level."""
    count = iter(range(10**6))
    monkeypatch.setattr(connection, "stamp_from", lambda a: stamp_from(a) if next(count) % 2 else 0)
    with HostileServer(lambda _: SLOW) as server:
        assert measured(server, control).timestamps == "user"
