"""Where a decode step begins on the device, from what the host wrote: annotations of the server, or NVTX ranges.

Kernels run long after the range that launched them has closed, so a range is followed through its launches (same
process and thread, correlation id) to its kernels, and a step begins with the first of these on each device. Steps
tile the timeline: one ends where the next begins, so that sampling kernels after the range and the idle time before
the next step belong to it. Only where the file has no launches does containment in time stand in, with a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.launches import launch_of
from dsv4bench.records.trace import KernelTrace, Kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Phase = Literal["decode", "prefill", "mixed", "other"]

INSIDE = 0.5  # a method whose ranges launched less of the kernel time than this does not bracket the steps
MOST_GROUPS = 50  # names of ranges that are tried as steps

_SGLANG = re.compile(r"\bstep\[(\w+)(?: bs=(\d+))?")
_VLLM = re.compile(r"\bexecute_(?:\w+_)?context_(\d+)\(.*?\)_generation_(\d+)\(")
_SGLANG_PHASES: dict[str, Phase] = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "EXTEND": "prefill",
    "PREFILL": "prefill",
    "SPLIT_PREFILL": "prefill",
    "MIXED": "mixed",
}


@dataclass(frozen=True, slots=True)
class Marks:
    """Beginnings of steps on one device, in order, each with its phase and batch (0: not told)."""

    start_ns: Ints
    phase: list[Phase]
    batch: Ints
    told: bool = True  # the phases come from the file; False: every step is taken for decode
    opaque: bool = False  # the kernels of these steps are not in the file


@dataclass(frozen=True, slots=True)
class Found:
    """What a method found: marks of each device that it covers, or none and why."""

    marks: dict[int, Marks] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_annotation(name: str) -> tuple[str, Phase, int] | None:
    """(server, phase, batch) of a step's annotation; None for any other range, and for a draft within a step."""
    if (found := _SGLANG.search(name)) is not None:
        kind, batch = found.group(1), int(found.group(2) or 0)
        return None if kind.startswith("DRAFT") else ("sglang", _SGLANG_PHASES.get(kind, "other"), batch)
    if (found := _VLLM.search(name)) is not None:
        context, generation = int(found.group(1)), int(found.group(2))
        phase: Phase = "mixed" if context and generation else "prefill" if context else "decode"
        return "vllm", phase if context or generation else "other", context + generation
    return None


def annotated(trace: KernelTrace) -> Found:
    """Steps from the annotations of SGLang, of vLLM, or of our own server, which writes as SGLang does."""
    read = [read_annotation(name) for name in trace.spans.names]
    servers = [r[0] if r else "" for r in read]
    best: Ints = np.empty(0, dtype=np.int64)
    for server in ("sglang", "vllm"):
        is_ours = np.array([s == server for s in servers], dtype=np.bool_)
        rows = _rows(trace, is_ours[trace.spans.name]) if len(servers) else best
        if len(rows) > len(best):
            best = rows
    if len(best) == 0:
        return Found()
    phases: list[Phase] = []
    batches: list[int] = []
    for code in trace.spans.name[best].tolist():
        annotation = read[code]
        assert annotation is not None
        phases.append(annotation[1])
        batches.append(annotation[2])
    owner, warnings = _owners(trace, best)
    inside = _inside(trace, owner, best)
    if inside < INSIDE:
        said = (
            f"the step annotations launched only {100 * inside:.0f} % of the kernel time that follows them: they do "
            "not bracket the steps, and another method was tried"
        )
        return Found({}, [*warnings, said])
    return Found(_marks(trace, owner, phases, np.array(batches, dtype=np.int64)), warnings)


def nvtx(trace: KernelTrace) -> Found:
    """Steps from the repeated range whose launches cover most of the kernel time; the rarest of equals."""
    spans = trace.spans
    if len(spans.start_ns) == 0 or len(trace.launches.start_ns) == 0:
        return Found()
    plain = [re.sub(r"\d+", "#", name) for name in spans.names]
    groups = {name: i for i, name in enumerate(dict.fromkeys(plain))}
    code = np.array([groups[name] for name in plain], dtype=np.int64)[spans.name]
    code = np.where(spans.on_device, -1, code)
    lasting = np.zeros(len(groups), dtype=np.int64)
    np.add.at(lasting, code[code >= 0], (spans.end_ns - spans.start_ns)[code >= 0])
    launch = launch_of(trace)
    best: tuple[float, int] = (0.0, 0)
    chosen: Ints | None = None
    for group in np.argsort(-lasting)[:MOST_GROUPS].tolist():
        every = np.flatnonzero(code == group)
        rows = _rows(trace, code == group)
        if len(rows) < 5 or len(rows) < len(every):  # nested in themselves: no steps
            continue
        owner = _by_launch(trace, rows, launch)
        score = (round(_inside(trace, owner, rows), 2), -len(rows))
        if score > best:
            best, chosen = score, owner
    if chosen is None or best[0] < INSIDE:
        return Found()
    return Found(_marks(trace, chosen, ["decode"] * -best[1], np.zeros(-best[1], dtype=np.int64), told=False))


