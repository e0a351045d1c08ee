"""Blocks of one table collected into typed columns, whatever the schema's age.

A column that the table lacks is zero and named in `missing`. A row without a start or an end, or that ends before it
starts, is left out and counted in `left_out`: it has no place on a timeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dsv4bench.errors import SchemaError
from dsv4bench.records.trace import Ints, Small
from dsv4bench.trace.nsys_database import NsysDatabase

_LARGEST = np.iinfo(np.int64).max
_INT32 = np.iinfo(np.int32)
_HOST_SHIFT, _PID_SHIFT, _ID_MASK = 48, 24, 0xFFFFFF


class Intervals:
    """The rows of one table that have a start and an end, in blocks: `start`, `end`, then the wanted columns."""

    def __init__(self, db: NsysDatabase, table: str, wanted: Sequence[str], where: str = "") -> None:
        present = db.columns(table)
        for column in ("start", "end"):
            if present and column not in present:
                raise SchemaError(f"{db.shown}: {table} has no column {column!r}", "export the report again")
        self.missing = [f"{table}.{column}" for column in wanted if column not in present] if present else [table]
        self.left_out = 0
        self.table = table
        self._db, self._where = db, where
        self._columns = [("start", _LARGEST), ("end", -_LARGEST), *((column, 0) for column in wanted)]

    def __iter__(self) -> Iterator[Ints]:
        if not self._db.has(self.table):
            return
        for block in self._db.blocks(self.table, self._columns, self._where):
            sound = block[:, 0] <= block[:, 1]
            kept = int(np.count_nonzero(sound))
            self.left_out += len(block) - kept
            yield block if kept == len(block) else block[sound]

    def gather(self) -> Ints:
        """All rows at once: for what is small beside the kernels."""
        blocks = deque(self)
        rows: Ints = np.empty((len(self._columns), sum(map(len, blocks))), np.int64).T  # a column lies in one piece
        at = 0
        while blocks:
            block = blocks.popleft()
            rows[at : at + len(block)] = block
            at += len(block)
        return rows


class Column:
    """A column filled block by block. While all its rows are one number it takes no room, and then it is read-only.

    Its place is set aside at once, and the system gives memory only where something is written.
    """

    def __init__(self, capacity: int, kind: type[np.int64] | type[np.int32] = np.int64) -> None:
        self._capacity, self._kind = capacity, kind
        self._rows: npt.NDArray[Any] = np.empty(0, kind)
        self._one: int | None = None

    def put(self, rows: slice, values: npt.NDArray[np.integer]) -> None:
        """The next rows; they follow those put before."""
        if not len(values):
            return
        if not len(self._rows):
            first = int(values[0])
            if (self._one is None or self._one == first) and (values == first).all():
                self._one = first
                return
            self._rows = np.empty(self._capacity, self._kind)
            self._rows[: rows.start] = self._one or 0
        self._rows[rows] = values

    def take(self, rows: int) -> npt.NDArray[Any]:
        """The first so many rows."""
        if len(self._rows) or self._one is None:
            return self._rows[:rows]
        return np.broadcast_to(self._kind(self._one), (rows,))


def each(values: Ints, of: Callable[[Ints], Ints]) -> Ints:
    """`of` every value; a column of one number stays one number."""
    if values.strides == (0,) and len(values):
        return np.broadcast_to(of(values[:1]), values.shape)
    return of(values)


def narrow(values: Ints, what: str) -> Small:
    """32-bit integers; SchemaError where a value does not fit, for a wrapped number would be a silent lie."""
    if values.size and (int(values.min()) < _INT32.min or int(values.max()) > _INT32.max):
        raise SchemaError(f"{what} holds a number beyond 32 bits", "the export is damaged: export the report again")
    return values.astype(np.int32)


def thread_ids(global_ids: Ints) -> Ints:
    return each(global_ids, lambda ids: ids & _ID_MASK)


class Processes:
    """Process ids out of nsys' global ids (host, process, thread packed in one integer).

    One host: the operating system's pid. Several hosts in one report: the host stays in the id, for a pid, and a
    correlation id within it, is unique on its own host only.
    """

    def __init__(self, *global_ids: Ints) -> None:
        shown = [ids[:1] if ids.strides == (0,) else ids for ids in global_ids]
        hosts = [ids[ids != 0] >> _HOST_SHIFT for ids in shown]
        known = [column for column in hosts if column.size]
        self._one_host = not known or min(int(c.min()) for c in known) == max(int(c.max()) for c in known)

    def of(self, global_ids: Ints) -> Ints:
        mask = _ID_MASK if self._one_host else -1
        return each(global_ids, lambda ids: (ids >> _PID_SHIFT) & mask)
