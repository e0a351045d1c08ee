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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer]
Number = TypeVar("Number", bound=np.generic)

PIECE = 1 << 17  # intervals that are swept at once
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
    if cut == 0:
        return start, end, inside, 0
    return np.maximum(start, low)[inside], np.minimum(end, high)[inside], inside, cut


def kept(values: npt.NDArray[Number], where: Bools) -> npt.NDArray[Number]:
    """The values where it is true; the array itself, not a copy, where that is everywhere."""
    return values if where.all() else values[where]


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
    flat = np.zeros((len(edges) - 1) * (labels + 3), dtype=np.int64)
    by_mask: dict[int, int] = {}
    for first, inner, starts, ends, code, copies in _pieces(start, end, label, is_copy, edges):
        mask, length, bin_of = _slices(*_events(starts, ends, code, copies, inner, labels), inner)
        masks = np.unique(mask)
        which = np.searchsorted(masks, mask)
        category = np.array([_category(m, labels, yields) for m in masks.tolist()], dtype=np.int64)
        np.add.at(flat, (first + bin_of) * (labels + 3) + category[which], length)
        times = np.zeros(len(masks), dtype=np.int64)
        np.add.at(times, which, length)
        for m, ns in zip(masks.tolist(), times.tolist(), strict=True):
            by_mask[m] = by_mask.get(m, 0) + ns
    overlaps: dict[tuple[int, ...], int] = {}
    for m, ns in sorted(by_mask.items()):
        if _category(m, labels, yields) == labels:
            together = _labels_of(m, labels)
            overlaps[together] = overlaps.get(together, 0) + ns
    table = flat.reshape(-1, labels + 3)
    return Sweep(
        exclusive_ns=table[:, :labels],
        overlap_ns=table[:, labels],
        copy_only_ns=table[:, labels + 1],
        idle_ns=table[:, labels + 2],
        overlaps_ns=overlaps,
    )


def _pieces(
    start: Ints, end: Ints, label: Codes, is_copy: Bools, edges: Ints
) -> Iterator[tuple[int, Ints, Ints, Ints, Codes, Bools]]:
    """The window piece by piece, so that a sweep needs the memory of PIECE intervals and not of all of them.

    Each piece is its first bin, its edges, and the intervals that lie in it, by their start and cut to the piece.
    """
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end, label, is_copy = start[order], end[order], label[order], is_copy[order]
    low, high = int(edges[0]), int(edges[-1])
    cuts = sorted({low, *start[PIECE::PIECE].clip(low, high).tolist(), high})
    begun = 0
    going_on = np.zeros(0, dtype=np.int64)
    for this, following in pairwise(cuts):
        until = int(np.searchsorted(start, following))
        rows = np.concatenate([going_on, np.arange(begun, until)])
        begun = until
        rows = rows[end[rows] > np.maximum(start[rows], this)]
        going_on = rows[end[rows] > following]
        a, b = np.searchsorted(edges, this, side="right"), np.searchsorted(edges, following)
        inner = np.concatenate([[this], edges[a:b], [following]])
        starts, ends = np.maximum(start[rows], this), np.minimum(end[rows], following)
        yield int(a) - 1, inner, starts, ends, label[rows], is_copy[rows]


def _slices(times: Ints, mask: Ints, edges: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each slice between two boundaries: what runs in it, its length and its bin."""
    at = np.searchsorted(times, edges)
    inside = slice(at[0], at[-1])
    length = np.diff(times)[inside]
    bin_of = np.repeat(np.arange(len(edges) - 1), np.diff(at))
    lasting = length > 0
    return mask[inside][lasting], length[lasting], bin_of[lasting]


def _events(start: Ints, end: Ints, label: Codes, is_copy: Bools, edges: Ints, labels: int) -> tuple[Ints, Ints]:
    """Every boundary in order, and the labels that run from it on as bits; the edges, which change nothing, too."""
    code = np.where(is_copy, labels, label)
    if np.all(end > start) and np.all(start[1:] >= end[:-1]):  # one after another, as on one stream: in order as is
        bits = np.left_shift(np.int64(1), code.astype(np.int64))
        times, mask = np.stack([start, end], axis=1).ravel(), np.stack([bits, np.zeros_like(bits)], axis=1).ravel()
        at = np.searchsorted(times, edges)
        before = np.concatenate([np.zeros(1, dtype=np.int64), mask])[at]
        return np.insert(times, at, edges), np.insert(mask, at, before)
    all_times: list[Ints] = [edges]
    deltas: list[Ints] = [np.zeros(len(edges), dtype=np.int64)]
    for bit in np.unique(code).tolist():
        mine = code == bit
        starts, ends = union(start[mine], end[mine])
        all_times += [starts, ends]
        deltas += [np.full(len(starts), 1 << bit, dtype=np.int64), np.full(len(ends), -(1 << bit), dtype=np.int64)]
    times = np.concatenate(all_times)
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(np.concatenate(deltas)[order])


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
