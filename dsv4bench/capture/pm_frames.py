"""What a sampling process says to its parent: length-prefixed msgpack frames on a pipe; commands are single bytes.

parent → child   START, STOP, or the end of the pipe: clean up and exit
child → parent   Hello or Refused once; then Started, Batch…, Stopped for each recording; Refused may end it
"""

from __future__ import annotations

from typing import BinaryIO, Literal

import msgspec

from dsv4bench.host import pipe as host_pipe

START, STOP = b"S", b"E"

Why = Literal["missing", "library", "permission", "busy", "unsupported", "failed"]


class Hello(msgspec.Struct, tag=True, kw_only=True):
    """Ready to record these metrics of this GPU, all in one pass."""

    chip: str
    metrics: list[str]
    interval_ns: int
    left_out: list[str] = msgspec.field(default_factory=list)  # sets of metrics that this chip does not take, and why


class Refused(msgspec.Struct, tag=True, kw_only=True):
    """No recording, or no more of it. `hint` is what a user can do."""

    why: Why
    message: str
    hint: str = ""


class Started(msgspec.Struct, tag=True):
    """Samples are taken from now on."""

    epoch_ns: int


class Batch(msgspec.Struct, tag=True, kw_only=True):
    """Samples in order of time: int64 ends (epoch ns), int64 lengths (ns), float32 percents, row by row."""

    ends: bytes
    spans: bytes
    values: bytes


class Stopped(msgspec.Struct, tag=True, kw_only=True):
    """All samples of this recording were sent."""

    n_samples: int
    n_image_full: int = 0  # decodes that had more samples than room: some of them are lost
    n_overflows: int = 0  # the GPU's own buffer was full: recording began anew
    clock_shift_ns: int = 0  # added to the GPU's stamps, which were no wall-clock time
    lag_ns: int = 0  # least age of the newest sample when it was decoded
    cpu_s: float = 0.0
    longest_pass_s: float = 0.0


Frame = Hello | Refused | Started | Batch | Stopped

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def write_frame(pipe: BinaryIO, frame: Frame) -> None:
    host_pipe.write_message(pipe, _encoder.encode(frame))


def read_frame(pipe: BinaryIO) -> Frame | None:
    """The next frame; None when the other side is gone, or speaks something else."""
    raw = host_pipe.read_message(pipe)
    if raw is None:
        return None
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
