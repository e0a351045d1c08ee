"""One event stream while its reads are taken in order: what has arrived so far, and when.

`StreamReader` follows the framing and the events of a response, whole (after a level) or as it grows (while requests
are held in decode, `watch.py`). It decides nothing: whether a request completed is `reading.py`'s.
"""

from __future__ import annotations

from dsv4bench.load.events import Choice, Event, decode_event, error_text, storable, text_kinds
from dsv4bench.load.http1 import FramingError, Response
from dsv4bench.load.sse import SseParser

ERROR_TEXT_CHARS = 300


class Stream:
    """The state of one stream while its events are read in order."""

    def __init__(self) -> None:
        self.t_headers: int | None = None
        self.t_first_chunk: int | None = None
        self.t_first: int | None = None
        self.t_first_content: int | None = None
        self.t_done: int | None = None
        self.chunk_ns: list[int] = []
        self.totals: list[int | None] = []  # running token count at each chunk
        self.sent_ns: list[int] = []
        self.completion: int | None = None
        self.prompt: int | None = None
        self.cached: int | None = None
        self.finish: str | None = None
        self.error: str | None = None
        self.done = False
        self.whole_reply = False
        self.events = 0

    def event(self, t: int, name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.done, self.t_done = True, t
            return
        event = decode_event(data)
        if event is None:
            if name == b"error":
                self.error = self.error or data[:ERROR_TEXT_CHARS].decode(errors="replace")
            return
        self.events += 1
        message = error_text(event)
        if message is not None:
            self.error = self.error or message[:ERROR_TEXT_CHARS]
        total = self._count(event)
        if event.choices:
            if self.t_first_chunk is None:
                self.t_first_chunk = t
            chunks = len(self.chunk_ns)
            self._choices(t, event.choices, total)
            if event.ts is not None and len(self.chunk_ns) > chunks:
                self.sent_ns.append(event.ts)

    def _count(self, event: Event) -> int | None:
        """The running count of generated tokens that this very event carries, if any."""
        usage, total = event.usage, None
        if usage is not None:
            if usage.completion_tokens is not None:
                self.completion = total = usage.completion_tokens
            if usage.prompt_tokens is not None:
                self.prompt = usage.prompt_tokens
            if usage.prompt_tokens_details is not None:
                self.cached = usage.prompt_tokens_details.cached_tokens
        elif event.timings is not None and event.timings.predicted_n is not None:
            self.completion = total = event.timings.predicted_n
        return total

    def _choices(self, t: int, choices: list[Choice], total: int | None) -> None:
        text = content = False
        for choice in choices:
            visible, reasoning = text_kinds(choice)
            text |= visible or reasoning
            content |= visible
            if choice.message is not None:
                self.whole_reply = True
            if choice.finish_reason:  # some gateways send "" until there is one
                self.finish = storable(choice.finish_reason)
        if text and self.t_first is None:
            self.t_first = t
        if content and self.t_first_content is None:
            self.t_first_content = t
        # a token may have no visible text yet (half a UTF-8 character): it counts once text has begun, when the
        # server counts as it goes; a first count in the last chunk is the sum, and brings no token
        last = self.totals[-1] if self.totals else None
        if text or (total is not None and last is not None and total > last):
            self.chunk_ns.append(t)
            self.totals.append(total)


class StreamReader:
    """One response, read after read: its framing, its events, and what they add up to so far."""

    def __init__(self) -> None:
        self.stream, self.response = Stream(), Response()
        self.framing: str | None = None  # why the bytes are no HTTP response; nothing is read after that
        self.body: list[bytes] = []
        self.merged = 0
        self._parser = SseParser()

    @property
    def chunks(self) -> int:
        """Chunks that brought generated text (or a token without a visible one)."""
        return len(self.stream.chunk_ns)

    @property
    def tokens(self) -> int | None:
        """The server's running count, where it counts as it goes."""
        totals = self.stream.totals
        return totals[-1] if totals else None

    def read(self, t: int, data: bytes) -> None:
        if self.framing is not None:
            return
        parts: list[bytes] = []
        try:
            self.response.feed(data, parts)
        except FramingError as e:
            self.framing = str(e)
            return
        if self.stream.t_headers is None and self.response.status is not None:
            self.stream.t_headers = t
        before = self.chunks
        for part in parts:
            self.body.append(part)
            self._events(t, self._parser.feed(part))
        self.merged += self.chunks - before > 1

    def end(self, t: int) -> None:
        """The last read was at `t`: what is still held of an event counts."""
        self._events(t, self._parser.flush())

    def _events(self, t: int, events: list[tuple[bytes, bytes]]) -> None:
        for name, data in events:
            self.stream.event(t, name, data)
