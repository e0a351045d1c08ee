"""What the tests of the loop and the pool send to a `HostileServer`: jobs, run in this process, and levels."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hostile_server import HostileServer, Reply, Step, post

from dsv4bench.load.loop import Loop
from dsv4bench.load.messages import Job
from dsv4bench.load.pool import Level
from dsv4bench.load.reading import read_record
from dsv4bench.records.request import RequestRecord


def job_for(port: int, n: int = 1, slots: int = 1, requests: list[bytes] | None = None, **more: Any) -> Job:
    requests = post(n) if requests is None else requests
    n = len(requests)
    defaults: dict[str, Any] = {"timeout_s": 30.0}
    return Job(
        host="127.0.0.1",
        port=port,
        slots=slots,
        requests=requests,
        indices=list(range(n)),
        requested=[8] * n,
        **{**defaults, **more},
    )


def drive(job: Job, tick: Callable[[Loop], None] = lambda _: None) -> tuple[Loop, list[RequestRecord]]:
    """Run a job here, in this process: (the loop, its records in the order of requests)."""
    reader, writer = os.pipe()
    try:
        running = Loop(job, reader, lambda _: None, tick)
        running.connect()
        running.run()
    finally:
        os.close(reader)
        os.close(writer)
    records = [read_record(capture, lambda read: read.user_ns, running.start_ns) for capture in running.kept]
    assert running.in_flight == 0 and running.done == len(records)
    return running, sorted(records, key=lambda r: r.index)


def run(reply: Reply, **more: Any) -> tuple[HostileServer, Loop, list[RequestRecord]]:
    with HostileServer(reply) as server:
        running, records = drive(job_for(server.port, **more))
    return server, running, records


def one(steps: list[Step], **more: Any) -> RequestRecord:
    return run(lambda _: steps, **more)[2][0]


def level(port: int, n: int = 1, slots: int = 1, requests: list[bytes] | None = None, **more: Any) -> Level:
    requests = post(n) if requests is None else requests
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "tls": False,
        "verify": True,
        "requests": requests,
        "requested": [8] * len(requests),
        "slots": slots,
        "timeout_s": 30.0,
    }
    return Level(**{**fields, **more})
