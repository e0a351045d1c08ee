"""Server-sent events from bytes, as the standard says and as servers really send them.

Lines end with LF, CRLF or CR (a CR at the end of one segment and its LF in the next are one line end); only these
bytes split lines, so U+2028 inside JSON is harmless. A leading BOM, comments (`: ping`), `id:` and `retry:` lines are
skipped; one space after the colon is dropped, the rest of the line is kept; several data lines join with LF. An event
is dispatched by a blank line when it has data, or by `flush()` at the end of the stream (`[DONE]` without one).
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class SseParser:
    """Incremental parser; `feed` returns the events that these bytes completed, as (event name, data)."""

    __slots__ = ("_buffer", "_data", "_name", "_skip_lf", "_start")

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[bytes] = []
        self._name = b""
        self._skip_lf = False
        self._start = True

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        if not data:
            return []
        if self._skip_lf:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        if b"\r" in data:
            # a CR at the very end ends its line now; an LF that follows in the next segment belongs to it
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer + data
        if self._start:
            if len(buffer) < 3 and BOM.startswith(buffer):
                self._buffer = buffer
                return []
            buffer = buffer.removeprefix(BOM)
            self._start = False
        *lines, self._buffer = buffer.split(b"\n")
        events = []
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                events.append(self._dispatch())
            else:
                self._name = b""
        return events

    def flush(self) -> list[tuple[bytes, bytes]]:
        """The stream ended: what is still held, when it is a whole data line."""
        if self._buffer:
            line, self._buffer = self._buffer, b""
            self._line(line)
        return [self._dispatch()] if self._data else []

    def _dispatch(self) -> tuple[bytes, bytes]:
        event = (self._name, b"\n".join(self._data))
        self._data, self._name = [], b""
        return event

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value[1:] if value[:1] == b" " else value)
        elif line.startswith(b"event:"):
            self._name = line[6:].strip()
        elif line == b"data":
            self._data.append(b"")
        # everything else (comments, id, retry, unknown fields) carries no token
