"""One window of recording a server, as it crosses rooms: what recorded it, what came of it, when, under which load.

A `Captured` is made by the window that was closed (method, files, samples, moments, notes); the run that held the
load adds label, role, concurrency and the decode steps with `dataclasses.replace`. The files are then read like any
file that a user names with --trace.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, get_args

from dsv4bench.records.trace import DeviceSamples

Method = Literal["torch", "nsys", "ncu", "pm"]
METHODS: tuple[str, ...] = get_args(Method)


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks of this host."""

    monotonic_ns: int
    epoch_ns: int

    @staticmethod
    def now() -> Moment:
        return Moment(time.monotonic_ns(), time.time_ns())


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a window brought. `files` are whole and lie on this host; `server_path` is where the server wrote instead.

    `kept` are copies that stay where `files` go with the recorder's session (nsys). `opened` and `closed` bracket the
    recording: the recorder had confirmed its start at `opened`, and was told to stop at `closed`. `steps_seen` are
    decode steps between them by the client's count (the fewest tokens of any stream over the tokens a step).
    `samples` are those of a method that writes no trace (pm).
    """

    method: Method
    opened: Moment
    closed: Moment
    files: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    server_path: str | None = None
    samples: list[DeviceSamples] = field(default_factory=list)
    label: str | None = None
    role: str | None = None  # decode | prefill, where they are separate servers
    concurrency: int | None = None
    steps_asked: int | None = None
    steps_seen: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the recording lasted."""
        return (self.closed.monotonic_ns - self.opened.monotonic_ns) / 1e9
