"""One non-blocking connection: connect, TLS handshake through memory BIOs, send, receive with the kernel's stamp.

It knows nothing of requests; the loop drives it. TLS decrypts after the read, so a stamp is that of the record's last
segment. The poller is epoll, or `selectors` where there is none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import ssl
from enum import IntEnum
from typing import Protocol

from dsv4bench.load.clock import ANCILLARY_BYTES, enable_kernel_stamps, stamp_from
from dsv4bench.load.http1 import Response
from dsv4bench.load.reading import Capture

IN, OUT = 1, 4  # the values of EPOLLIN and EPOLLOUT
RECV_BYTES = 65536
CONNECT_TIMEOUT_S = 10


class State(IntEnum):
    CONNECTING = 0
    HANDSHAKE = 1
    IDLE = 2
    BUSY = 3
    CLOSED = 4


class Poller(Protocol):
    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]: ...


class SelectorPoller:
    """`selectors` behind epoll's four calls, for systems without epoll."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, eventmask: int) -> None:
        self._selector.register(fd, _selector_mask(eventmask))

    def modify(self, fd: int, eventmask: int) -> None:
        self._selector.modify(fd, _selector_mask(eventmask))

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        ready = self._selector.select(timeout)
        return [
            (key.fd, (IN if mask & selectors.EVENT_READ else 0) | (OUT if mask & selectors.EVENT_WRITE else 0))
            for key, mask in ready
        ]


def _selector_mask(mask: int) -> int:
    return (selectors.EVENT_READ if mask & IN else 0) | (selectors.EVENT_WRITE if mask & OUT else 0)


def make_poller() -> Poller:
    return select.epoll() if hasattr(select, "epoll") else SelectorPoller()


def reason(why: OSError | None) -> str:
    """Why a connection ended, in words; None is a plain close."""
    if why is None:
        return "closed by the server"
    return why.strerror or str(why) or type(why).__name__


def resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """The first address that takes a connection: `localhost` may mean ::1 first, and the server 127.0.0.1 only."""
    found = [(f, (str(a[0]), int(a[1]))) for f, _, _, _, a in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for family, address in found if len(found) > 1 else []:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(CONNECT_TIMEOUT_S)
            s.connect(address)
            return family, address
    return found[0]


def tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Connection:
    """One socket and what the loop knows about it."""

    __slots__ = (
        "_incoming",
        "_out",
        "_outgoing",
        "_recvmsg",
        "_tls",
        "capture",
        "fd",
        "judged",
        "last_ns",
        "response",
        "said_done",
        "served",
        "sock",
        "state",
    )

    def __init__(
        self,
        family: int,
        address: tuple[str, int],
        context: ssl.SSLContext | None,
        server_name: str,
        kernel_stamps: bool,
    ) -> None:
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kernel_stamps:
            enable_kernel_stamps(self.sock)
        self.fd = self.sock.fileno()
        self._recvmsg = self.sock.recvmsg
        self.state = State.CONNECTING
        self.capture: Capture | None = None
        self.response = Response()
        self.last_ns = 0
        self.said_done = False  # a read held "[DONE]", in whatever role
        self.judged = 0  # reads there were when it was last asked whether the stream is done
        self.served = 0
        self._out = b""
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        code = self.sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))

    @property
    def wants(self) -> int:
        """The poll mask: writable while connecting or while output waits, readable otherwise too."""
        if self.state is State.CONNECTING:
            return OUT
        return IN | OUT if self._out else IN

    def advance(self) -> None:
        """Go on with connect, handshake or output after a readiness event. Raises OSError (ssl.SSLError too)."""
        if self.state is State.CONNECTING:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self.state = State.HANDSHAKE if self._tls is not None else State.IDLE
            if self._tls is not None:
                self._handshake()
        elif self._out:
            self._write(b"")

    def send(self, data: bytes) -> None:
        """Queue and write; what the socket does not take now goes out at the next writable event."""
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self._write(data)

    def receive(self) -> tuple[bytes, int] | None:
        """(plain bytes, kernel stamp in realtime ns or 0); b"" at the peer's close; None when nothing is there."""
        try:
            data, ancillary, _, _ = self._recvmsg(RECV_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        kernel_ns = stamp_from(ancillary) if ancillary else 0
        if self._tls is None:
            return data, kernel_ns
        if not data:
            if self.state is State.HANDSHAKE:
                raise ConnectionResetError("closed during the TLS handshake")
            return b"", kernel_ns
        self._incoming.write(data)
        if self.state is State.HANDSHAKE:
            self._handshake()
            return None
        plain = self._decrypt()
        return None if plain is None else (plain, kernel_ns)

    def close(self) -> None:
        self.state = State.CLOSED
        self.sock.close()

    def _write(self, data: bytes) -> None:
        data = self._out + data if self._out else data
        try:
            sent = self.sock.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        self._out = data[sent:]

    def _handshake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
            self.state = State.IDLE
        except ssl.SSLWantReadError:
            pass
        self._write(self._outgoing.read())

    def _decrypt(self) -> bytes | None:
        """All plain bytes at hand; b"" when the peer closed the TLS session; None when no record is whole yet."""
        assert self._tls is not None
        parts = []
        try:
            while part := self._tls.read(RECV_BYTES):
                parts.append(part)
            if not parts:
                return b""
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            if not parts:
                return b""
        return b"".join(parts) or None
