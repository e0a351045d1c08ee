"""Collects work, spans and launches, batch by batch, and makes a `KernelTrace` of them, whatever the file was.

`pid` of a kernel is the host process that launched it (the only one in the file, else the one whose launch has its
correlation, else 0), since that is what joins kernels to launches. A span on the device has the device as pid and
the stream as tid.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import DeviceFacts, GraphRuns, Ints, KernelTrace, Kind, Launches, Small, Source, Spans
from dsv4bench.trace.names import spellings


def _longs() -> array[int]:
    return array("q")


Triple = tuple[int, int, int]


@dataclass(slots=True)
class _Columns:
    """Growing columns; eight bytes a value, so a million kernels need about a hundred megabytes."""

    start: array[int] = field(default_factory=_longs)
    end: array[int] = field(default_factory=_longs)
    name: array[int] = field(default_factory=lambda: array("i"))
    pid: array[int] = field(default_factory=_longs)
    tid: array[int] = field(default_factory=_longs)
    flag: array[int] = field(default_factory=lambda: array("B"))
    correlation: array[int] = field(default_factory=_longs)

    def add(
        self,
        names: list[str],
        known: dict[str, int],
        start: Ints,
        end: Ints,
        pid: list[int],
        tid: list[int],
        flags: bytes,
    ) -> None:
        self.start.frombytes(start.tobytes())
        self.end.frombytes(end.tobytes())
        for name in dict.fromkeys(names):
            if name not in known:
                known[name] = len(known)
        self.name.fromlist([known[name] for name in names])
        self.pid.fromlist(pid)
        self.tid.fromlist(tid)
        self.flag.frombytes(flags)

    def all(self) -> list[array[int]]:
        return [self.start, self.end, self.name, self.pid, self.tid, self.flag, self.correlation]

    def longs(self, column: str, order: npt.NDArray[np.intp]) -> Ints:
        return _longs_of(getattr(self, column), order)


class Timeline:
    """Add in any order; `build` sorts by start, and equal starts stay in the order of the file."""

    def __init__(self) -> None:
        self._work, self._spans, self._launches = _Columns(), _Columns(), _Columns()
        self._grid, self._block, self._registers, self._shared = array("i"), array("i"), array("i"), array("i")
        self._graph, self._node = array("q"), array("q")
        self._names: dict[str, int] = {}
        self._span_names: dict[str, int] = {}
        self.kernels = 0

    def add_work(
        self,
        kinds: bytes,
        names: list[str],
        start: Ints,
        end: Ints,
        *,
        device: list[int],
        stream: list[int],
        correlation: list[int],
        grid: list[Triple],
        block: list[Triple],
        registers: list[int],
        shared: list[int],
        graph: list[int],
        node: list[int],
    ) -> None:
        """Several kernels, copies and memsets, columnar; a kind is a byte of `kinds`."""
        self._work.add(names, self._names, start, end, device, stream, kinds)
        self._work.correlation.fromlist(correlation)
        self._grid.fromlist(list(chain.from_iterable(grid)))
        self._block.fromlist(list(chain.from_iterable(block)))
        self._registers.fromlist(registers)
        self._shared.fromlist(shared)
        self._graph.fromlist(graph)
        self._node.fromlist(node)
        self.kernels += kinds.count(Kind.KERNEL)

    def add_spans(
        self, names: list[str], start: Ints, end: Ints, *, pid: list[int], tid: list[int], on_device: bytes
    ) -> None:
        self._spans.add(names, self._span_names, start, end, pid, tid, on_device)

    def add_launches(
        self, start: Ints, end: Ints, *, pid: list[int], tid: list[int], correlation: list[int], is_graph: list[bool]
    ) -> None:
        self._launches.add([], {}, start, end, pid, tid, bytes(is_graph))
        self._launches.correlation.fromlist(correlation)

    def columns(self) -> list[array[int]]:
        """Everything that was added but the names, in an order that is the same for every timeline."""
        found = [column for part in (self._work, self._spans, self._launches) for column in part.all()]
        return [
            *found,
            *(self._grid, self._block, self._registers, self._shared, self._graph, self._node),
        ]

    def names(self) -> tuple[list[str], list[str]]:
        """The names of the work and of the spans, as the columns number them."""
        return list(self._names), list(self._span_names)

    def append(self, names: tuple[list[str], list[str]], kernels: int, columns: Iterable[array[int]]) -> None:
        """Adds what another timeline holds, given as its `names`, `kernels` and `columns`."""
        for mine, theirs in zip(self.columns(), columns, strict=True):
            if mine is self._work.name:
                theirs = _renumbered(theirs, names[0], self._names)
            elif mine is self._spans.name:
                theirs = _renumbered(theirs, names[1], self._span_names)
            mine.extend(theirs)
        self.kernels += kernels

    def __len__(self) -> int:
        return len(self._work.start)

    @property
    def launches(self) -> int:
        return len(self._launches.start)

    def build(
        self,
        file: str,
        source: Source,
        label: str | None,
        *,
        devices: dict[int, DeviceFacts],
        facts: dict[str, str],
        warnings: list[str],
        rank: int | None = None,
        world_size: int | None = None,
    ) -> KernelTrace:
        work, order = self._work, _order(self._work)
        grid, block = _ints(self._grid, order, 3), _ints(self._block, order, 3)
        registers = _ints(self._registers, order, 1)[:, 0]
        launches = self._built_launches()
        correlation = work.longs("correlation", order)
        kind = np.frombuffer(work.flag, np.uint8)[order] if len(order) else np.zeros(0, np.uint8)
        return KernelTrace(
            file=file,
            source=source,
            start_ns=work.longs("start", order),
            end_ns=work.longs("end", order),
            kind=kind,
            device=work.longs("pid", order).astype(np.int32),
            stream=work.longs("tid", order),
            pid=_launching_pid(correlation, launches),
            name=_indices(work.name, order),
            grid=grid,
            block=block,
            registers=registers,
            shared_bytes=_ints(self._shared, order, 1)[:, 0],
            graph_id=_longs_of(self._graph, order),
            graph_node_id=_longs_of(self._node, order),
            correlation=correlation,
            kernel_names=[spellings(name) for name in self._names],
            spans=self._built_spans(),
            launches=launches,
            graph_runs=_no_graph_runs(),
            devices=devices,
            label=label,
            rank=rank,
            world_size=world_size,
            facts=facts,
            missing=_missing(grid[kind == Kind.KERNEL], registers[kind == Kind.KERNEL], correlation, launches),
            warnings=warnings,
        )

    def _built_spans(self) -> Spans:
        spans, order = self._spans, _order(self._spans)
        return Spans(
            start_ns=spans.longs("start", order),
            end_ns=spans.longs("end", order),
            name=_indices(spans.name, order),
            pid=spans.longs("pid", order),
            tid=spans.longs("tid", order),
            on_device=_flags(spans, order),
            names=list(self._span_names),
        )

    def _built_launches(self) -> Launches:
        launches, order = self._launches, _order(self._launches)
        return Launches(
            start_ns=launches.longs("start", order),
            end_ns=launches.longs("end", order),
            pid=launches.longs("pid", order),
            tid=launches.longs("tid", order),
            correlation=launches.longs("correlation", order),
            is_graph=_flags(launches, order),
        )


def _renumbered(column: array[int], names: list[str], known: dict[str, int]) -> array[int]:
    """A column of indices into `names` as indices into `known`, which gets the names that it lacks."""
    table = np.array([known.setdefault(name, len(known)) for name in names], np.int32)
    found = table[np.frombuffer(column, np.int32)] if len(column) else np.zeros(0, np.int32)
    return array("i", found.tobytes())


def _order(columns: _Columns) -> npt.NDArray[np.intp]:
    starts = np.frombuffer(columns.start, np.int64) if columns.start else np.zeros(0, np.int64)
    return np.argsort(starts, kind="stable")


def _indices(column: array[int], order: npt.NDArray[np.intp]) -> Small:
    return np.frombuffer(column, np.int32)[order] if len(order) else np.zeros(0, np.int32)


def _flags(columns: _Columns, order: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    return np.frombuffer(columns.flag, np.uint8)[order].astype(np.bool_) if len(order) else np.zeros(0, np.bool_)


def _ints(values: array[int], order: npt.NDArray[np.intp], width: int) -> Small:
    return np.frombuffer(values, np.int32).reshape(-1, width)[order] if len(order) else np.zeros((0, width), np.int32)


def _longs_of(values: array[int], order: npt.NDArray[np.intp]) -> Ints:
    return np.frombuffer(values, np.int64)[order] if len(order) else np.zeros(0, np.int64)


def _launching_pid(correlation: Ints, launches: Launches) -> Ints:
    pids = np.unique(launches.pid)
    if len(pids) < 2:
        return np.full(len(correlation), pids[0] if len(pids) else 0, np.int64)
    by_correlation = np.argsort(launches.correlation, kind="stable")
    known = launches.correlation[by_correlation]
    at = np.searchsorted(known, correlation).clip(max=len(known) - 1)
    return np.where(known[at] == correlation, launches.pid[by_correlation][at], 0)


def _missing(grid: Small, registers: Small, correlation: Ints, launches: Launches) -> list[str]:
    absent = {
        "grid": len(grid) > 0 and not grid.any(),
        "registers": len(registers) > 0 and not registers.any(),
        "correlation": len(correlation) > 0 and not correlation.any(),
        "launches": len(launches.start_ns) == 0,
    }
    return [column for column, is_absent in absent.items() if is_absent]


def _no_graph_runs() -> GraphRuns:
    none = np.zeros(0, np.int64)
    return GraphRuns(start_ns=none, end_ns=none, device=np.zeros(0, np.int32), pid=none, graph_id=none)
