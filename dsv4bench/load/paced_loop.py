"""The paced server's loop: one thread, and one heap with the next token of every stream.

Token k of a request is due at `received + ttft + k·itl`, on that absolute schedule: a late token delays no other.
With `align` the first is put off to the next multiple of itl, so that all streams emit together, as the streams of
one decode step do. A chunk of m tokens leaves when its first token is due, so that TPOT is itl whatever m is.
The loop measures its own lateness (send minus due): when that is large, the server was the limit and not its client.
Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import json
import math
import os
import socket
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from dsv4bench.load.paced_http import Connection, Request, Sockets
from dsv4bench.load.paced_wire import PATHS, Script, numbers, parse_ask, render

_BATCH = 256  # tokens sent before sockets are looked at again
_LATE_KEPT = 1 << 17  # the latest events that lateness is told of
_STDIN = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """The schedule that requests get unless their X-TTFT-us and X-ITL-us headers say otherwise."""

    ttft_ns: int
    itl_ns: int
    tokens_per_chunk: int = 1
    align: bool = False


@dataclass(frozen=True, slots=True)
class PacedStats:
    """How the server did since its start or the last reset. Lateness is of the latest 131072 events."""

    window_s: float
    events: int
    requests: int
    in_flight: int
    blocked_sends: int  # events that found the socket's buffer full: the client did not read
    cpu_frac: float  # of one core
    late_p50_us: float | None
    late_p99_us: float | None
    late_max_us: float | None


class _Stream:
    """A reply under way."""

    __slots__ = ("conn", "n_prompt", "n_sent", "n_total", "per_chunk", "script", "step_ns")

    def __init__(self, conn: Connection, script: Script, n_prompt: int, n_total: int, per_chunk: int, step_ns: int):
        self.conn = conn
        self.script = script
        self.n_prompt = n_prompt
        self.n_total = n_total
        self.n_sent = 0
        self.per_chunk = per_chunk
        self.step_ns = step_ns


class Loop:
    """Serves on `listener` for ever; with `watch_stdin` until standard input ends, as when the parent dies."""

    def __init__(self, listener: socket.socket, pace: Pace, *, watch_stdin: bool = False) -> None:
        self._pace = pace
        self._sockets = Sockets(listener, self._route)
        if watch_stdin:
            self._sockets.watch(_STDIN, self._read_stdin)
        self._heap: list[tuple[int, int, _Stream]] = []  # (due, request number, stream): numbers break ties
        self._stopping = False
        self._started_s = time.time()
        self._n_requests = self._n_generated = self._n_prompt = 0
        self._reset_stats()

    def run(self) -> None:
        # Timers are put off by up to 50 us unless the process asks for less (Linux; elsewhere there is no such file).
        with contextlib.suppress(OSError):
            Path("/proc/self/timerslack_ns").write_text("1")
        gc.disable()  # a collection would hold up every stream, and nothing here makes cycles
        try:
            while not self._stopping:
                self._emit_due()
                left_ns = self._heap[0][0] - time.monotonic_ns() if self._heap else None
                self._sockets.wait(None if left_ns is None else max(0, left_ns) / 1e9)
        finally:
            gc.enable()

    def _emit_due(self) -> None:
        heap, late = self._heap, self._late
        for _ in range(_BATCH):
            if not heap:
                return
            due, number, stream = heap[0]
            if not stream.conn.open:
                heapq.heappop(heap)
                continue
            now = time.monotonic_ns()
            if due > now:
                return
            stream.n_sent += stream.per_chunk
            if stream.n_sent < stream.n_total:
                self._sockets.send(
                    stream.conn, stream.script.chunk % numbers(stream.n_prompt, stream.n_sent, now, due)
                )
                self._n_generated += stream.per_chunk
                heapq.heapreplace(heap, (due + stream.step_ns, number, stream))
            else:
                self._sockets.send(
                    stream.conn, stream.script.last % numbers(stream.n_prompt, stream.n_total, now, due)
                )
                self._n_generated += stream.n_total - stream.n_sent + stream.per_chunk
                heapq.heappop(heap)
                self._sockets.done(stream.conn)
            late.append(now - due)
            self._n_events += 1

    def _read_stdin(self) -> None:
        if not os.read(_STDIN, 1024):
            self._stopping = True

    def _route(self, conn: Connection, request: Request) -> None:
        if request.method == "POST" and request.path in PATHS:
            try:
                self._begin(conn, request)
            except ValueError as e:
                self._reply_error(conn, "400 Bad Request", str(e))
            return
        match (request.method, request.path):
            case ("GET", "/health"):
                self._reply(conn, "200 OK", "text/plain", b"")
            case ("GET", "/v1/models"):
                model = {"id": "paced", "object": "model", "created": int(self._started_s), "owned_by": "dsv4bench"}
                self._reply_json(conn, "200 OK", {"object": "list", "data": [model]})
            case ("GET", "/metrics"):
                self._reply(conn, "200 OK", "text/plain; version=0.0.4; charset=utf-8", self._metrics().encode())
            case ("GET", "/stats"):
                self._reply_json(conn, "200 OK", asdict(self._stats()))
                if request.query == "reset":
                    self._reset_stats()
            case _:
                self._reply_error(conn, "404 Not Found", f"no {request.method} {request.path} here")

    def _begin(self, conn: Connection, request: Request) -> None:
        """Render the whole reply and put its first token on the heap. Raises ValueError for a bad request."""
        pace = self._pace
        ttft_ns = _header_ns(request, "x-ttft-us", pace.ttft_ns)
        itl_ns = _header_ns(request, "x-itl-us", pace.itl_ns)
        ask = parse_ask(request.path, request.body)
        self._n_requests += 1
        self._n_prompt += ask.prompt_tokens
        script = render(ask, self._n_requests, int(self._started_s), pace.tokens_per_chunk)
        due, per_chunk = request.received_ns + ttft_ns, pace.tokens_per_chunk
        if pace.align and itl_ns:
            due = -(-due // itl_ns) * itl_ns
        if not ask.stream:  # in one piece, when its last token is due
            due, per_chunk = due + (ask.n_tokens - 1) * itl_ns, ask.n_tokens
        stream = _Stream(conn, script, ask.prompt_tokens, ask.n_tokens, per_chunk, per_chunk * itl_ns)
        conn.busy = True
        heapq.heappush(self._heap, (due, self._n_requests, stream))
        if script.head:
            now = time.monotonic_ns()
            self._sockets.send(conn, script.head % numbers(ask.prompt_tokens, 0, now, now))

    def _reply(self, conn: Connection, status: str, content_type: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._sockets.send(conn, head.encode() + body)

    def _reply_json(self, conn: Connection, status: str, value: object) -> None:
        self._reply(conn, status, "application/json", json.dumps(value).encode())

    def _reply_error(self, conn: Connection, status: str, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "code": int(status[:3])}
        self._reply_json(conn, status, {"error": error})

    def _reset_stats(self) -> None:
        self._late: deque[int] = deque(maxlen=_LATE_KEPT)
        self._n_events = self._sockets.n_blocked = 0
        self._stats_from = (time.monotonic(), time.process_time(), self._n_requests)

    def _stats(self) -> PacedStats:
        since_s, cpu_s, n_requests = self._stats_from
        window_s = time.monotonic() - since_s
        late = sorted(self._late)

        def rank_us(share: float) -> float | None:
            return late[math.ceil(share * len(late)) - 1] / 1e3 if late else None

        return PacedStats(
            window_s=window_s,
            events=self._n_events,
            requests=self._n_requests - n_requests,
            in_flight=self._n_running(),
            blocked_sends=self._sockets.n_blocked,
            cpu_frac=(time.process_time() - cpu_s) / window_s if window_s > 0 else 0.0,
            late_p50_us=rank_us(0.50),
            late_p99_us=rank_us(0.99),
            late_max_us=rank_us(1.0),
        )

    def _n_running(self) -> int:
        return sum(stream.conn.open for _, _, stream in self._heap)

    def _metrics(self) -> str:
        rows = (
            ("dsv4bench:generation_tokens_total", "counter", self._n_generated),
            ("dsv4bench:prompt_tokens_total", "counter", self._n_prompt),
            ("dsv4bench:num_requests_running", "gauge", self._n_running()),
            ("process_start_time_seconds", "gauge", self._started_s),
        )
        return "".join(f"# TYPE {name} {kind}\n{name} {value!r}\n" for name, kind, value in rows)


def _header_ns(request: Request, name: str, otherwise_ns: int) -> int:
    value = request.headers.get(name)
    if value is None:
        return otherwise_ns
    if not value.isdecimal():
        raise ValueError(f"{name} is {value!r}, not a whole number of microseconds")
    return int(value) * 1000
