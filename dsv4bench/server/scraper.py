"""The server's gauges over time: a daemon thread scrapes `/metrics` while a level runs.

`samples` grows from the thread and may be read at any moment; `scrape_now` takes one more from the caller's
thread. Nothing here raises into a measurement: a failed scrape is counted in `failures` and told by
`last_failure`. A server without metrics gives no samples and no failures, and `last_failure` says why.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from dsv4bench.errors import BenchError
from dsv4bench.records.server import Gauges, ServerInfo
from dsv4bench.server.calls import Caller
from dsv4bench.server.gauges import parse_gauges
from dsv4bench.server.target import Target

_TIMEOUT_S = 5.0


class GaugeScraper:
    """Scrapes every `interval_s` between `__enter__` and `__exit__`."""

    def __init__(self, target: Target, info: ServerInfo, interval_s: float = 1.0) -> None:
        self.samples: list[Gauges] = []
        self.failures = 0
        self.last_failure: str | None = None
        self._target, self._info, self._interval_s = target, info, interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if info.metrics_path is None:
            self.last_failure = info.missing.get("metrics_path", "the server has no metrics")

    def __enter__(self) -> GaugeScraper:
        if self._info.metrics_path is not None:
            self._thread = threading.Thread(target=self._run, name="gauge-scraper", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=_TIMEOUT_S + 1)  # a scrape in flight may last its timeout

    def scrape_now(self) -> Gauges | None:
        """One scrape from this thread, appended to `samples` too; None when it failed."""
        if self._info.metrics_path is None:
            return None
        try:
            with Caller(self._target, _TIMEOUT_S) as caller:
                return self._scrape(caller)
        except Exception as e:  # e.g. no file descriptor left for the socket
            self._failed(f"{type(e).__name__}: {e}")
            return None

    def _run(self) -> None:
        due = time.monotonic()
        try:
            with Caller(self._target, _TIMEOUT_S) as caller:
                while not self._stop.is_set():
                    self._scrape(caller)
                    due = max(due + self._interval_s, time.monotonic())
                    self._stop.wait(due - time.monotonic())
        except Exception as e:
            self._failed(f"{type(e).__name__}: {e}")

    def _scrape(self, caller: Caller) -> Gauges | None:
        reply = caller.ask(self._info.metrics_path or "/metrics")
        if not reply.ok or reply.failure:
            self._failed(reply.why_not())
            return None
        try:
            gauges = parse_gauges(reply.text, self._info.engine, t_s=time.time())
        except BenchError as e:
            self._failed(e.message)
            return None
        self.samples.append(gauges)
        return gauges

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.last_failure = why
