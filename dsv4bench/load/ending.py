"""When a stream is over although its connection stays open and its framing has not ended.

Some servers keep the socket open after `[DONE]`, so a silent stream is asked whether it has said so: as an event,
not in generated text, and also when the event was split over several reads. Comments (`: ping`) count as silence:
they come from a front end, whose engine may be dead.
"""

from __future__ import annotations

import re

from dsv4bench.load.connection import Connection
from dsv4bench.load.http1 import Response
from dsv4bench.load.reading import Capture
from dsv4bench.load.sse import SseParser

DONE = b"[DONE]"
TAIL_BYTES = 96  # holds [DONE] even when each of its bytes came as a chunk of its own
PING_BYTES = 64
_NOT_CAPITAL = re.compile(rb"[^A-Z]+")
_PING = re.compile(rb"(?:(?:[0-9a-fA-F]+\r\n)?:[^\r\n]*[\r\n]+)+")  # with or without chunk framing


def is_ping(data: bytes) -> bool:
    """Whether a read holds comments only; a longer one is taken for more."""
    return len(data) <= PING_BYTES and _PING.fullmatch(data) is not None


def is_done(c: Connection, capture: Capture) -> bool:
    """Whether the silent stream has said [DONE]; it is read as a whole only on a suspicion, once a silence."""
    if c.judged == len(capture.reads):
        return False
    c.judged = len(capture.reads)
    suspicious, c.said_done = c.said_done or may_end_in_done(capture), False
    return suspicious and saw_done(capture)


def may_end_in_done(capture: Capture) -> bool:
    """[DONE] in the last bytes, whole or split, with or without chunk framing between the pieces. May be wrong."""
    tail = b""
    for read in reversed(capture.reads):
        tail = read.data[-TAIL_BYTES:] + tail
        if len(tail) >= TAIL_BYTES:
            break
    return b"DONE" in _NOT_CAPITAL.sub(b"", tail)


def saw_done(capture: Capture) -> bool:
    """Whether the stream so far holds the `[DONE]` event (not merely text that says so)."""
    response, parser = Response(), SseParser()
    for read in capture.reads:
        parts: list[bytes] = []
        response.feed(read.data, parts)
        for part in parts:
            if any(data.strip() == DONE for _, data in parser.feed(part)):
                return True
    return any(data.strip() == DONE for _, data in parser.flush())
