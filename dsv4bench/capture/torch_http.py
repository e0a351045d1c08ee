"""`--with torch`: a window of the server's own profiler, driven over HTTP.

open: the server records from its next step on. close: it is told to stop (many stop by themselves after the steps
that were asked for), its flush is waited for with progress, and the ranks' files are gathered. Where they cannot be
seen from here, the server's own path is what is handed on. The calls themselves are `server/profiling.py`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dsv4bench.capture.rank_files import SAY_S, Arrivals, is_whole, space_left
from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.records.capture import Captured, Method, Moment

ABORT_S = 15.0
QUIET_S = 3.0  # without growth: nothing more comes
LATE_S = 30.0  # for the first file: a server that stopped by itself answers before it has written
LOOK_S = 2.0  # whether the server is still there, while it writes
GONE_TIMES = 3  # in a row


class StopAnswer(Protocol):
    """How the server took the call to stop: stopped | over (by itself) | gone | hung | failed."""

    @property
    def state(self) -> str: ...
    @property
    def line(self) -> str: ...
    @property
    def ended(self) -> bool: ...


class ProfilerCalls(Protocol):
    """A server's profiler."""

    def start(self) -> None: ...
    def stop(self, timeout_s: float) -> StopAnswer: ...
    def gone(self) -> str | None: ...


class TorchHttpWindow:
    """One recording by the server's torch profiler.

    `folder`: where its files are seen from here (None: nowhere). `server_folder`: the same as the server names it.
    """

    def __init__(
        self,
        profiler: ProfilerCalls,
        *,
        folder: Path | None,
        server_folder: str | None,
        expected: int | None = None,
        stage: str = "decode",
        flush_timeout_s: float = 1800.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._profiler, self._folder, self._server_folder = profiler, folder, server_folder
        self._expected, self._stage, self._flush_s, self._say = expected, stage, flush_timeout_s, say
        self._arrivals: Arrivals | None = None
        self._opened: Moment | None = None
        self._may_record = False
        self._stopped: StopAnswer | None = None
        self._cut = False
        self.short = False  # fewer files came than there are ranks

    @property
    def may_write(self) -> bool:
        """Its server was not seen to stop: without its folder the flush fails, which ends some servers."""
        return self._may_record

    @property
    def unwanted(self) -> bool:
        """Ended by `abort`, and every rank that is known has written: nobody needs its files."""
        if not self._cut or self._may_record or self._arrivals is None or self._expected is None:
            return False
        files = self._arrivals.new()
        return len(files) >= self._expected and all(map(is_whole, files))

    @property
    def method(self) -> Method:
        return "torch"

    @property
    def abort_s(self) -> float:
        return ABORT_S if self._may_record else 0.0

    def open(self) -> None:
        """Raises UsageError when the server refuses or has no room, MeasuredBad when it does not answer."""
        if self._folder is not None:
            if (full := space_left(self._folder)) is not None:
                raise UsageError(full, "free some, or name another folder")
            self._arrivals = Arrivals(self._folder, self._stage)
        self._may_record = True
        try:
            self._profiler.start()
        except UsageError:
            self._may_record = False  # it refused: a profile that runs there is not ours to end
            raise
        self._opened = Moment.now()

    def close(self) -> Captured:
        """Raises MeasuredBad when the server is gone, hangs, or could not write."""
        assert self._opened is not None, "a window is closed after it was opened"
        closed, deadline = Moment.now(), time.monotonic() + self._flush_s
        self._stopped = stopped = self._stop()
        if not stopped.ended:
            raise MeasuredBad(stopped.line, self._why_not())
        self._may_record = False
        files = self._gathered(max(deadline - time.monotonic(), 1.0))
        notes = [stopped.line] if stopped.state != "stopped" else []
        if files and self._expected is not None and len(files) < self._expected:
            self.short = True
            notes.append(f"{len(files)} of {self._expected} ranks wrote a trace")
        return Captured(
            method="torch",
            opened=self._opened,
            closed=closed,
            files=[str(f) for f in files],
            server_path=self._server_folder,
            notes=notes,
        )

    def abort(self) -> str:
        if self._stopped is not None and self._stopped.ended:
            return f"{self._stopped.line}; its trace is left in {self._server_folder or 'its folder'}"
        if not self._may_record:
            return "the server was not profiling for us"
        self._stopped = self._profiler.stop(ABORT_S)
        self._cut = self._stopped.ended
        self._may_record = not self._stopped.ended and self._stopped.state != "gone"
        if self._stopped.state == "hung":
            return f"{self._stopped.line}; it may still write its trace, or still record"
        return self._stopped.line

    def _stop(self) -> StopAnswer:
        """The call may last minutes; it runs beside, so that progress is said and Ctrl-C is heard.

        A server that dies meanwhile may leave it unanswered: so it is looked after.
        """
        answers: list[StopAnswer] = []
        call = threading.Thread(
            target=lambda: answers.append(self._profiler.stop(self._flush_s)), name="stop-profile", daemon=True
        )
        started = said = time.monotonic()
        gone = 0
        call.start()
        while call.is_alive():
            call.join(LOOK_S)
            if not call.is_alive():
                break
            why = self._profiler.gone()
            gone = gone + 1 if why is not None else 0
            if gone >= GONE_TIMES:
                full = space_left(self._folder) if self._folder is not None else None
                raise MeasuredBad(
                    f"the server died while it was told to stop profiling ({why})", full or "see the server's log"
                )
            if time.monotonic() - said >= SAY_S:
                said = time.monotonic()
                self._say(f"the server was told to stop profiling and is writing: {said - started:.0f} s")
        if not answers:
            raise MeasuredBad("the call to stop profiling failed", "see the traceback above")
        return answers[0]

    def _gathered(self, timeout_s: float) -> list[Path]:
        if self._arrivals is None:
            return []
        files = self._arrivals.wait(self._expected, timeout_s, QUIET_S, self._say)
        if not files:
            files = self._arrivals.wait(self._expected, timeout_s, LATE_S, self._say)
        torn = [f for f in files if not is_whole(f)]
        if torn:
            raise MeasuredBad(f"{torn[0]} was not written to its end", self._why_not())
        return files

    def _why_not(self) -> str:
        """The likeliest reason of a server that could not write."""
        full = space_left(self._folder) if self._folder is not None else None
        return full or "see the server's log; fewer --steps make a smaller trace, --flush-timeout S waits longer"
