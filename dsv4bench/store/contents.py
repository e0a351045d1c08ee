"""What an experiment's folder holds beside run.json, read as it is: cells, requests, telemetry, series.

Reading never writes. What is torn, damaged, doubled or absent is left out and named in `warnings`. Where a level
stands twice (it was interrupted and measured again), its last line counts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TypeVar

from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.codec import decode
from dsv4bench.records.series import Series
from dsv4bench.records.server import TelemetrySample
from dsv4bench.store import files, lines, members
from dsv4bench.store.members import Member, StoredRequest
from dsv4bench.store.series import cell_series

CELLS, REQUESTS, TELEMETRY, SERIES = "cells.jsonl", "requests.jsonl.gz", "telemetry.jsonl", "series.json"

T = TypeVar("T")


class Contents:
    """The readable files of one folder; `noted` are the bulky files that run.json knows of."""

    def __init__(self, path: Path, noted: Container[str]) -> None:
        self._path = path
        self._noted = noted
        self._warnings: dict[str, None] = {}  # an ordered set: reading twice warns once

    @property
    def warnings(self) -> list[str]:
        return list(self._warnings)

    def cells(self) -> list[Cell]:
        path = self._path / CELLS
        found: dict[str, Cell] = {}
        for cell in self._noting(lambda notes: lines.read(path, Cell, notes)):
            before = found.get(cell.cell)
            if before is not None and before.invalid is not Invalid.INTERRUPTED:
                self._warn(f"{path}: {cell.cell} stands there twice; the later line counts")
            found[cell.cell] = cell
        return list(found.values())

    def requests(self, cell_id: str | None = None) -> Iterator[StoredRequest]:
        data, found = self._members()
        for cell, member in found.items():
            if cell_id is None or cell == cell_id:
                yield from self._unpack(data, member)

    def telemetry(self) -> list[TelemetrySample]:
        self._expect(TELEMETRY)
        return self._noting(lambda notes: lines.read(self._path / TELEMETRY, TelemetrySample, notes))

    def series(self) -> Series | None:
        path = self._path / SERIES
        return decode(files.read_bytes(path), Series, str(path)) if path.exists() else None

    def build_series(self) -> Series:
        """From the bulky files; the stored series is what remains of them in a clone."""
        data, found = self._members()
        telemetry = self.telemetry()
        return Series(
            cells=[
                cell_series(c, self._unpack(data, found[c.cell]) if c.cell in found else [], telemetry)
                for c in self.cells()
            ]
        )

    def _members(self) -> tuple[bytes, dict[str, Member]]:
        self._expect(REQUESTS)
        path = self._path / REQUESTS
        data = files.read_bytes(path) if path.exists() else b""
        return data, self._noting(lambda notes: members.latest(data, str(path), notes))

    def _unpack(self, data: bytes, member: Member) -> list[StoredRequest]:
        where = str(self._path / REQUESTS)
        return self._noting(lambda notes: members.unpack(data, member, where, notes))

    def _expect(self, name: str) -> None:
        """A clone has the numbers and not the bulk: say so rather than show nothing."""
        if name in self._noted and not (self._path / name).exists():
            self._warn(f"{self._path / name} is not here; git keeps only the numbers")

    def _noting(self, read: Callable[[list[str]], T]) -> T:
        notes: list[str] = []
        result = read(notes)
        self._warn(*notes)
        return result

    def _warn(self, *notes: str) -> None:
        self._warnings.update(dict.fromkeys(notes))
