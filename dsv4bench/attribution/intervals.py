"""Interval arithmetic on integer nanoseconds: clip, union, and the exclusive sweep.

The sweep cuts a window at every start and end, and charges each slice once:

    kernels of one label alone            -> that label (two kernels of one label together are that label too)
    one label beside `yields` (comm)      -> that label: communication hidden behind work costs nothing
    anything else with two labels or more -> overlap, and the set of labels is kept
    copies and no kernel                  -> copy-only
    nothing                               -> idle

so that Σ exclusive + overlap + copy-only + idle = window, to the nanosecond. Half-open intervals; an end before its
start counts as empty. Nothing here knows what a label means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer]

MAX_LABELS = 60  # a slice's labels are bits of one int64


@dataclass(frozen=True, slots=True)
class Sweep:
    """Per bin (between two edges): exclusive time of each label (bins x labels), and the rest of the window."""

    exclusive_ns: Ints
    overlap_ns: Ints
    copy_only_ns: Ints
    idle_ns: Ints
    overlaps_ns: dict[tuple[int, ...], int]  # over all bins: the labels that ran together, and for how long

    def kernel_busy_ns(self) -> Ints:
        """Per bin: the union of all kernel intervals."""
        busy: Ints = self.exclusive_ns.sum(axis=1) + self.overlap_ns
        return busy


def clip(start: Ints, end: Ints, window: tuple[int, int]) -> tuple[Ints, Ints, Bools, int]:
    """Intervals cut to the window; which of them lie in it; how many were cut or dropped.

    An empty interval inside the window stays (it is an event of no duration).
    """
    low, high = window
    inside = ((start < high) & (end > low)) | ((start == end) & (start >= low) & (start <= high))
    cut = int(np.count_nonzero(~inside | (start < low) | (end > high)))
    return np.maximum(start, low)[inside], np.minimum(end, high)[inside], inside, cut


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The same set as disjoint intervals in order; touching ones are joined, empty ones dropped."""
    full = end > start
    if not full.all():
        start, end = start[full], end[full]
    if len(start) == 0:
        return start, end
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), dtype=np.bool_)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    at = np.flatnonzero(first)
    return start[at], reach[np.append(at[1:] - 1, len(reach) - 1)]


def covered(start: Ints, end: Ints) -> int:
    """Length of the union."""
    starts, ends = union(start, end)
    return int((ends - starts).sum())


def total(start: Ints, end: Ints) -> int:
    """Sum of the durations: larger than the union where intervals overlap."""
    return int(np.maximum(end - start, 0).sum())


def sweep(
    start: Ints, end: Ints, label: Codes, is_copy: Bools, edges: Ints, labels: int, yields: int | None = None
) -> Sweep:
    """The exclusive sweep of intervals with a label (copies need none) over the bins between `edges`.

    `edges` rise strictly, bins + 1 of them; what lies outside is left out. `yields` is the label that gives its time
    to another one running beside it.
    """
    assert 0 < labels <= MAX_LABELS and len(edges) > 1
    bins = len(edges) - 1
    times, delta = _events(start, end, label, is_copy, edges, labels)
    order = np.argsort(times, kind="stable")
    times, mask = times[order], np.cumsum(delta[order])
    length = np.diff(times)
    bin_of = np.searchsorted(edges, times[:-1], side="right") - 1
    keep = (length > 0) & (bin_of >= 0) & (bin_of < bins)
    length, mask, bin_of = length[keep], mask[:-1][keep], bin_of[keep]

    masks, which = np.unique(mask, return_inverse=True)
    category = np.array([_category(int(m), labels, yields) for m in masks], dtype=np.int64)
    table = np.zeros((bins, labels + 3), dtype=np.int64)
    np.add.at(table, (bin_of, category[which]), length)
    by_mask = np.zeros(len(masks), dtype=np.int64)
    np.add.at(by_mask, which, length)
    overlaps: dict[tuple[int, ...], int] = {}
    for m, c, ns in zip(masks.tolist(), category.tolist(), by_mask.tolist(), strict=True):
        if c == labels:
            together = _labels_of(m, labels)
            overlaps[together] = overlaps.get(together, 0) + ns
    return Sweep(
        exclusive_ns=table[:, :labels],
        overlap_ns=table[:, labels],
        copy_only_ns=table[:, labels + 1],
        idle_ns=table[:, labels + 2],
        overlaps_ns=overlaps,
    )


def _events(start: Ints, end: Ints, label: Codes, is_copy: Bools, edges: Ints, labels: int) -> tuple[Ints, Ints]:
    """Every boundary with the bit that it raises or lowers; the edges, which change nothing, among them."""
    times: list[Ints] = [edges]
    deltas: list[Ints] = [np.zeros(len(edges), dtype=np.int64)]
    low, high = int(edges[0]), int(edges[-1])
    code = np.where(is_copy, labels, label)
    for bit in np.unique(code).tolist():
        mine = code == bit
        starts, ends = union(np.clip(start[mine], low, high), np.clip(end[mine], low, high))
        times += [starts, ends]
        deltas += [np.full(len(starts), 1 << bit, dtype=np.int64), np.full(len(ends), -(1 << bit), dtype=np.int64)]
    return np.concatenate(times), np.concatenate(deltas)


def _labels_of(mask: int, labels: int) -> tuple[int, ...]:
    return tuple(i for i in range(labels) if mask >> i & 1)


def _category(mask: int, labels: int, yields: int | None) -> int:
    """A label's own column, else overlap (`labels`), copy-only (`labels` + 1) or idle (`labels` + 2)."""
    active = _labels_of(mask, labels)
    if not active:
        return labels + 1 if mask else labels + 2
    if len(active) == 2 and yields in active:
        active = tuple(i for i in active if i != yields)
    return active[0] if len(active) == 1 else labels
