"""What the parent and a load worker say to each other: length-prefixed msgpack frames over two unbuffered pipes."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from dsv4bench.host import pipe as host_pipe
from dsv4bench.records.request import RequestRecord


class Job(msgspec.Struct, tag=True, kw_only=True):
    """One worker's share of a level. Requests are whole HTTP messages; nothing is encoded after the start.

    Closed loop: `slots` requests in flight until the requests or `duration_s` run out. Open loop: request i is sent
    at `schedule_ns[i]` after the start.
    """

    host: str
    port: int
    tls: bool = False
    verify: bool = True
    slots: int
    requests: list[bytes]
    indices: list[int]
    requested: list[int | None]
    schedule_ns: list[int] | None = None
    duration_s: float | None = None
    timeout_s: float = 300.0
    kernel_stamps: bool = True
    reuse: bool = True  # connections; what an earlier level of the same server has shown
    watch: bool = False  # tell of every stream while it runs (`Watched`), not only at the end


class Go(msgspec.Struct, tag=True):
    """Start now."""


class Stop(msgspec.Struct, tag=True):
    """Send nothing more; `cancel` drops what is in flight, else it is drained."""

    cancel: bool = True


class Ready(msgspec.Struct, tag=True):
    """Connections are open; the clock can start."""

    connected: int
    why_not: str = ""  # the last failure to connect


class Tick(msgspec.Struct, tag=True):
    """Progress since the start."""

    in_flight: int
    done: int
    failed: int
    reads: int
    sending: bool


class StreamCount(msgspec.Struct, frozen=True, array_like=True):
    """How far one live request is; `tokens` is the server's running count, None where it tells none on the way."""

    index: int
    chunks: int
    tokens: int | None = None


class Watched(msgspec.Struct, tag=True):
    """Every live request of this worker, some twenty times a second, and what has ended so far."""

    at_ns: int  # monotonic
    streams: list[StreamCount]
    done: int
    failed: int


class Finished(msgspec.Struct, tag=True, kw_only=True):
    """The level's records of this worker. Times are relative to `start_ns` (monotonic)."""

    start_ns: int
    start_epoch_s: float
    records: list[RequestRecord]
    timestamps: str  # kernel | user
    lag_ns: bytes  # array('q') of user stamp − kernel stamp, or of loop turns without kernel stamps
    reads: int
    cpu_s: float  # on the clock
    parse_cpu_s: float  # after it
    wall_s: float
    unsent: int
    reuse: bool
    server_gone: str | None = None
    notes: list[str] = msgspec.field(default_factory=list)


class Failed(msgspec.Struct, tag=True):
    """The worker cannot do the job; `message` says why."""

    message: str
    hint: str = ""


Message = Job | Go | Stop | Ready | Tick | Watched | Finished | Failed

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def write_message(pipe: BinaryIO, message: Message) -> None:
    host_pipe.write_message(pipe, _encoder.encode(message))


def read_message(pipe: BinaryIO) -> Message | None:
    """The next message; None when the other side is gone."""
    raw = host_pipe.read_message(pipe)
    return _decoder.decode(raw) if raw is not None else None
