"""The hot path: one poll loop that keeps requests in flight and keeps (kernel stamp, user stamp, bytes) a read.

Closed loop: exactly `slots` requests in flight; a finished one is followed by the next in the same turn. Open loop:
request i leaves at its scheduled time on an idle or a new connection. Bodies are not parsed here, only the framing is
followed to learn the end. A connection that the server closed before the first byte is opened again and its request
resent once (counted); where that happens to most reused connections (llama.cpp closes after each stream while it
offers keep-alive) none is reused any more. A connection silent for the timeout is a stall; nothing else is retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dsv4bench.load.connection import (
    CONNECT_TIMEOUT_S,
    IN,
    OUT,
    Connection,
    State,
    make_poller,
    reason,
    resolve,
    tls_context,
)
from dsv4bench.load.ending import DONE, PING_BYTES, is_done, is_ping
from dsv4bench.load.http1 import FramingError, Response
from dsv4bench.load.messages import Job
from dsv4bench.load.reading import Capture, Read
from dsv4bench.load.spool import Spool
from dsv4bench.records.request import ErrorKind

CONNECT_TIMEOUT_NS = CONNECT_TIMEOUT_S * 1_000_000_000
DONE_GRACE_NS = 100_000_000  # a server may keep the socket open after [DONE]
SCAN_NS = 50_000_000
SPIN_NS = 1_100_000  # poll() waits whole milliseconds; the last one before a scheduled send is spun
MAX_EVENTS = 2048
STALE_FRAC = 0.5  # beyond this share of stale connections among the reused ones, reuse ends

BUSY = State.BUSY  # a member looked up through its class costs more than the comparison

now_ns = time.monotonic_ns


class Loop:
    """Runs one job. `control(loop)` is called when `control_fd` is readable, `tick(loop)` at every scan."""

    def __init__(self, job: Job, control_fd: int, control: Callable[[Loop], None], tick: Callable[[Loop], None]):
        self.job = job
        self.kept = Spool()
        self.in_flight = self.done = self.failed = self.reads = 0
        self.next = 0
        self.sending = True
        self.server_gone: str | None = None
        self.why_not_connected = ""
        self.turns_ns: list[int] = []  # how long a turn took, where the kernel gives no stamps
        self.start_ns = 0
        self._control_fd, self._control, self._tick = control_fd, control, tick
        self._poller = make_poller()
        self._connections: dict[int, Connection] = {}
        self._idle: list[Connection] = []
        self.reuse = job.reuse
        self._reused = self._stale = 0
        self._unanswered_in_a_row = 0
        self._timeout_ns = int(job.timeout_s * 1e9)
        self._context = tls_context(job.verify) if job.tls else None
        self._family, self._address = resolve(job.host, job.port)

    def connect(self) -> int:
        """Open the first connections before the clock starts; how many are open."""
        wanted = min(self.job.slots, len(self.job.requests))
        for _ in range(wanted):
            self._open(None)
        deadline = now_ns() + CONNECT_TIMEOUT_NS
        while any(c.state < State.IDLE for c in self._connections.values()) and now_ns() < deadline:
            for fd, event in self._poller.poll(0.1, MAX_EVENTS):
                self._on_event(fd, event)
        for c in list(self._connections.values()):
            if c.state < State.IDLE:
                self._drop(c)
                self.why_not_connected = f"no connection within {CONNECT_TIMEOUT_S} s"
        return len(self._idle)

    def run(self) -> None:
        """The level, from the first send to the last end."""
        self._poller.register(self._control_fd, IN)
        self.start_ns = now_ns()
        stop_at = self.start_ns + int(self.job.duration_s * 1e9) if self.job.duration_s else None
        next_scan = self.start_ns + SCAN_NS
        slots, scheduled = self.job.slots, self.job.schedule_ns is not None
        poll, on_event, read, connections = self._poller.poll, self._on_event, self._read, self._connections
        self._send_due()
        while self.in_flight or (self.sending and self.next < len(self.job.requests)):
            events = poll(self._wait_s(next_scan), MAX_EVENTS)
            turn = now_ns()
            if stop_at is not None and turn >= stop_at:
                self.sending = False
            for fd, event in events:
                c = connections.get(fd)
                if c is not None and c.state is BUSY and event & ~OUT:  # readable, or in error: the read says which
                    read(c)
                else:
                    on_event(fd, event)
            if self.in_flight < slots or scheduled:
                self._send_due()
            now = now_ns()
            if not self.job.kernel_stamps:
                self.turns_ns.append(now - turn)
            if now >= next_scan:
                next_scan = now + SCAN_NS
                self._scan(now)
                self._tick(self)
        for c in list(self._connections.values()):
            self._drop(c)

    def cancel(self) -> None:
        """Stop sending and drop what is in flight."""
        self.sending = False
        for c in list(self._connections.values()):
            if c.capture is not None:
                self._fail(c, ErrorKind.CANCELLED, "stopped")

    def live(self) -> list[Capture]:
        """What is in flight and has a connection."""
        return [c.capture for c in self._connections.values() if c.capture is not None]

    # sending

    def _wait_s(self, next_scan: int) -> float:
        now = now_ns()
        until = next_scan
        if self.job.schedule_ns is not None and self.sending and self.next < len(self.job.requests):
            due = self.start_ns + self.job.schedule_ns[self.next] - SPIN_NS
            until = min(until, due)
        return max(until - now, 0) / 1e9

    def _send_due(self) -> None:
        job = self.job
        if job.schedule_ns is None:
            while self.sending and self.in_flight < job.slots and self.next < len(job.requests):
                self._start(None)
            return
        while self.sending and self.next < len(job.requests):
            due = self.start_ns + job.schedule_ns[self.next]
            if due > now_ns():
                return
            self._start(due)

    def _start(self, t_sched: int | None) -> None:
        i = self.next
        self.next += 1
        self.in_flight += 1
        capture = Capture(self.job.indices[i], self.job.requested[i], t_sched, i)
        if self._idle:
            c = self._idle.pop()
            self._reused += c.served > 0
            self._send(c, capture)
        else:
            self._open(capture)

    def _send(self, c: Connection, capture: Capture) -> None:
        c.capture, c.response, c.state = capture, Response(), State.BUSY
        c.said_done, c.judged = False, 0
        c.last_ns = now_ns()
        if not capture.retried:
            capture.t_send = c.last_ns  # a resend keeps its first send: the wait is the server's
        try:
            c.send(self.job.requests[capture.position])
        except OSError as e:
            self._lost(c, e)
            return
        if c.wants & OUT:
            self._poller.modify(c.fd, c.wants)

    def _open(self, capture: Capture | None) -> None:
        try:
            c = Connection(
                self._family, self._address, self._context, self.job.host, kernel_stamps=self.job.kernel_stamps
            )
        except OSError as e:
            self._refused(capture, e)
            return
        c.capture, c.last_ns = capture, now_ns()
        self._connections[c.fd] = c
        self._poller.register(c.fd, c.wants)

    # receiving

    def _on_event(self, fd: int, event: int) -> None:
        c = self._connections.get(fd)
        if c is None:
            if fd == self._control_fd:
                self._control(self)
            return
        if c.state is State.BUSY and event & ~OUT:  # readable, or in error: the read says which
            self._read(c)
            return
        try:
            if event & IN and c.state is not State.CONNECTING and c.receive() is not None:
                self._drop(c)  # an idle connection that speaks, or ends, is not used again
                return
            c.advance()
        except OSError as e:
            self._lost(c, e)
            return
        if c.state is State.IDLE:
            capture, c.capture = c.capture, None
            if capture is not None:
                self._send(c, capture)
            elif c not in self._idle:
                self._idle.append(c)
        if c.state is not State.CLOSED:
            self._poller.modify(fd, c.wants)

    def _read(self, c: Connection) -> None:
        try:
            got = c.receive()
        except OSError as e:
            self._lost(c, e)
            return
        t = now_ns()
        if got is None:
            return
        data, kernel_ns = got
        if not data:
            self._lost(c, None)
            return
        capture = c.capture
        assert capture is not None
        if len(data) > PING_BYTES or not is_ping(data):
            c.last_ns = t
        self.reads += 1
        capture.reads.append(Read(kernel_ns, t, data))
        try:
            if c.response.feed(data):
                self._finish(c, t)
                return
        except FramingError as e:
            self._fail(c, ErrorKind.BAD_RESPONSE, str(e))
            return
        if DONE in data:
            c.said_done = True

    def _finish(self, c: Connection, t: int) -> None:
        """The response is complete: keep it, and the connection too when the server lets us."""
        capture = c.capture
        assert capture is not None
        capture.t_end = t
        keep = self.reuse and c.response.keep_alive and c.response.complete
        c.capture = None
        c.served += 1
        if keep:
            c.state = State.IDLE
            self._idle.append(c)
        else:
            self._drop(c)
        self._keep(capture, ok=c.response.status == 200)

    def _lost(self, c: Connection, why: OSError | None) -> None:
        """The peer closed or reset (`why` None: a plain close)."""
        capture, connecting = c.capture, c.state < State.IDLE
        if capture is None or connecting:
            self._drop(c)
            if connecting:
                self._refused(capture, why or ConnectionResetError("closed while connecting"))
        elif c.response.started:
            t = now_ns()
            if c.response.closed():
                self._finish(c, t)
            else:
                self._fail(c, ErrorKind.TRUNCATED, reason(why))
        elif not capture.retried:
            capture.retried = True
            self._stale += c.served > 0
            self.reuse = self.reuse and self._stale < STALE_FRAC * self._reused
            self._drop(c)
            self._open(capture)
        else:
            self._fail(c, ErrorKind.CLOSED, f"connection lost before the first byte, twice ({reason(why)})")

    def _refused(self, capture: Capture | None, why: OSError) -> None:
        self.why_not_connected = reason(why)
        if capture is not None:
            capture.error, capture.error_text, capture.t_end = ErrorKind.REFUSED, reason(why), now_ns()
            self._keep(capture, ok=False)

    def _fail(self, c: Connection, kind: ErrorKind, text: str) -> None:
        capture = c.capture
        assert capture is not None
        capture.error, capture.error_text, capture.t_end = kind, text, now_ns()
        c.capture = None
        self._drop(c)
        self._keep(capture, ok=False)

    def _keep(self, capture: Capture, ok: bool) -> None:
        self.in_flight -= 1
        self.done += 1
        self.failed += not ok
        capture.t_send = capture.t_send or capture.t_end  # it ended before it had a connection
        if capture.error in (ErrorKind.REFUSED, ErrorKind.CLOSED):  # a proxy before a dead server closes instead
            self._unanswered_in_a_row += 1
            if self._unanswered_in_a_row >= max(3, min(self.job.slots, 64)):
                self.sending = False
                where = f"{self.job.host}:{self.job.port}"
                self.server_gone = f"{where} takes no requests any more ({capture.error_text})"
        elif capture.reads:
            self._unanswered_in_a_row = 0
        self.kept.add(capture)

    def _drop(self, c: Connection) -> None:
        self._connections.pop(c.fd, None)
        if c in self._idle:
            self._idle.remove(c)
        if c.state is not State.CLOSED:
            self._poller.unregister(c.fd)
            c.close()

    def _scan(self, now: int) -> None:
        """Twenty times a second: stalls, and streams that said [DONE] and stay open."""
        for c in list(self._connections.values()):
            capture = c.capture
            if capture is None:
                continue
            silent = now - c.last_ns
            if c.state < State.IDLE:
                if silent > CONNECT_TIMEOUT_NS:
                    self._lost(c, TimeoutError(f"no connection within {CONNECT_TIMEOUT_S} s"))
            elif silent > DONE_GRACE_NS and is_done(c, capture):
                self._finish(c, c.last_ns)
            elif silent > self._timeout_ns:
                self._fail(c, ErrorKind.STALLED, f"no byte for {self.job.timeout_s:g} s")
