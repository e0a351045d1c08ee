"""From the raw reads of one request to its record; runs after the level, off the clock.

A request completed when it brought at least one token and ended properly: a finish_reason other than error or abort,
or `[DONE]` with usage; the cut of a connection after that changes nothing. An error object anywhere in the stream, an
empty stream, a stream without an end, a 200 that is no stream: each is a failure with its own name, and keeps what it
brought. The time of an event is the stamp of the read that completed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dsv4bench.load.events import decode_event, error_text, storable
from dsv4bench.load.http1 import Response
from dsv4bench.load.stream import ERROR_TEXT_CHARS, Stream, StreamReader
from dsv4bench.records.request import ErrorKind, RequestRecord, TokenSource

FAILED_FINISH = ("error", "abort")


class Read(NamedTuple):
    """One recvmsg: the kernel's stamp (CLOCK_REALTIME ns, 0 when there is none), ours, and the bytes."""

    kernel_ns: int
    user_ns: int
    data: bytes


class Capture:
    """What the loop kept of one request. `error` is set when the socket, not the stream, ended it."""

    __slots__ = (
        "error",
        "error_text",
        "index",
        "position",
        "reads",
        "requested",
        "retried",
        "t_end",
        "t_sched",
        "t_send",
    )

    def __init__(
        self, index: int, requested: int | None = None, t_sched: int | None = None, position: int = 0
    ) -> None:
        self.index = index  # in the level
        self.position = position  # in the worker's list of requests
        self.requested = requested
        self.t_sched = t_sched
        self.t_send = 0
        self.t_end = 0
        self.reads: list[Read] = []
        self.error: ErrorKind | None = None
        self.error_text: str | None = None
        self.retried = False


StampOf = Callable[[Read], int]


def read_record(capture: Capture, stamp: StampOf, origin_ns: int) -> RequestRecord:
    """The record of one captured request; times become relative to `origin_ns`."""
    reader = StreamReader()
    for read in capture.reads:
        reader.read(stamp(read) - origin_ns, read.data)
    if capture.reads:
        reader.end(stamp(capture.reads[-1]) - origin_ns)
    stream, response = reader.stream, reader.response
    body = b"".join(reader.body) if not stream.chunk_ns else b""
    error, text = _verdict(capture, stream, response, reader.framing, body)
    return _record(capture, stream, response, origin_ns, error, text, reader.merged)


def _verdict(
    capture: Capture, stream: Stream, response: Response, framing: str | None, body: bytes
) -> tuple[str | None, str | None]:
    """(error, its text); (None, None) for a request that completed."""
    status = response.status
    if status is not None and status != 200:
        return f"http_{status}", _body_message(body)
    if framing is not None:
        return ErrorKind.BAD_RESPONSE, framing
    if stream.error is not None:
        return ErrorKind.IN_STREAM, stream.error
    if stream.finish in FAILED_FINISH:
        return ErrorKind.FINISH_ERROR, f'finish_reason "{stream.finish}"'
    ended = stream.finish is not None or (stream.done and stream.completion is not None)
    if stream.chunk_ns and ended:
        return None, None
    if capture.error is not None and (capture.error is not ErrorKind.CLOSED or not capture.reads):
        return capture.error, capture.error_text
    if stream.chunk_ns:
        return (
            ErrorKind.TRUNCATED,
            f"the stream ended after {len(stream.chunk_ns)} chunks without a finish_reason",
        )
    if stream.whole_reply:
        return ErrorKind.BAD_RESPONSE, "the server answered without streaming"
    if not stream.events and not stream.done and body.strip():
        return _unstreamed(body)
    if not response.complete and not stream.done:
        return ErrorKind.TRUNCATED, "the connection was cut before any token"
    return ErrorKind.EMPTY, "the stream ended and carried no token"


def _unstreamed(body: bytes) -> tuple[str, str]:
    """A 200 whose body is no event stream: an error object, a whole reply, or something else (HTML)."""
    event = decode_event(body)
    if event is not None:
        message = error_text(event)
        if message is not None:
            return ErrorKind.IN_STREAM, message[:ERROR_TEXT_CHARS]
        if event.choices:
            return ErrorKind.BAD_RESPONSE, "the server answered without streaming"
    return ErrorKind.BAD_RESPONSE, f"not an event stream: {body[:80].decode(errors='replace')!r}"


def _body_message(body: bytes) -> str:
    event = decode_event(body)
    message = error_text(event) if event is not None else None
    if message is None and event is not None and event.message is not None:
        message = storable(event.message)
    return (message or body.decode(errors="replace").strip())[:ERROR_TEXT_CHARS]


def _record(
    capture: Capture,
    stream: Stream,
    response: Response,
    origin_ns: int,
    error: str | None,
    text: str | None,
    merged: int,
) -> RequestRecord:
    if stream.completion:
        tokens, source = stream.completion, TokenSource.USAGE
    elif stream.chunk_ns:
        tokens, source = len(stream.chunk_ns), TokenSource.CHUNKS
    else:
        tokens, source = None, TokenSource.NONE
    counted = _tokens_a_chunk(stream.totals) if source is TokenSource.USAGE else None
    n_first = counted[0] if counted is not None else None
    t_end = stream.t_done if stream.t_done is not None and error is None else capture.t_end - origin_ns
    return RequestRecord(
        index=capture.index,
        t_sched_ns=None if capture.t_sched is None else capture.t_sched - origin_ns,
        t_send_ns=capture.t_send - origin_ns,
        t_headers_ns=stream.t_headers,
        t_first_chunk_ns=stream.t_first_chunk,
        t_first_ns=stream.t_first,
        t_first_content_ns=stream.t_first_content,
        t_last_ns=stream.chunk_ns[-1] if stream.chunk_ns else None,
        t_end_ns=t_end,
        chunk_ns=stream.chunk_ns,
        chunk_tokens=counted,
        n_first=n_first,
        output_tokens=tokens,
        prompt_tokens=stream.prompt,
        cached_tokens=stream.cached,
        token_source=source,
        requested_tokens=capture.requested,
        finish_reason=stream.finish,
        status=response.status,
        error=None if error is None else str(error),
        error_text=text,
        retried=capture.retried,
        reads=len(capture.reads),
        merged_reads=merged,
        saw_done=stream.done,
        sent_ns=[t - origin_ns for t in stream.sent_ns] or None,
    )


def _tokens_a_chunk(totals: list[int | None]) -> list[int] | None:
    """Tokens each chunk brought, from the running totals; None unless the server counted at every chunk."""
    counts, last = [], 0
    for total in totals:
        if total is None or total < last:
            return None
        counts.append(total - last)
        last = total
    return counts or None
