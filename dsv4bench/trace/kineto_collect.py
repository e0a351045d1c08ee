"""Events of Kineto (or of anything in its terms) -> columns: work, launches and spans told apart by category.

Kernels, copies and memsets are the `X` events of those categories, with device = args.device, else pid. `cuda_sync`
rows lie on GPU streams with times of the host and are no work; annotations are spans, never kernels; launches are
the runtime and driver calls that put work on a device. What has no usable time or device is counted, and said.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from msgspec.structs import replace

from dsv4bench.records.trace import Ints, Kind
from dsv4bench.trace.kineto_absence import Contents
from dsv4bench.trace.kineto_events import (
    INT32_MAX,
    INT64_MAX,
    NO_ARGS,
    NO_STREAM,
    UNKNOWN,
    Args,
    Event,
    all_nanoseconds,
    row_number,
)
from dsv4bench.trace.timeline import Timeline


class Role(IntEnum):
    """What an event is to us; the first three are the values of `Kind`."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    HOST_SPAN = 3
    DEVICE_SPAN = 4
    CALL = 5
    OPERATOR = 6


ROLES = {
    "kernel": Role.KERNEL,
    "gpu_memcpy": Role.COPY,
    "memcpy": Role.COPY,  # until 2021
    "gpu_memset": Role.MEMSET,
    "memset": Role.MEMSET,
    "user_annotation": Role.HOST_SPAN,
    "gpu_user_annotation": Role.DEVICE_SPAN,
    "cuda_runtime": Role.CALL,
    "cuda_driver": Role.CALL,
    "runtime": Role.CALL,
    "hip_runtime": Role.CALL,
    "hip_driver": Role.CALL,
    "xpu_runtime": Role.CALL,
    "xpu_driver": Role.CALL,
    "operator": Role.OPERATOR,  # 2021: annotations are operators
}
_WORK = (Role.KERNEL, Role.COPY, Role.MEMSET)
_SPANS = (Role.HOST_SPAN, Role.DEVICE_SPAN, Role.OPERATOR)
_NONE = 255  # the role of what is not used
_UNTIMED, _UNPLACED = "without a usable ts or dur", "on a device without a number"
_LAUNCH = re.compile(
    r"(cuda|cu|hip)(Ext)?(Module)?(Launch(?!Host)|GraphLaunch|Memcpy|Memset)|(ur|ze)\w*(Enqueue|Append)"
)
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_STEP_OF_2021 = "ProfilerStep#"


@dataclass(slots=True)
class Counts:
    """What was met, beside the timeline."""

    categories: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)  # left out, by the reason
    kernels: int = 0
    zero: int = 0  # kernels of no length
    coarse: int = 0  # batches whose first kernel has a time of few digits

    def add(self, other: Counts) -> None:
        self.categories.update(other.categories)
        self.calls.update(other.calls)
        self.odd.update(other.odd)
        self.kernels += other.kernels
        self.zero += other.zero
        self.coarse += other.coarse


