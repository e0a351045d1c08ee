"""What ran on the devices: kernels, copies and memsets of an nsys export, as the columns of one timeline.

Where the export has no graphId (before schema 3.24) a kernel's graph is the upper half of graphNodeId, which packs
(graph << 32) | node. A name is `demangledName`, else `shortName`, else `mangledName`; the short form is our own, so
that it equals other tools' for the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dsv4bench.errors import SchemaError
from dsv4bench.records.trace import Bytes, Ints, Kind, Small
from dsv4bench.trace.names import short_name
from dsv4bench.trace.nsys_columns import Column, Intervals, narrow
from dsv4bench.trace.nsys_database import NsysDatabase
from dsv4bench.trace.nsys_strings import strings

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
COPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"

_COMMON = ("deviceId", "streamId", "globalPid", "correlationId", "graphNodeId")
_SHAPE = ("registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_NAMES = ("demangledName", "shortName", "mangledName")
_SHAPES_AT = 2 + len(_COMMON)
_EXTRA_AT = _SHAPES_AT + len(_SHAPE) + len(_SHARED)
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}
_COPY_KINDS |= {10: "PtoP", 11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}
_PLACES = {"start": 0, "end": 1, "stream": 3, "process": 4, "correlation": 5, "graph_node": 6}  # in a block
_NODE_AT = _PLACES["graph_node"]
_NAMELESS = "(kernel without a name)"


class Activity:
    """Columns of all rows in the file's order; `names[k]` are the spellings of name k.

    `capacity` rows are set aside at once: a million rows collected block by block would be in memory twice.
    """

    def __init__(self, capacity: int) -> None:
        self._wide = {column: Column(capacity) for column in (*_PLACES, "graph_id")}
        self._small = {column: Column(capacity, np.int32) for column in ("device", "name", "registers", "shared")}
        self._shapes = {column: np.empty((capacity, 3), np.int32) for column in ("grid", "block")}
        self._kind = np.empty(capacity, np.uint8)
        self._capacity = capacity
        self.names: list[tuple[str, str, str]] = []
        self.missing: list[str] = []
        self.warnings: list[str] = []
        self.kernels = 0
        self.rows = 0

    def add(self, kind: Kind, block: Ints, table: str, name: Small, graph_id: Ints) -> slice:
        """The columns that every kind has, from a block of start, end, `_COMMON`; the rows' place, for the others."""
        rows = slice(self.rows, self.rows + len(block))
        if rows.stop > self._capacity:
            raise SchemaError(
                f"{table} has more rows than it counts", "the export is damaged: export the report again"
            )
        for column, at in _PLACES.items():
            self._wide[column].put(rows, block[:, at])
        self._wide["graph_id"].put(rows, graph_id)
        self._small["device"].put(rows, narrow(block[:, 2], f"{table}.deviceId"))
        self._small["name"].put(rows, name)
        self._kind[rows] = kind
        self.rows = rows.stop
        return rows

    def shape(self, rows: slice, registers: Small, grid: Small, block: Small, shared: Small) -> None:
        self._small["registers"].put(rows, registers)
        self._small["shared"].put(rows, shared)
        self._shapes["grid"][rows], self._shapes["block"][rows] = grid, block

    def no_shape(self, rows: slice) -> None:
        none = np.zeros(rows.stop - rows.start, np.int32)
        self.shape(rows, none, np.zeros((len(none), 3), np.int32), np.zeros((len(none), 3), np.int32), none)

    def take(self, column: str) -> Ints:
        """A 64-bit column, once: it is let go here, so that sorting holds one column twice and not all."""
        return self._wide.pop(column).take(self.rows)

    def take_small(self, column: str) -> Small:
        if column in self._shapes:
            return self._shapes.pop(column)[: self.rows]
        return self._small.pop(column).take(self.rows)

    @property
    def kind(self) -> Bytes:
        return self._kind[: self.rows]

    def spell(self, spellings: tuple[str, str, str]) -> int:
        self.names.append(spellings)
        return len(self.names) - 1


