"""Whole messages between our own processes: bytes behind their length, over an unbuffered pipe.

What the bytes mean is the caller's; load workers and sampling processes both speak msgpack over it.
"""

from __future__ import annotations

from typing import BinaryIO

HEADER_BYTES = 4


def write_message(pipe: BinaryIO, raw: bytes) -> None:
    """All of `raw`, however little a write takes. Raises OSError when the other side is gone."""
    rest = memoryview(len(raw).to_bytes(HEADER_BYTES, "little") + raw)
    while rest:
        rest = rest[pipe.write(rest) :]


def read_message(pipe: BinaryIO) -> bytes | None:
    """The next message; None when the other side is gone, in the middle of one too."""
    head = _exactly(pipe, HEADER_BYTES)
    return _exactly(pipe, int.from_bytes(head, "little")) if head else None


def _exactly(pipe: BinaryIO, n: int) -> bytes | None:
    parts, left = [], n
    while left:
        part = pipe.read(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
