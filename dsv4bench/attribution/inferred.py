"""Where a decode step begins, when nobody wrote it down: graph launches, an anchor kernel, gaps.

    graph launch    one CUDA-graph launch, or k of them that come in turn, is a step
    anchor kernel   a kernel that comes once a step: of sampling if there is one, else the rarest that comes evenly,
                    with layers between its launches (or else a layer would pass for a step)
    gap             idle times that stand clear of all others

All of them take every step for a decode step; steps with another number of kernels than most are set apart later.
Each needs five beginnings and says nothing rather than something irregular.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.components import INDEX, Assignment
from dsv4bench.attribution.intervals import union
from dsv4bench.attribution.launches import from_graph, launch_of
from dsv4bench.attribution.layers import period
from dsv4bench.attribution.marks import Found, Marks
from dsv4bench.records.trace import KernelTrace, Kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST = 5  # beginnings of steps
REGULAR = 0.6  # share of the steps that must be like most
SAMPLED = 256  # pairs of neighbouring steps that are compared
ALIKE = 0.1  # numbers of kernels this close are alike
TRIED = 200  # kernel names tried as an anchor
CLEAR = 3.0  # a gap between steps is so many times the longest gap within one


def _unmarked(start: Ints, opaque: bool = False) -> Marks:
    start = np.unique(start)
    return Marks(start, ["decode"] * len(start), np.zeros(len(start), dtype=np.int64), told=False, opaque=opaque)


def graph_launches(trace: KernelTrace, assignment: Assignment) -> Found:
    """Steps from CUDA-graph launches, whether the file shows their kernels or only the launch."""
    in_graph = from_graph(trace)
    launch = launch_of(trace) if in_graph.any() else np.zeros(0, dtype=np.int64)
    found: dict[int, Marks] = {}
    for device in np.unique(trace.device[in_graph]).tolist():
        rows = np.flatnonzero(in_graph & (trace.device == device))
        start, signature = _runs(trace, launch, rows)
        if (first := _turn(start, signature)) is None:
            continue
        if first[1] == 1 and _attention_between(trace, assignment, ~in_graph & (trace.device == device), start):
            continue  # one graph a layer, attention outside: a launch is a piece of a step, and which is unknown
        found[device] = _unmarked(first[0])
    if found:
        return Found(found)
    runs = trace.graph_runs
    for device in np.unique(runs.device).tolist():
        rows = np.flatnonzero((runs.device == device) & (runs.end_ns > runs.start_ns))
        rows = rows[np.argsort(runs.start_ns[rows], kind="stable")]
        if (first := _turn(runs.start_ns[rows], runs.graph_id[rows])) is not None:
            found[device] = _unmarked(first[0], opaque=True)
    return Found(found)


def _runs(trace: KernelTrace, launch: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Start and signature of each graph launch: its graph where told, else its first kernel and their number."""
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    key = np.where(launch[rows] >= 0, launch[rows], -1 - trace.correlation[rows])
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    order = np.argsort(first)
    at, count = rows[first[order]], count[order]
    told = trace.graph_id[at]
    guess = -1 - (trace.name[at].astype(np.int64) * (int(count.max()) + 1) + count)
    return trace.start_ns[at], np.where(told != 0, told, guess)


def _turn(start: Ints, signature: Ints) -> tuple[Ints, int] | None:
    """Beginnings of the steps, and launches a step; None when the launches come in no turn."""
    n = len(start)
    for lag in range(1, n // LEAST + 1):
        if np.count_nonzero(signature[lag:] == signature[:-lag]) >= 0.9 * (n - lag):
            wait = np.diff(start, prepend=start[0])
            phase = max(range(lag), key=lambda i: float(np.median(wait[i::lag][1:])))
            return start[phase::lag], lag
    return None


def _attention_between(trace: KernelTrace, assignment: Assignment, eager: Bools, start: Ints) -> bool:
    rows = eager & (trace.kind == Kind.KERNEL) & (assignment.component == INDEX["attention"])
    between = np.searchsorted(start, trace.start_ns[rows], side="right")
    return len(np.unique(between)) >= len(start) / 2


def anchor_kernel(trace: KernelTrace, assignment: Assignment) -> Found:
    """Steps from a kernel that comes once a step."""
    found: dict[int, Marks] = {}
    for device in np.unique(trace.device).tolist():
        rows = np.flatnonzero((trace.device == device) & (trace.kind == Kind.KERNEL))
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
        sampling = (assignment.component[rows] == INDEX["sampling"]) & ~assignment.tail[rows]
        at = _anchor(trace.name[rows], sampling)
        if at is not None:
            found[device] = _unmarked(trace.start_ns[rows[at]])
    return Found(found)


def _anchor(names: npt.NDArray[np.int32], sampling: Bools) -> Ints | None:
    """Positions of the anchor in the sequence of kernels."""
    every, count = np.unique(names, return_counts=True)
    candidates = [(n, int(k)) for n, k in zip(every.tolist(), count.tolist(), strict=True) if k >= LEAST]
    of_sampling = set(np.unique(names[sampling]).tolist())
    first = sorted((c for c in candidates if c[0] in of_sampling), key=lambda c: -c[1])
    rest = sorted((c for c in candidates if c[0] not in of_sampling), key=lambda c: c[1])
    for name, _ in (first + rest)[:TRIED]:
        at = np.flatnonzero(names == name)
        if at[-1] - at[0] < len(names) / 2 or not _regular(np.diff(at)) or not _same(names, at):
            continue
        if name in of_sampling or _holds_layers(names, at):
            return at
    return None


def _regular(sizes: Ints) -> bool:
    middle = float(np.median(sizes))
    return bool(np.count_nonzero(np.abs(sizes - middle) <= ALIKE * middle) >= REGULAR * len(sizes))


def _same(names: npt.NDArray[np.int32], at: Ints) -> bool:
    """Do most steps run the kernels of the step before, in the same order?"""
    size = int(np.median(np.diff(at)))
    pairs = [(a, b) for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True) if b + size <= len(names)]
    pairs = pairs[:: -(-len(pairs) // SAMPLED) or 1]  # evenly over the file: a name may recur a million times
    alike = [float(np.mean(names[a : a + size] == names[b : b + size])) for a, b in pairs]
    return bool(alike) and float(np.median(alike)) >= REGULAR


def _holds_layers(names: npt.NDArray[np.int32], at: Ints) -> bool:
    middle = len(at) // 2
    return period(names[at[middle - 1] : at[middle]].astype(np.int64)) is not None


def gaps(trace: KernelTrace, assignment: Assignment) -> Found:
    """Steps from idle times that stand clear of all shorter ones."""
    found: dict[int, Marks] = {}
    for device in np.unique(trace.device).tolist():
        rows = np.flatnonzero((trace.device == device) & (trace.kind == Kind.KERNEL))
        start, end = union(trace.start_ns[rows], trace.end_ns[rows])
        wait = start[1:] - end[:-1]
        if len(wait) < 2 * LEAST:
            continue
        falling = np.sort(wait)[::-1]
        ratio = falling[LEAST - 1 : -1] / np.maximum(falling[LEAST:], 1)
        cut = int(np.argmax(ratio))
        if ratio[cut] < CLEAR:
            continue
        at = np.flatnonzero(wait >= falling[LEAST - 1 + cut]) + 1
        kernels = np.diff(np.searchsorted(np.sort(trace.start_ns[rows]), start[at]))
        if _regular(kernels) and float(np.median(kernels)) >= 2:
            found[device] = _unmarked(start[at])
    return Found(found)
