"""Perfetto protobuf (.pftrace) of recent PyTorch -> `KernelTrace`, with the categories and arguments of Kineto.

A slice is a begin and the next end on the same track; the profiler puts kernels that overlap on tracks of their own.
Timestamps are integer ns as written. Traces of other writers (rocprofv3, Android, browsers) are told by what they
lack and refused by name; a trace without kernels is refused with its cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dsv4bench.errors import Unanswerable
from dsv4bench.records.trace import KernelTrace, Source
from dsv4bench.trace.blocks import blocks
from dsv4bench.trace.kineto_absence import refuse_if_empty, warn_if_partial
from dsv4bench.trace.kineto_collect import Collector
from dsv4bench.trace.kineto_events import Event, event_of
from dsv4bench.trace.kineto_meta import rank_of
from dsv4bench.trace.perfetto_wire import BEGIN, END, Damaged, Slice, packets, texts, track_event

LARGEST_BYTES = 1 << 30
_ROCPROF = frozenset({"kernel_dispatch", "hip_api", "hsa_api", "memory_copy", "rocdecode_api", "marker_api"})


def read_perfetto(path: Path, label: str | None = None) -> KernelTrace:
    """The timeline of one file. Raises Unanswerable when it shows no work on a device, with the cause."""
    if path.stat().st_size > LARGEST_BYTES:
        raise Unanswerable(
            f"{path}: {path.stat().st_size >> 20} MiB of Perfetto protobuf is more than this reader takes",
            "profile fewer steps, or let torch.profiler write JSON",
        )
    warnings: list[str] = []
    data = b"".join(blocks(path, warnings))
    collector, pairs = Collector(), _Pairs()
    collector.take(list(_events(data, pairs, warnings)))
    if pairs.open:
        warnings.append(f"{pairs.open} slices never end and are left out")
    contents = collector.contents({}, 1, bool(warnings))
    warnings += collector.warnings()
    if not contents.work:
        _refuse_other_writers(str(path), data)
    refuse_if_empty(str(path), contents, warnings)
    warnings += warn_if_partial(contents)
    rank, _ = rank_of({}, path.name)
    build = collector.timeline.build
    return build(str(path), Source.PERFETTO, label, devices={}, facts={}, warnings=warnings, rank=rank)


def _events(data: bytes, pairs: _Pairs, warnings: list[str]) -> Iterator[Event]:
    try:
        for packet in packets(data):
            found = track_event(packet)
            event = pairs.event(found) if found is not None else None
            if event is not None:
                yield event
    except Damaged as why:
        warnings.append(f"the file is cut off or damaged ({why}); read as far as it goes")


class _Pairs:
    """Open slices by track."""

    def __init__(self) -> None:
        self._stacks: dict[int, list[Slice]] = {}

    def event(self, found: Slice) -> Event | None:
        """The finished slice as a Kineto event, in us as decimal text; None while it is open."""
        stack = self._stacks.setdefault(found.track, [])
        if found.type == BEGIN:
            stack.append(found)
        elif found.type == END and stack:
            begun = stack.pop()
            times = {"ts": _us(begun.time_ns), "dur": _us(found.time_ns - begun.time_ns)}
            return event_of({"ph": "X", "cat": begun.category, "name": begun.name, "args": begun.arguments, **times})
        return None

    @property
    def open(self) -> int:
        return sum(len(stack) for stack in self._stacks.values())


def _us(ns: int) -> str:
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _refuse_other_writers(file: str, data: bytes) -> None:
    """rocprofv3 interns its categories, PyTorch writes them out: their names tell the writer."""
    try:
        for packet in islice(packets(data), 2000):
            if _ROCPROF.intersection(texts(packet)):
                raise Unanswerable(
                    f"{file}: a rocprofv3 trace in Perfetto form, without PyTorch's kernel slices",
                    "give a torch-profiler trace (JSON or .pftrace) of an NVIDIA GPU",
                )
    except Damaged:
        return
