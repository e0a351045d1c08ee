"""A level, run by worker processes: min(ceil(C/512), cores − 1) of them, at least one.

`run_level` deals the requests out, lets all workers open their connections, starts them together, reports progress,
and merges what they bring home onto the earliest worker's clock (all workers share this host's monotonic clock).
Ctrl-C once cancels what is in flight and keeps what was measured.
"""

from __future__ import annotations

import array
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.load.messages import Failed, Finished, Go, Job, Message, Ready, Stop, Tick, read_message, write_message
from dsv4bench.records.request import RequestRecord

STREAMS_A_WORKER = 512
TICK_S = 0.25


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What a level sends: the same for every worker count."""

    host: str
    port: int
    tls: bool
    verify: bool
    requests: list[bytes]
    requested: list[int | None]
    slots: int  # requests in flight (closed loop); connections opened ahead (open loop)
    schedule_ns: list[int] | None = None
    duration_s: float | None = None
    timeout_s: float = 300.0
    kernel_stamps: bool = True
    reuse: bool = True
    watch: bool = False  # for `hold`


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a level brought: records by index, times from the earliest worker's start."""

    records: list[RequestRecord]
    start_ns: int  # the earliest worker's start, on this host's monotonic clock
    start_epoch_s: float
    timestamps: str
    lag_ns: array.array[int]
    reads: int
    worker_cpu_frac: float
    cpu_s: float
    parse_cpu_s: float
    wall_s: float
    n_workers: int
    unsent: int
    reuse: bool
    interrupted: bool
    server_gone: str | None
    notes: list[str]


TickCallback = Callable[[Tick, float], None]


