"""The sockets of the paced server: HTTP/1.1 requests in, bytes out, keep-alive, never a blocking call.

It knows nothing of what is served. Each complete request goes to `on_request` with the time at which its last byte
was read; a connection that is `busy` (its reply is under way) keeps what else comes in until `done` is called for it.
Bodies need a Content-Length. Standard library only.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from select import select

_READ_BYTES = 1 << 18
_HEAD_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    received_ns: int


class Connection:
    """A client's socket, what came in and is not used yet, and what could not be sent yet."""

    __slots__ = ("busy", "close_after", "inbuf", "open", "out", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbuf = bytearray()
        self.out = bytearray()
        self.open = True
        self.busy = False
        self.close_after = False


class Sockets:
    """The listener and its connections behind one selector."""

    def __init__(self, listener: socket.socket, on_request: Callable[[Connection, Request], None]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._on_request = on_request
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self.n_blocked = 0  # sends that found the socket's buffer full

    def watch(self, file: int, when_readable: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, when_readable)

    def wait(self, timeout_s: float | None) -> None:
        """Serve what is ready, or what becomes ready within the time; None waits for ever.

        epoll's own timeout counts in milliseconds, too coarse for a token's time; select's counts in microseconds,
        and the selector is a file that it can wait for.
        """
        if timeout_s != 0.0 and not select([self._selector], [], [], timeout_s)[0]:
            return
        for key, events in self._selector.select(0):
            if not isinstance(key.data, Connection):
                key.data()
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ and key.data.open:
                self._read(key.data)

    def send(self, conn: Connection, data: bytes) -> None:
        """Send now, or keep for later what the socket does not take; a client that has gone is dropped."""
        sent = 0
        if not conn.out:
            try:
                sent = conn.sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.drop(conn)
                return
        if sent < len(data):
            self.n_blocked += 1
            if not conn.out:
                self._selector.modify(conn.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, conn)
            conn.out += data[sent:]

    def done(self, conn: Connection) -> None:
        """The reply that kept `conn` busy is complete: close it, or go on with what came in meanwhile."""
        conn.busy = False
        if conn.close_after:
            if not conn.out:
                self.drop(conn)
        else:
            self._serve(conn)

    def drop(self, conn: Connection) -> None:
        if conn.open:
            conn.open = False
            self._selector.unregister(conn.sock)
            conn.sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # none left, or too many open files: the rest stays in the backlog
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _read(self, conn: Connection) -> None:
        try:
            data = conn.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(conn)
            return
        conn.inbuf += data
        self._serve(conn)

    def _flush(self, conn: Connection) -> None:
        try:
            del conn.out[: conn.sock.send(conn.out)]
        except BlockingIOError:
            return
        except OSError:
            self.drop(conn)
            return
        if not conn.out:
            self._selector.modify(conn.sock, selectors.EVENT_READ, conn)
            if conn.close_after and not conn.busy:
                self.drop(conn)

    def _serve(self, conn: Connection) -> None:
        """Hand out the complete requests in the buffer, until one of them keeps the connection busy."""
        while conn.open and not conn.busy and (request := self._take(conn)) is not None:
            self._on_request(conn, request)
            if conn.close_after and conn.open and not conn.busy and not conn.out:
                self.drop(conn)

    def _take(self, conn: Connection) -> Request | None:
        end = conn.inbuf.find(b"\r\n\r\n")
        if end < 0:
            if len(conn.inbuf) > _HEAD_LIMIT:
                self.drop(conn)
            return None
        first, *lines = conn.inbuf[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not size.isdecimal():
            conn.close_after = True
            self.send(conn, b"HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.done(conn)
            return None
        body_end = end + 4 + int(size)
        if len(conn.inbuf) < body_end:
            return None
        body = bytes(conn.inbuf[end + 4 : body_end])
        del conn.inbuf[:body_end]
        conn.close_after = headers.get("connection", "").lower() == "close"
        method, target, *_ = [*first.split(" "), "", ""]
        path, _, query = target.partition("?")
        return Request(method, path, query, headers, body, time.monotonic_ns())