def read_activity(db: NsysDatabase) -> Activity:
    """Every kernel, copy and memset of the file."""
    tables = [table for table in (KERNEL, COPY, MEMSET) if db.has(table)]
    activity = Activity(sum(db.number(f"SELECT count(*) FROM {table}") for table in tables))
    _read_kernels(db, activity)
    _read_moves(db, activity, COPY, Kind.COPY, ("copyKind",), _copy_name)
    _read_moves(db, activity, MEMSET, Kind.MEMSET, (), lambda _: "Memset")
    return activity


def _read_kernels(db: NsysDatabase, activity: Activity) -> None:
    present = db.columns(KERNEL)
    names = [column for column in _NAMES if column in present]
    used = list(dict.fromkeys([*names[:1], *(n for n in names if n == "mangledName")]))
    has_graph = "graphId" in present
    extra = [*used, *(["graphId"] if has_graph else [])]
    intervals = Intervals(db, KERNEL, [*_COMMON, *_SHAPE, *_SHARED, *extra])
    index: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for block in intervals:
        ids = block[:, _EXTRA_AT] if used else np.zeros(len(block), np.int64)
        raw = block[:, _EXTRA_AT + len(used) - 1] if used else ids
        graph_id = block[:, -1] if has_graph else block[:, _NODE_AT] >> 32
        rows = activity.add(Kind.KERNEL, block, KERNEL, _numbered(ids, raw, index, pairs), graph_id)
        shape = narrow(block[:, _SHAPES_AT : _SHAPES_AT + 7], f"{KERNEL}: grid, block or registers")
        shared = narrow(block[:, _EXTRA_AT - 2] + block[:, _EXTRA_AT - 1], f"{KERNEL}: shared memory")
        activity.shape(rows, shape[:, 0], shape[:, 1:4], shape[:, 4:7], shared)
    activity.kernels = activity.rows
    if not names and activity.kernels:
        intervals.missing.append(f"{KERNEL}.demangledName")
    _note(activity, intervals, "kernels")
    _name_kernels(db, activity, pairs)


def _numbered(ids: Ints, raw: Ints, index: dict[int, int], pairs: list[tuple[int, int]]) -> Small:
    """Our own running numbers for the file's name ids; `pairs[number]` = (name id, mangled name id)."""
    distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    numbers = np.empty(len(distinct), np.int32)
    for k, (name_id, at) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
        if name_id not in index:
            index[name_id] = len(pairs)
            pairs.append((name_id, int(raw[at])))
        numbers[k] = index[name_id]
    return numbers[inverse]


def _name_kernels(db: NsysDatabase, activity: Activity, pairs: Sequence[tuple[int, int]]) -> None:
    texts = strings(db, (text_id for pair in pairs for text_id in pair))
    nameless = 0
    for name_id, raw_id in pairs:
        readable = texts.get(name_id) or texts.get(raw_id) or _NAMELESS
        nameless += readable is _NAMELESS
        activity.spell((texts.get(raw_id) or readable, readable, short_name(readable)))
    if nameless:
        activity.warnings.append(f"{nameless} kernel names are not in StringIds: those kernels are in no component")


def _copy_name(copy_kind: int) -> str:
    return f"Memcpy {_COPY_KINDS[copy_kind]}" if copy_kind in _COPY_KINDS else "Memcpy"


def _read_moves(
    db: NsysDatabase,
    activity: Activity,
    table: str,
    kind: Kind,
    extra: Sequence[str],
    spell: Callable[[int], str],
) -> None:
    """Copies or memsets: rows without a shape, named by their kind."""
    if not db.has(table):
        return
    intervals = Intervals(db, table, [*_COMMON, *extra])
    index: dict[int, int] = {}
    for block in intervals:
        kinds = block[:, _SHAPES_AT] if extra else np.zeros(len(block), np.int64)
        name = np.zeros(len(block), np.int32)
        for value in np.unique(kinds).tolist():
            if value not in index:
                text = spell(value)
                index[value] = activity.spell((text, text, text))
            name[kinds == value] = index[value]
        activity.no_shape(activity.add(kind, block, table, name, block[:, _NODE_AT] >> 32))
    _note(activity, intervals, "copies" if kind is Kind.COPY else "memsets")


def _note(activity: Activity, intervals: Intervals, what: str) -> None:
    activity.missing += intervals.missing
    if intervals.left_out:
        activity.warnings.append(
            f"{intervals.left_out} {what} have no end or end before they start: left out of every figure"
        )