def worker_count(slots: int) -> int:
    return max(1, min(-(-slots // STREAMS_A_WORKER), (os.cpu_count() or 2) - 1))


def run_level(level: Level, on_tick: TickCallback | None = None) -> Outcome:
    """Run one level to its end. Raises MeasuredBad when nothing takes a connection or a worker is lost."""
    workers: list[WorkerProcess] = []
    try:
        start_workers(level, workers)
        interrupted = _wait(workers, on_tick)
    finally:
        for w in workers:
            w.end()
    return merged([w.finished for w in workers if w.finished is not None], interrupted)


def start_workers(level: Level, workers: list[WorkerProcess]) -> None:
    """Start the level's workers together, each in `workers` as soon as it exists: the caller ends them.

    Raises MeasuredBad when nothing takes a connection, UsageError when the host cannot be found.
    """
    n = worker_count(level.slots)
    for i in range(n):
        workers.append(WorkerProcess(_share(level, i, n)))
    _ready(workers, level)
    for w in workers:
        w.tell(Go())


class WorkerProcess:
    """One worker: what it was told, and what it has said so far."""

    def __init__(self, job: Job) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dsv4bench.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what select() says must be what read() finds
            process_group=0,  # a terminal's Ctrl-C is ours to pass on, also before the worker ignores it
        )
        self.finished: Finished | None = None
        self.tick = Tick(0, 0, 0, 0, True)
        self.tell(job)

    @property
    def out(self) -> BinaryIO:
        assert self.process.stdout is not None
        return self.process.stdout  # type: ignore[return-value]

    def tell(self, message: Message) -> None:
        assert self.process.stdin is not None
        # a worker that has ended: `hear` finds its last words, or that there are none
        with contextlib.suppress(BrokenPipeError):
            write_message(self.process.stdin, message)  # type: ignore[arg-type]

    def hear(self) -> Message:
        message = read_message(self.out)
        if message is None:
            code = self.process.wait()
            raise MeasuredBad(
                f"a load worker ended unexpectedly (exit code {code})", "out of memory? see its message above"
            )
        if isinstance(message, Failed):
            raise UsageError(message.message, message.hint)
        return message

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _share(level: Level, i: int, n: int) -> Job:
    """Worker i of n gets every n-th request, and its part of the slots."""
    own = range(i, len(level.requests), n)
    return Job(
        host=level.host,
        port=level.port,
        tls=level.tls,
        verify=level.verify,
        slots=level.slots // n + (i < level.slots % n),
        requests=[level.requests[k] for k in own],
        indices=list(own),
        requested=[level.requested[k] for k in own],
        schedule_ns=None if level.schedule_ns is None else [level.schedule_ns[k] for k in own],
        duration_s=level.duration_s,
        timeout_s=level.timeout_s,
        kernel_stamps=level.kernel_stamps,
        reuse=level.reuse,
        watch=level.watch,
    )


def _ready(workers: list[WorkerProcess], level: Level) -> None:
    connected, why = 0, ""
    for w in workers:
        message = w.hear()
        assert isinstance(message, Ready)
        connected += message.connected
        why = message.why_not or why
    if not connected:
        hint = "is the server still running? see its log"
        if "CERTIFICATE_VERIFY_FAILED" in why:
            hint = "--insecure accepts a certificate that cannot be verified"
        raise MeasuredBad(f"{level.host}:{level.port} takes no connection: {why}", hint)


def _wait(workers: list[WorkerProcess], on_tick: TickCallback | None) -> bool:
    """Until all have finished; True when the user interrupted."""
    selector = selectors.DefaultSelector()
    for w in workers:
        selector.register(w.out, selectors.EVENT_READ, w)
    start, stopped = time.monotonic(), False
    with _Interrupts() as interrupts:
        while any(w.finished is None for w in workers):
            for key, _ in selector.select(TICK_S):
                w = key.data
                message = w.hear()
                if isinstance(message, Finished):
                    w.finished = message
                    selector.unregister(w.out)
                elif isinstance(message, Tick):
                    w.tick = message
            if interrupts.count and not stopped:
                stopped = True
                for w in workers:
                    if w.finished is None:
                        w.tell(Stop(cancel=True))
            if on_tick is not None:
                on_tick(_sum(workers), time.monotonic() - start)
    return stopped


class _Interrupts:
    """Counts Ctrl-C instead of raising it, so that no message is cut in half; the second one raises."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


def _sum(workers: list[WorkerProcess]) -> Tick:
    ticks = [w.tick for w in workers]
    return Tick(
        sum(t.in_flight for t in ticks),
        sum(t.done for t in ticks),
        sum(t.failed for t in ticks),
        sum(t.reads for t in ticks),
        any(t.sending for t in ticks),
    )


def merged(parts: list[Finished], interrupted: bool) -> Outcome:
    """What all workers brought, on the clock of the earliest."""
    first = min(p.start_ns for p in parts)
    records, lag = [], array.array("q")
    for p in parts:
        lag.frombytes(p.lag_ns)
        records += [_shifted(r, p.start_ns - first) for r in p.records]
    kernel = all(p.timestamps == "kernel" for p in parts)
    return Outcome(
        records=sorted(records, key=lambda r: r.index),
        start_ns=first,
        start_epoch_s=min(p.start_epoch_s for p in parts),
        timestamps="kernel" if kernel else "user",
        lag_ns=lag,
        reads=sum(p.reads for p in parts),
        worker_cpu_frac=max(p.cpu_s / p.wall_s if p.wall_s else 0.0 for p in parts),
        cpu_s=sum(p.cpu_s for p in parts),
        parse_cpu_s=sum(p.parse_cpu_s for p in parts),
        wall_s=max(p.wall_s for p in parts),
        n_workers=len(parts),
        unsent=sum(p.unsent for p in parts),
        reuse=all(p.reuse for p in parts),
        interrupted=interrupted,
        server_gone=next((p.server_gone for p in parts if p.server_gone), None),
        notes=sorted({note for p in parts for note in p.notes}),
    )


_TIMES = ("t_sched_ns", "t_send_ns", "t_headers_ns", "t_first_chunk_ns", "t_first_ns", "t_first_content_ns")


def _shifted(r: RequestRecord, by: int) -> RequestRecord:
    if not by:
        return r
    moved = {name: None if (t := getattr(r, name)) is None else t + by for name in (*_TIMES, "t_last_ns", "t_end_ns")}
    sent = None if r.sent_ns is None else [t + by for t in r.sent_ns]
    return msgspec.structs.replace(r, chunk_ns=[t + by for t in r.chunk_ns], sent_ns=sent, **moved)
