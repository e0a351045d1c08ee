"""HTTP/1.1 as far as a load client needs it: one request encoded ahead, one response framed as it arrives.

`Response.feed` follows the framing (chunked, Content-Length, or until close) and says when the response is complete.
It parses no body: the hot path only learns the end; given `out` it also hands out the body slices, which is how the
same code de-chunks a stored response off the clock. Trailers and 1xx responses are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEAD, _SIZE, _CHUNK, _TRAILER, _LENGTH, _CLOSE, _DONE = range(7)
MAX_HEAD_BYTES = 1 << 18
MAX_SIZE_BYTES = 1 << 12
MAX_DIGITS = 18
_STATUS_LINE = b"HTTP/1."  # what starts with anything else need not be waited for


class FramingError(ValueError):
    """The bytes are no HTTP/1.1 response."""


def encode_request(path: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """The whole POST request as bytes, ready before the clock starts."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Accept: text/event-stream", "User-Agent: dsv4bench"]
    lines += [f"{k}: {v}" for k, v in headers.items()]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


class Response:
    """The framing of one response. `feed` returns True once it is complete."""

    __slots__ = ("_left", "_state", "_tail", "headers", "keep_alive", "status")

    def __init__(self) -> None:
        self._state = _HEAD
        self._left = 0
        self._tail = b""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.keep_alive = True

    @property
    def started(self) -> bool:
        return self._state != _HEAD or bool(self._tail)

    @property
    def complete(self) -> bool:
        return self._state == _DONE

    def feed(self, data: bytes, out: list[bytes] | None = None) -> bool:
        """Follow the framing over `data`; body slices go to `out`. Raises FramingError on nonsense."""
        if out is None and self._state == _SIZE and not self._tail and _is_one_chunk(data):
            return False
        if self._tail:
            data = self._tail + data
            self._tail = b""
        pos, n = 0, len(data)
        while pos < n:
            state = self._state
            if state == _CHUNK:
                # `_left` counts the chunk's data and its CRLF, so the CRLF may sit in the next read
                take = min(self._left, n - pos)
                if out is not None:
                    body = min(take, max(self._left - 2, 0))
                    if body:
                        out.append(data[pos : pos + body])
                pos += take
                self._left -= take
                if not self._left:
                    self._state = _SIZE
            elif state == _SIZE:
                end = data.find(b"\r\n", pos)
                if end < 0:
                    self._tail = data[pos:]
                    if len(self._tail) > MAX_SIZE_BYTES:
                        raise FramingError(f"bad chunk size {self._tail[:40]!r}")
                    break
                size = _chunk_size(data[pos:end])
                pos = end + 2
                self._state, self._left = (_CHUNK, size + 2) if size else (_TRAILER, 0)
            elif state == _HEAD:
                end = data.find(b"\r\n\r\n", pos)
                if end < 0:
                    self._tail = data[pos:]
                    if not _STATUS_LINE.startswith(self._tail[: len(_STATUS_LINE)]):
                        raise FramingError(f"not an HTTP/1.1 status line: {self._tail[:80]!r}")
                    if len(self._tail) > MAX_HEAD_BYTES:
                        raise FramingError("no end of the response head")
                    break
                self._parse_head(data[pos:end])
                pos = end + 4
            elif state == _TRAILER:
                end = data.find(b"\r\n", pos)
                if end < 0:
                    self._tail = data[pos:]
                    break
                if end == pos:
                    self._state = _DONE
                pos = end + 2
            elif state == _LENGTH:
                take = min(self._left, n - pos)
                if out is not None and take:
                    out.append(data[pos : pos + take])
                pos += take
                self._left -= take
                if not self._left:
                    self._state = _DONE
            elif state == _CLOSE:
                if out is not None:
                    out.append(data[pos:])
                break
            else:  # bytes after the end: the connection cannot be used again
                self.keep_alive = False
                break
        return self._state == _DONE

    def closed(self) -> bool:
        """The peer closed. True when that is a proper end of this response."""
        if self._state == _CLOSE:
            self._state = _DONE
        self.keep_alive = False
        return self._state == _DONE

    def _parse_head(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not re.fullmatch("[0-9]{3}", parts[1]):
            raise FramingError(f"not an HTTP/1.1 status line: {lines[0][:80]!r}")
        status = int(parts[1])
        if 100 <= status < 200:
            return  # still _HEAD: the real one follows
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        self.status, self.headers = status, headers
        connection = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (parts[0] != "HTTP/1.0" or "keep-alive" in connection)
        if "chunked" in headers.get("transfer-encoding", "").lower():
            self._state = _SIZE
        elif "content-length" in headers:
            if not headers["content-length"].isdecimal() or len(headers["content-length"]) > MAX_DIGITS:
                raise FramingError(f"bad Content-Length {headers['content-length'][:40]!r}")
            self._left = int(headers["content-length"])
            self._state = _LENGTH if self._left else _DONE
        elif status in (204, 304):
            self._state = _DONE
        else:
            self._state, self.keep_alive = _CLOSE, False


def _is_one_chunk(data: bytes) -> bool:
    """Whether a read is exactly one whole chunk, as nearly all are: then there is no state to keep."""
    end = data.find(b"\r\n", 0, 12)
    if end < 1 or data[0] <= 48:  # "0": the last chunk, or an odd size; below it signs and spaces
        return False
    try:
        return int(data[:end], 16) + end + 4 == len(data) and data.endswith(b"\r\n")
    except ValueError:
        return False


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.split(b";", 1)[0].strip(), 16)
    except ValueError:
        raise FramingError(f"bad chunk size {line[:40]!r}") from None
    if size < 0:
        raise FramingError(f"bad chunk size {line[:40]!r}")
    return size
