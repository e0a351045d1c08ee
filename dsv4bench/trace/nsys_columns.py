"""Blocks of one table collected into typed columns, whatever the schema's age.

A column that the table lacks is zero and named in `missing`. A row without a start or an end, or that ends before it
starts, is left out and counted in `left_out`: it has no place on a timeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

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

    def gather(self, kept: Callable[[Ints], npt.NDArray[np.bool_]] | None = None) -> Ints:
        """All rows at once, or those that `kept` marks in their block: for what is small beside the kernels."""
        blocks = deque(block if kept is None else block[kept(block)] for block in self)
        rows: Ints = np.empty((len(self._columns), sum(map(len, blocks))), np.int64).T  # a column lies in one piece
        at = 0
        while blocks:
            block = blocks.popleft()
            rows[at : at + len(block)] = block
            at += len(block)
        return rows


def narrow(values: Ints, what: str) -> Small:
    """32-bit integers; SchemaError where a value does not fit, for a wrapped number would be a silent lie."""
    if values.size and (int(values.min()) < _INT32.min or int(values.max()) > _INT32.max):
        raise SchemaError(f"{what} holds a number beyond 32 bits", "the export is damaged: export the report again")
    return values.astype(np.int32)


def thread_ids(global_ids: Ints) -> Ints:
    return global_ids & _ID_MASK


class Processes:
    """Process ids out of nsys' global ids (host, process, thread packed in one integer).

    One host: the operating system's pid. Several hosts in one report: the host stays in the id, for a pid, and a
    correlation id within it, is unique on its own host only.
    """

    def __init__(self, *global_ids: Ints) -> None:
        hosts = [ids[ids != 0] >> _HOST_SHIFT for ids in global_ids]
        known = [column for column in hosts if column.size]
        self._one_host = not known or min(int(c.min()) for c in known) == max(int(c.max()) for c in known)

    def of(self, global_ids: Ints) -> Ints:
        ids: Ints = global_ids >> _PID_SHIFT
        return ids & _ID_MASK if self._one_host else ids
