"""One window of an nsys session: from `nsys start` to a SQLite export that can be read.

`open` returns when `nsys sessions list` says that it records, since exit codes do not. `close` waits for the flush,
the import and the export, telling how far they are, and gives up after a time. `abort` keeps nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from dsv4bench.capture import nsys_faults as faults
from dsv4bench.capture.nsys_command import cancel_command, export_command, start_command, stop_command
from dsv4bench.capture.nsys_gpus import missing_gpus
from dsv4bench.errors import BenchError, Unanswerable
from dsv4bench.records.capture import Captured, Moment

if TYPE_CHECKING:
    from dsv4bench.capture.nsys import NsysSession

_POLL_S = 0.1
_ABORT_S = 20.0
_RECORDING = ("Collection", "RangeCollection")
_ARMED = ("StartRange", "DelayedCollection")  # waiting for cudaProfilerStart
_ENDED = (None, "Shutdown")  # the session's states when the server is gone
_LAST_WORDS_S = 5.0


class ProfilerRange(NamedTuple):
    """How a server is made to call cudaProfilerStart and cudaProfilerStop itself: two requests of the caller's.

    `end_s`: how long `end` may take.
    """

    begin: Callable[[], object]
    end: Callable[[], object]
    end_s: float = 0.0


class NsysWindow:
    """A `CaptureWindow`, used once. `label` names its report."""

    def __init__(
        self,
        session: NsysSession,
        label: str,
        ended: Callable[[], str | None] = lambda: None,
        by_server: ProfilerRange | None = None,
    ) -> None:
        self._session = session
        self._stem = re.sub(r"[^\w.-]+", "_", label) or "window"
        self._ended = ended
        self._by_server = by_server
        self._opened: Moment | None = None
        self._state: Literal["new", "told", "open", "over"] = "new"

    @property
    def method(self) -> Literal["nsys"]:
        return "nsys"

    @property
    def abort_s(self) -> float:
        if self._state in ("new", "over"):
            return 0.0
        return 2 * _ABORT_S + (self._by_server.end_s if self._by_server is not None else 0.0)

    def open(self) -> None:
        """Start recording. Raises UsageError without room, Unanswerable where the server died or nsys does not."""
        s = self._session
        self._alive(s.state())  # `nsys start` would make a session of its own for one that is not there
        faults.need_room(s.folder, s.limits.need_bytes)
        self._state = "told"
        command = start_command(
            s.nsys,
            s.options,
            s.name,
            self._path("nsys-rep"),
            by_server=self._by_server is not None,
            metrics=s.metrics,
        )
        done = s.run(command, "start")
        if done.code is None:
            raise faults.too_slow("start", done.seconds, 0)
        if done.code != 0:
            raise self._dead(s.state()) or faults.refused("start", done.said, s.name)
        if self._by_server is not None:
            self._until((*_ARMED, *_RECORDING), s.limits.begin_s, faults.not_begun(s.name, s.limits.begin_s))
            self._by_server.begin()
            self._until(_ARMED, s.limits.range_s, faults.no_range(s.limits.range_s), left=True)
        else:
            self._until(_RECORDING, s.limits.begin_s, faults.not_begun(s.name, s.limits.begin_s))
        self._opened = Moment.now()
        self._state = "open"

    def close(self) -> Captured:
        """Stop, and export. Raises what `nsys_faults` finds; UsageError when the disk is full, Unanswerable else."""
        if self._opened is None or self._state != "open":
            raise Unanswerable(f"the nsys window {self._stem} is not open", "open it first, and once")
        s, closed = self._session, Moment.now()
        self._state = "told"
        bounds = []
        if self._by_server is not None:
            self._by_server.end()
            bounds.append(self._range_over())
        said = self._stop()
        self._alive(s.state())
        report = self._whole(said)
        export = self._export(report)
        self._state = "over"
        missing = missing_gpus(export, s.ranks)
        copy = s.kept(report)
        report.unlink()
        notes = [f"recorded by {s.nsys.shown}", *bounds, *([missing] if missing else []), *s.notes]
        return Captured(
            method="nsys",
            opened=self._opened,
            closed=closed,
            files=[str(export)],
            kept=[str(copy)] if copy is not None else [],
            label=self._stem,
            notes=notes,
        )

    def abort(self) -> str:
        """End the recording and delete it. Never raises."""
        if self._state in ("new", "over"):
            self._state = "over"
            return "nsys was not recording"
        self._state = "over"
        try:
            return self._cancelled()
        except Exception as error:  # the session's end is still to come, and ends nsys
            return f"nsys did not answer ({error}); it ends with its session"
        finally:
            for path in self._session.folder.glob(f"{self._stem}.*"):
                path.unlink(missing_ok=True)

    def _cancelled(self) -> str:
        """Some versions have no `cancel`; stopping, and throwing away what comes of it, is the same then."""
        s = self._session
        if self._by_server is not None:
            with contextlib.suppress(Exception):  # whatever it raises, nsys is stopped
                self._by_server.end()
        for command, verb in ((cancel_command, "cancel"), (stop_command, "stop")):
            if s.state() not in (*_RECORDING, *_ARMED):
                return "nsys records no more"
            done = s.run(command(s.nsys, s.name), verb, _ABORT_S)
            if done.code == 0 and s.state() not in (*_RECORDING, *_ARMED):
                return f"nsys was told to {verb}, and did"
        return f"nsys did not stop within {_ABORT_S:.0f} s; it ends with its session"

    def _stop(self) -> str:
        """What nsys said; with a range it may have stopped by itself, as it does when the server ends."""
        s = self._session
        if self._by_server is not None and s.state() not in _RECORDING:
            return self._await_report()
        watch = faults.watching(s.folder, "writes its report", s.say, s.limits.spare_bytes)
        done = s.run(stop_command(s.nsys, s.name), "stop", s.limits.stop_s, watch)
        if done.code is None:
            raise faults.too_slow("stop", done.seconds, faults.bytes_in(s.folder))
        if done.code != 0:
            self._alive(s.state())
            if self._report() is None:
                raise faults.disk_full(s.folder, done.said) or faults.refused("stop", done.said, s.name)
        return done.said

    def _range_over(self) -> str:
        """The window's bounds, in words. A server may call cudaProfilerStop after its answer, or not at all."""
        wait_s = self._session.limits.begin_s
        try:
            self._until(_RECORDING, wait_s, faults.not_begun("", wait_s), left=True)
        except Unanswerable:
            return "from the server's cudaProfilerStart to `nsys stop`: its cudaProfilerStop did not come"
        return "from the server's cudaProfilerStart to its cudaProfilerStop"

    def _await_report(self) -> str:
        """nsys makes the report by itself at the end of a range: wait until it is whole."""
        s = self._session
        watch = faults.watching(s.folder, "writes its report", s.say, s.limits.spare_bytes)
        begun, size = time.monotonic(), -1
        while True:
            passed = time.monotonic() - begun
            report = self._report()
            now = report.stat().st_size if report is not None else -1
            if now > 0 and now == size:
                return ""
            if passed > s.limits.stop_s:
                raise faults.too_slow("stop", passed, faults.bytes_in(s.folder))
            if report is None and self._path(faults.STREAM[1:]).is_file() and passed > s.limits.begin_s:
                return ""  # a raw stream only: the caller finds out why
            size = now
            watch(passed)
            self._alive(s.state())
            time.sleep(5 * _POLL_S)

    def _export(self, report: Path) -> Path:
        s, export = self._session, self._path("sqlite")
        watch = faults.watching(s.folder, "exports", s.say, s.limits.spare_bytes)
        done = s.run(export_command(s.nsys, report, export), "export", s.limits.export_s, watch)
        if done.code is None:
            raise faults.too_slow("export", done.seconds, faults.bytes_in(s.folder))
        if done.code != 0 or not export.is_file() or export.stat().st_size == 0:
            raise faults.no_export(s.folder, self._stem, s.nsys, done.said)
        return export

    def _whole(self, said: str) -> Path:
        """The report. Raises what `nsys_faults` finds where there is none, or one that nobody can read."""
        s, report = self._session, self._report()
        if report is None:
            raise faults.no_report(s.folder, self._stem, s.nsys, said)
        size = report.stat().st_size
        if size > s.limits.report_bytes:
            raise faults.too_large(f"the report of {self._stem}", size, s.limits.report_bytes)
        return report

    def _report(self) -> Path | None:
        found = (self._path(suffix[1:]) for suffix in faults.REPORTS)
        return next((path for path in found if path.is_file() and path.stat().st_size > 0), None)

    def _path(self, suffix: str) -> Path:
        return self._session.folder / f"{self._stem}.{suffix}"

    def _until(self, states: tuple[str, ...], seconds: float, otherwise: BenchError, left: bool = False) -> None:
        """Until the session is in one of these states, or has `left` them; raises `otherwise` after that time."""
        deadline = time.monotonic() + seconds
        while ((state := self._session.state()) in states) == left:
            self._alive(state)
            if time.monotonic() > deadline:
                raise otherwise
            time.sleep(_POLL_S)

    def _alive(self, state: str | None) -> None:
        if (dead := self._dead(state)) is not None:
            raise dead

    def _dead(self, state: str | None) -> BenchError | None:
        """nsys' session ends a moment before the process that was started, whose log tells more."""
        if state not in _ENDED:
            return None
        deadline = time.monotonic() + _LAST_WORDS_S
        while (how := self._ended()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return faults.server_died(how or "its nsys session is over")