def _rows(trace: KernelTrace, wanted: Bools) -> Ints:
    """The wanted host ranges (device ranges where there are no others) in order, without those nested in another."""
    spans = trace.spans
    host = wanted & ~spans.on_device
    rows = np.flatnonzero(host if host.any() else wanted)
    rows = rows[np.lexsort((-spans.end_ns[rows], spans.start_ns[rows], spans.tid[rows], spans.pid[rows]))]
    kept: list[int] = []
    reach: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        thread = (int(spans.pid[row]), int(spans.tid[row]))
        if spans.start_ns[row] >= reach.get(thread, -(2**63)):
            kept.append(row)
            reach[thread] = int(spans.end_ns[row])
    found = np.array(kept, dtype=np.int64)
    return found[np.argsort(spans.start_ns[found], kind="stable")]


def _owners(trace: KernelTrace, rows: Ints) -> tuple[Ints, list[str]]:
    """For each row of the trace which of the ranges it belongs to (-1: none), and what had to be assumed."""
    if not trace.spans.on_device[rows].any():
        owner = _by_launch(trace, rows, launch_of(trace))
        if (owner >= 0).any():
            return owner, []
    assumed = (
        "no launch of an annotation leads to a kernel: steps follow containment in time, which runs late work up"
    )
    return _by_time(trace.spans.start_ns[rows], trace.spans.end_ns[rows], trace.start_ns), [assumed]


def _by_launch(trace: KernelTrace, rows: Ints, launch: Ints) -> Ints:
    if len(trace.launches.start_ns) == 0:
        return np.full(len(trace), -1, dtype=np.int64)
    of_call = _ranges_of_calls(trace, rows, trace.spans.tid, trace.launches.tid)
    if not (of_call >= 0).any():  # written by one thread, launched by another
        nobody = np.zeros(1, dtype=np.int64)
        of_call = _ranges_of_calls(trace, rows, np.broadcast_to(nobody, trace.spans.tid.shape), nobody)
    owner: Ints = np.where(launch >= 0, of_call[np.maximum(launch, 0)], -1)
    return owner


def _ranges_of_calls(trace: KernelTrace, rows: Ints, span_tid: Ints, call_tid: Ints) -> Ints:
    """For each launch the range, of its process and thread, that it was made in; -1 for none."""
    spans, calls = trace.spans, trace.launches
    of_call = np.full(len(calls.start_ns), -1, dtype=np.int64)
    for pid, tid in {(int(p), int(t)) for p, t in zip(spans.pid[rows], span_tid[rows], strict=True)}:
        mine = np.flatnonzero((spans.pid[rows] == pid) & (span_tid[rows] == tid))
        its = np.flatnonzero((calls.pid == pid) & (call_tid == tid))
        within = _by_time(spans.start_ns[rows[mine]], spans.end_ns[rows[mine]], calls.start_ns[its])
        of_call[its] = np.where(within >= 0, mine[np.maximum(within, 0)], -1)
    return of_call


def _by_time(start: Ints, end: Ints, at: Ints) -> Ints:
    """Which of the ordered, disjoint ranges each moment lies in; -1 for none."""
    index = np.searchsorted(start, at, side="right") - 1
    found: Ints = np.where((index >= 0) & (at < end[np.maximum(index, 0)]), index, -1)
    return found


def _inside(trace: KernelTrace, owner: Ints, rows: Ints) -> float:
    """Share of the kernel time since the first range that the ranges launched."""
    kernel = (trace.kind == Kind.KERNEL) & (trace.start_ns >= trace.spans.start_ns[rows].min())
    length = np.maximum(trace.end_ns - trace.start_ns, 0)
    whole = int(length[kernel].sum())
    return int(length[kernel & (owner >= 0)].sum()) / whole if whole else 0.0


def _marks(
    trace: KernelTrace, owner: Ints, phases: list[Phase], batches: Ints, told: bool = True
) -> dict[int, Marks]:
    """On each device the first kernel of each range."""
    found: dict[int, Marks] = {}
    mine = (owner >= 0) & (trace.kind == Kind.KERNEL)
    for device in np.unique(trace.device[mine]).tolist():
        rows = np.flatnonzero(mine & (trace.device == device))
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
        which, first = np.unique(owner[rows], return_index=True)
        start, order = np.unique(trace.start_ns[rows[first]], return_index=True)
        ranges = which[order]
        found[device] = Marks(start, [phases[i] for i in ranges.tolist()], batches[ranges], told)
    return found
