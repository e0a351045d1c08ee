"""A server that answers each request with a script of bytes, pauses and rude endings, and remembers what it saw.

A script is a list of steps: bytes are sent in one segment, a number is a pause in seconds, an `End` says how the
connection goes on. `reply` is asked once a request and gets the request, with its number and its connection's. What
the server saw is in `seen`; `peak` is the most requests it had at one moment.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from dsv4bench.load.http1 import encode_request

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
TLS_HANDSHAKE = b"\x16"


class End(Enum):
    CLOSE = "close"  # an orderly end of the connection
    RESET = "reset"  # an RST
    HANG = "hang"  # say nothing more until the client leaves


Step = bytes | float | End


class Seen(NamedTuple):
    """One request, as it arrived."""

    number: int
    connection: int
    nth: int  # on its connection, from 1
    t_ns: int  # monotonic, when its last byte was here
    path: str
    body: bytes


Reply = Callable[[Seen], Sequence[Step]]


class HostileServer:
    """A context manager; one thread a connection. `tls` wraps every connection."""

    def __init__(self, reply: Reply, *, tls: ssl.SSLContext | None = None, close_after: float | None = None) -> None:
        self._reply, self._tls = reply, tls
        self._close_after = close_after  # seconds of idleness, then the connection is closed
        self.seen: list[Seen] = []
        self.sent_ns: list[int] = []  # just before each segment
        self.connections = self.in_flight = self.peak = 0
        self._dead = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> HostileServer:
        self._spawn(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.die()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def die(self) -> None:
        """Stop listening and end what is open, as a killed process would."""
        self._dead.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for s in self._open:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def _spawn(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                s, _ = self._listener.accept()
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                self._spawn(self._serve, s, self.connections)

    def _serve(self, s: socket.socket, connection: int) -> None:
        with contextlib.suppress(OSError):  # the client went away, or we died
            if self._tls is not None:
                s = self._tls.wrap_socket(s, server_side=True)
            with self._lock:
                self._open.add(s)
            s.settimeout(self._close_after)
            self._requests(s, connection)
        with self._lock:
            self._open.discard(s)
        s.close()

    def _requests(self, s: socket.socket, connection: int) -> None:
        nth, held = 0, b""
        while not self._dead.is_set():
            while not (parsed := _request(held)):
                if not (data := s.recv(65536)):
                    return
                held += data
                if held[:1] == TLS_HANDSHAKE:
                    s.sendall(whole(b"this is no https", "400 Bad Request"))
                    return
            path, body, held = parsed
            nth += 1
            end = self._play(s, self._reply(self._note(connection, nth, path, body)))
            if end is End.HANG:
                s.settimeout(None)
                while s.recv(65536):
                    pass
                self._over()
            if end is End.RESET:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end is not None:
                return

    def _over(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def _note(self, connection: int, nth: int, path: str, body: bytes) -> Seen:
        with self._lock:
            seen = Seen(len(self.seen) + 1, connection, nth, time.monotonic_ns(), path, body)
            self.seen.append(seen)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        return seen

    def _play(self, s: socket.socket, script: Sequence[Step]) -> End | None:
        """Send the script. A request is over just before its last step: the client may be quicker than we are."""
        for i, step in enumerate(script):
            if i == len(script) - 1 and step is not End.HANG:
                self._over()
            if isinstance(step, End):
                return step
            if isinstance(step, bytes):
                self.sent_ns.append(time.monotonic_ns())
                s.sendall(step)
            elif self._dead.wait(step):
                return End.CLOSE
        return None


def _request(held: bytes) -> tuple[str, bytes, bytes] | None:
    """(path, body, what follows) of the first whole request in `held`."""
    head, blank, rest = held.partition(b"\r\n\r\n")
    if not blank:
        return None
    length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1])  # type: ignore[index]
    return (head.split(b" ")[1].decode(), rest[:length], rest[length:]) if len(rest) >= length else None


def chunk(data: bytes) -> bytes:
    """One frame of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(body: bytes, status: str = "200 OK", kind: str = "text/event-stream", extra: str = "") -> bytes:
    """A response with a Content-Length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def post(n: int, path: str = "/v1/chat/completions", size: int = 2) -> list[bytes]:
    """`n` whole requests; each body begins with its number."""
    return [encode_request(path, "x", {}, f"{i}".encode().ljust(size)) for i in range(n)]


def self_signed(folder: Path) -> ssl.SSLContext | None:
    """A server's side of TLS with a certificate that nobody knows; None without the openssl command."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
