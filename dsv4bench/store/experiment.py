"""One experiment's folder: run.json, cells.jsonl, requests.jsonl.gz, telemetry.jsonl, series.json, server.log.

A level ends with `append_requests`, then `append_cell`: the cell's line is what makes it done. A cell id names one
level of the experiment; where a level was measured again, its last line counts. Reading never writes; writing needs
the lock, which `Store.create` and `Store.resume` take and `finish` or `close` give back. A folder that says
"running" while nobody holds its lock was killed, and reads as aborted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from dsv4bench.errors import StoreError
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.experiment import Experiment, FileNote, IndexEntry, Status
from dsv4bench.records.request import RequestRecord
from dsv4bench.records.series import Series
from dsv4bench.records.server import TelemetrySample
from dsv4bench.store import files, index, lines, members, redaction
from dsv4bench.store.contents import CELLS, REQUESTS, SERIES, TELEMETRY, Contents
from dsv4bench.store.files import Appender
from dsv4bench.store.lock import Lock, held
from dsv4bench.store.members import StoredRequest
from dsv4bench.store.naming import iso, utc_now

RUN, SERVER_LOG, TRACE = "run.json", "server.log", "trace"
KILLED = "killed: it says running, and no process holds its lock"


class ExperimentDir:
    """A folder of results, open for reading, or for writing by the one process that holds its lock."""

    def __init__(self, path: Path, experiment: Experiment, lock: Lock | None = None) -> None:
        self.path = path
        self.experiment = experiment
        self.passed_over: list[str] = []  # newer ones of its name that a name did not select, with the reason
        self._lock = lock
        self._appenders: dict[str, Appender] = {}
        self._contents = Contents(path, experiment.files)

    # --- opening -------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Self:
        """For reading. Raises StoreError, or SchemaError for a damaged or newer run.json."""
        experiment = _read(path)
        if experiment.status is Status.RUNNING and not held(path):
            experiment = _read(path)  # it may have ended between the two looks
            if experiment.status is Status.RUNNING:
                experiment = msgspec.structs.replace(experiment, status=Status.ABORTED, reason=KILLED)
        return cls(path, experiment)

    @classmethod
    def begin(cls, path: Path, experiment: Experiment) -> Self:
        """A new folder, with its header written and its lock held; it must not exist yet."""
        with files.failing_as("create", path):
            path.mkdir()
            files.sync_folder(path.parent)
        lock = Lock(path)
        new = cls(path, experiment, lock)
        try:
            new._save(experiment)
        except StoreError:
            lock.release()
            with suppress(OSError):
                path.rmdir()
            raise
        return new

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on writing: takes the lock, cuts torn tails, and sets the status back to running."""
        lock = Lock(path)
        try:
            resumed = cls(path, _read(path), lock)
            resumed._repair()
            resumed.update(status=Status.RUNNING, reason=None, ended_utc=None)
        except BaseException:
            lock.release()
            raise
        return resumed

    # --- reading -------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.experiment.id

    @property
    def server_log(self) -> Path:
        """Where a launched server's output goes; `finish` takes secrets out of it."""
        return self.path / SERVER_LOG

    @property
    def warnings(self) -> list[str]:
        """What reading had to drop, or did not find, so far."""
        return self._contents.warnings

    def cells(self) -> list[Cell]:
        """Every level, in the order of their first lines."""
        return self._contents.cells()

    def done(self) -> set[str]:
        """Ids of the levels that a resumed sweep need not measure again."""
        return {c.cell for c in self.cells() if c.invalid is not Invalid.INTERRUPTED}

    def requests(self, cell_id: str | None = None) -> Iterator[StoredRequest]:
        """The requests of one cell, or of all; those of a level killed before its cell line are among them."""
        return self._contents.requests(cell_id)

    def telemetry(self) -> list[TelemetrySample]:
        """Every sample, in the order written."""
        return self._contents.telemetry()

    def series(self) -> Series | None:
        """The stored series.json; None before `finish`."""
        return self._contents.series()

    def entry(self) -> IndexEntry:
        """This experiment's line of the index."""
        e = self.experiment
        return IndexEntry(
            id=e.id,
            config=e.config,
            scenario=e.scenario,
            status=e.status,
            started_utc=e.started_utc,
            engine=e.server.engine.value,
            model=e.server.model,
            n_cells=len(self.cells()),
            workload_fingerprint=e.workload_fingerprint,
        )

    # --- writing -------------------------------------------------------------------------------------------

    def append_cell(self, cell: Cell) -> None:
        """The end of a level, durable when this returns. Raises StoreError and leaves the file as it was."""
        line = encode(redaction.clean_cell(cell)) + b"\n"
        self._appender(CELLS).append(line, safe=self._what_is_safe)

    def append_requests(self, cell_id: str, records: Sequence[RequestRecord]) -> None:
        """A level's requests, before its cell; durable when this returns."""
        if records:
            data = members.pack(cell_id, [redaction.clean_request(r) for r in records])
            self._appender(REQUESTS).append(data, safe=self._what_is_safe)

    def append_telemetry(self, samples: Sequence[TelemetrySample]) -> None:
        """One or more samples; they survive a kill at once, a power cut not."""
        if samples:
            data = b"".join(encode(s) + b"\n" for s in samples)
            self._appender(TELEMETRY).append(data, durable=False, safe=self._what_is_safe)

    def update(self, **fields: Any) -> None:
        """Replace fields of run.json (`launches`, `server`, `extra`, …)."""
        self._save(msgspec.structs.replace(self.experiment, **fields))

    def set_status(self, status: Status, reason: str | None = None) -> None:
        """Say how it stands, and go on."""
        self.update(status=status, reason=reason)

    def finish(self, status: Status = Status.COMPLETE, reason: str | None = None) -> None:
        """The end: run.json with its final status and file notes, series.json, the index; gives the lock back.

        Whatever fails after the first write, the status is on disk; the lock is free in every case.
        """
        self._require_lock()
        try:
            self.update(status=status, reason=reason, ended_utc=iso(utc_now()))  # first: what follows may fail
            if self.server_log.exists():
                redaction.clean_log(self.server_log)
            self.update(files=self._file_notes())
            files.write_whole(self.path / SERIES, encode(self._contents.build_series()), self._what_is_safe)
            index.append(self.path.parent, self.entry(), safe=lambda: f"{self.path} is safe")
        finally:
            self.close()

    def close(self) -> None:
        """Give the lock back. Without `finish`, a status of running will read as aborted."""
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- within --------------------------------------------------------------------------------------------

    def _require_lock(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading only", "open it with Store.create or Store.resume")

    def _repair(self) -> None:
        """What a kill may have left: temporary files and torn tails."""
        for leftover in self.path.glob(f".*{files.TEMPORARY}"):
            leftover.unlink(missing_ok=True)
        for name in (CELLS, REQUESTS, TELEMETRY):
            if (self.path / name).exists():
                self._appender(name)

    def _appender(self, name: str) -> Appender:
        self._require_lock()
        if name not in self._appenders:
            appender = self._appenders[name] = Appender(self.path / name)
            appender.cut_tail(members.sound_end if name == REQUESTS else lines.sound_end)
        return self._appenders[name]

    def _save(self, experiment: Experiment) -> None:
        self._require_lock()
        clean = redaction.clean_experiment(experiment)
        files.write_whole(self.path / RUN, encode(clean, indent=True) + b"\n", self._what_is_safe)
        self.experiment = clean

    def _what_is_safe(self) -> str:
        n = lines.count(self.path / CELLS)
        return f"{n} finished level{' is' if n == 1 else 's are'} safe there" if n else ""

    def _file_notes(self) -> dict[str, FileNote]:
        """The files that git ignores, by their path in this folder."""
        named = [self.path / name for name in (REQUESTS, TELEMETRY, SERVER_LOG)]
        bulky = [*named, *sorted((self.path / TRACE).rglob("*"))]
        return {p.relative_to(self.path).as_posix(): files.note(p) for p in bulky if p.is_file()}


def _read(path: Path) -> Experiment:
    run = path / RUN
    return decode(files.read_bytes(run), Experiment, str(run))