class Collector:
    """Sorts events by their category into a `Timeline`, and counts what it could not use."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.counts = Counts()
        self._launch_names: dict[str, tuple[bool, bool]] = {}
        self._roles: dict[str | None, int] = {}

    def take(self, events: list[Event]) -> None:
        """A batch in the order of the file."""
        categories = [event.cat for event in events]
        here = Counter(categories)
        work: list[Event] = []
        calls: list[Event] = []
        spans: list[Event] = []
        others: list[Event] = []
        put = {}
        for category, count in here.items():
            self.counts.categories[category or ""] += count
            if category not in self._roles:
                self._roles[category] = ROLES.get((category or "").lower(), _NONE)
            role = self._roles[category]
            of_role = work if role in _WORK else calls if role == Role.CALL else spans if role in _SPANS else others
            put[category] = of_role.append
        for category, event in zip(categories, events, strict=True):
            put[category](event)
        if work:
            self._work(work)
        if calls:
            self._call(calls)
        if spans:
            self._span(spans)

    def append(self, counts: Counts, names: tuple[list[str], list[str]], columns: Iterable[array[int]]) -> None:
        """Adds what another collector took from the rest of the file."""
        self.timeline.append(names, counts.kernels, columns)
        self.counts.add(counts)

    def contents(self, meta: dict[str, object], lists: int, damaged: bool) -> Contents:
        """What the file held, for the diagnosis."""
        return Contents(
            kernels=self.timeline.kernels,
            work=len(self.timeline),
            launches=self.timeline.launches,
            categories=dict(self.counts.categories),
            calls=dict(self.counts.calls),
            meta=meta,
            lists=lists,
            damaged=damaged,
        )

    def warnings(self) -> list[str]:
        counts = self.counts
        lines = [
            f"{counts.odd[what]} events {what} are left out" for what in (_UNTIMED, _UNPLACED) if counts.odd[what]
        ]
        if counts.zero > self.timeline.kernels / 100:
            lines.append(
                f"{counts.zero} of {self.timeline.kernels} kernels last 0 ns: "
                "the file is in whole microseconds, and short kernels count nothing"
            )
        if counts.coarse:
            lines.append("times are floats since 1970, in steps of 250 ns: sums of short kernels are rough")
        return lines

    def _work(self, events: list[Event]) -> None:
        events, start, end = self._timed(events)
        args = [e.args or NO_ARGS for e in events]
        device = [a.device for a in args]
        if UNKNOWN in device:
            events, args, start, end = self._placed(events, args, start, end)
            device = [a.device for a in args]
        if not events:
            return
        stream = [a.stream for a in args]
        if NO_STREAM in stream:
            rows = _rows([e.tid for e in events])
            stream = [row if told == NO_STREAM else told for told, row in zip(stream, rows, strict=True)]
        kinds = bytes([self._roles[e.cat] for e in events])
        first = kinds.find(Kind.KERNEL)
        if first >= 0:
            self.counts.kernels += kinds.count(Kind.KERNEL)
            self.counts.zero += int(((start == end) & (np.frombuffer(kinds, np.uint8) == Kind.KERNEL)).sum())
            self.counts.coarse += int(start[first] > 10**18 and bytes(events[first].ts)[-2:-1] == b".")
        self.timeline.add_work(
            kinds,
            [e.name or "(no name)" for e in events],
            start,
            end,
            device=device,
            stream=stream,
            correlation=[a.correlation for a in args],
            grid=[a.grid for a in args],
            block=[a.block for a in args],
            registers=[a.registers for a in args],
            shared=[a.shared for a in args],
            graph=[a.graph_id or a.graph_node_id >> 32 for a in args],
            node=[a.graph_node_id for a in args],
        )

    def _placed(
        self, events: list[Event], args: list[Args], start: Ints, end: Ints
    ) -> tuple[list[Event], list[Args], Ints, Ints]:
        """Those on a device: of the arguments, else the row's pid."""
        args = [
            replace(a, device=_device(e.pid)) if a.device == UNKNOWN else a for a, e in zip(args, events, strict=True)
        ]
        kept = [i for i, arg in enumerate(args) if arg.device != UNKNOWN]
        if len(kept) < len(args):
            self.counts.odd[_UNPLACED] += len(args) - len(kept)
        return [events[i] for i in kept], [args[i] for i in kept], start[kept], end[kept]

    def _call(self, events: list[Event]) -> None:
        self.counts.calls.update([e.name or "" for e in events])
        known = self._launch_names
        for name in {e.name or "" for e in events}.difference(known):
            known[name] = bool(_LAUNCH.match(name)), bool(_GRAPH_LAUNCH.match(name))
        events, start, end = self._timed([e for e in events if known[e.name or ""][0]])
        self.timeline.add_launches(
            start,
            end,
            pid=_rows([e.pid for e in events]),
            tid=_rows([e.tid for e in events]),
            correlation=[(e.args or NO_ARGS).correlation for e in events],
            is_graph=[known[e.name or ""][1] for e in events],
        )

    def _span(self, events: list[Event]) -> None:
        roles = self._roles
        events = [e for e in events if roles[e.cat] != Role.OPERATOR or (e.name and e.name.startswith(_STEP_OF_2021))]
        events, start, end = self._timed(events)
        self.timeline.add_spans(
            [e.name or "" for e in events],
            start,
            end,
            pid=_rows([e.pid for e in events]),
            tid=_rows([e.tid for e in events]),
            on_device=bytes([roles[e.cat] == Role.DEVICE_SPAN for e in events]),
        )

    def _timed(self, events: list[Event]) -> tuple[list[Event], Ints, Ints]:
        """Events with their start and end; those without a time are counted and left out."""
        start, known = all_nanoseconds([e.ts for e in events])
        last, also_known = all_nanoseconds([e.dur for e in events])
        usable = known & also_known & (last >= 0) & (start <= INT64_MAX - last.clip(0))
        if usable.all():
            return events, start, start + last
        self.counts.odd[_UNTIMED] += len(events) - int(usable.sum())
        return [e for e, good in zip(events, usable, strict=True) if good], start[usable], (start + last)[usable]


def _device(pid: object) -> int:
    """A row's pid as a device: its number, also in a text."""
    found = row_number(pid)
    return found if found is not None and 0 <= found <= INT32_MAX else UNKNOWN


def _rows(values: list[Any]) -> list[int]:
    """pids or tids as numbers; few are distinct."""
    try:
        known = {value: row_number(value) or 0 for value in set(values)}
        return [known[value] for value in values]
    except TypeError:  # a list or an object in the place of a number
        return [row_number(value) or 0 for value in values]
