"""One load worker: `python -m dsv4bench.load.worker`, job on stdin, records on stdout.

Its own process, so that parsing, telemetry and display never share an interpreter with the hot path. It ends when its
parent does (stdin closes). Parsing begins when the level is over; the garbage collector rests until then.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import signal
import time

from dsv4bench.load.clock import STEP_NS, kernel_stamps_available, realtime_offset_ns
from dsv4bench.load.loop import Loop
from dsv4bench.load.messages import (
    Failed,
    Finished,
    Go,
    Job,
    Ready,
    Stop,
    Tick,
    Watched,
    read_message,
    write_message,
)
from dsv4bench.load.reading import Read, read_record
from dsv4bench.load.watch import Watch
from dsv4bench.records.request import RequestRecord

TICK_NS = 250_000_000
STAMPED_FRAC = 0.99  # below this share of stamped reads the level uses user stamps throughout


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    stdin, stdout = os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0)
    job = read_message(stdin)
    if not isinstance(job, Job):
        return
    job.kernel_stamps = job.kernel_stamps and kernel_stamps_available()
    last_tick = 0

    def control(loop: Loop) -> None:
        message = read_message(stdin)
        if message is None:
            os._exit(1)  # the parent is gone
        if isinstance(message, Stop):
            loop.sending = False
            if message.cancel:
                loop.cancel()

    watch = Watch()

    def tick(loop: Loop) -> None:
        nonlocal last_tick
        if loop.job.watch:  # at every scan
            write_message(stdout, Watched(time.monotonic_ns(), watch.look(loop.live()), loop.done, loop.failed))
            return
        now = time.monotonic_ns()
        if now - last_tick >= TICK_NS:
            last_tick = now
            write_message(stdout, Tick(loop.in_flight, loop.done, loop.failed, loop.reads, loop.sending))

    try:
        loop = Loop(job, stdin.fileno(), control, tick)
        connected = loop.connect()
    except OSError as e:
        write_message(stdout, Failed(f"{job.host}:{job.port}: {e.strerror or e}", "check the host name"))
        return
    write_message(stdout, Ready(connected, loop.why_not_connected))
    if not isinstance(read_message(stdin), Go):
        return
    write_message(stdout, _measure(loop))


def _measure(loop: Loop) -> Finished:
    gc.collect()
    gc.freeze()
    gc.disable()
    offset = realtime_offset_ns()
    cpu, wall, epoch = time.process_time_ns(), time.monotonic_ns(), time.time()
    loop.run()
    cpu, wall = time.process_time_ns() - cpu, time.monotonic_ns() - wall
    stepped = abs(realtime_offset_ns() - offset) > STEP_NS
    gc.enable()
    parse_cpu = time.process_time_ns()
    records, lag_ns, timestamps = _records(loop, offset, stepped)
    parse_cpu = time.process_time_ns() - parse_cpu
    return Finished(
        start_ns=loop.start_ns,
        start_epoch_s=epoch,
        records=records,
        timestamps=timestamps,
        lag_ns=lag_ns.tobytes(),
        reads=loop.reads,
        cpu_s=cpu / 1e9,
        parse_cpu_s=parse_cpu / 1e9,
        wall_s=wall / 1e9,
        unsent=len(loop.job.requests) - loop.next,
        reuse=loop.reuse,
        server_gone=loop.server_gone,
        notes=["the system clock was stepped during the level: user stamps"] if stepped else [],
    )


def _records(loop: Loop, offset_ns: int, stepped: bool) -> tuple[list[RequestRecord], array.array[int], str]:
    """(records, lag of every read, kernel|user)."""
    stamped = sum(1 for capture in loop.kept for read in capture.reads if read.kernel_ns)
    kernel = not stepped and loop.reads > 0 and stamped >= STAMPED_FRAC * loop.reads

    def kernel_stamp(read: Read) -> int:
        return read.kernel_ns - offset_ns if read.kernel_ns else read.user_ns

    def user_stamp(read: Read) -> int:
        return read.user_ns

    stamp = kernel_stamp if kernel else user_stamp
    lag = array.array("q") if kernel else array.array("q", loop.turns_ns)
    records = []
    for capture in loop.kept:
        if kernel:
            lag.extend(read.user_ns - kernel_stamp(read) for read in capture.reads if read.kernel_ns)
        records.append(read_record(capture, stamp, loop.start_ns))
    return records, lag, "kernel" if kernel else "user"


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent was interrupted and is gone
        main()
