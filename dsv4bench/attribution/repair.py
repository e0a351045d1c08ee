"""Durations that cannot be, put right and said.

Kernels of one stream may overlap a little (programmatic dependent launch) or much (branches of one CUDA graph), so an
overlap alone proves nothing. A duration is impossible when it runs over the starts of SWALLOWED later kernels of its
own stream, by more than OVER, and is FAR times as long as the median launch of its name: profilers write such rows
(a handful made up most of a trace's kernel time). It is cut at the next start on its stream. An end before its start
becomes a duration of nothing.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.streams import by_stream
from dsv4bench.records.trace import KernelTrace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SWALLOWED = 8
OVER_NS = 1_000_000
FAR = 100
FEW = 3  # launches of a name from which its median says something; of fewer, the stream's median is taken


def repaired(trace: KernelTrace) -> tuple[KernelTrace, Bools]:
    """The trace with possible durations, and which rows were changed."""
    end = np.maximum(trace.end_ns, trace.start_ns)
    for row, cut in _impossible(trace, end):
        end[row] = cut
    changed: Bools = end != trace.end_ns
    return (dataclasses.replace(trace, end_ns=end) if changed.any() else trace), changed


def _impossible(trace: KernelTrace, end: Ints) -> list[tuple[int, int]]:
    """Rows with an impossible duration, each with the end to give it."""
    rows, stream = by_stream(trace)
    if len(rows) <= SWALLOWED:
        return []
    start, stop = trace.start_ns[rows], end[rows]
    swallows = (stream[SWALLOWED:] == stream[:-SWALLOWED]) & (start[SWALLOWED:] < stop[:-SWALLOWED])
    swallows &= stop[:-SWALLOWED] - start[1 : 1 - SWALLOWED] > OVER_NS
    suspects = np.flatnonzero(swallows)
    if len(suspects) == 0:
        return []
    length = stop - start
    usual = _median_by(trace.name[rows], length)
    usual_of_stream = _median_by(stream, length)
    found = []
    for i in suspects.tolist():
        median, launches = usual[int(trace.name[rows[i]])]
        if launches < FEW:
            median = usual_of_stream[int(stream[i])][0]
        if length[i] > FAR * max(median, 1.0):
            found.append((int(rows[i]), int(start[i + 1])))
    return found


def _median_by(key: npt.NDArray[np.integer], value: Ints) -> dict[int, tuple[float, int]]:
    """Median and number of the values of each key."""
    order = np.lexsort((value, key))
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    low, high = value[order][first + (count - 1) // 2], value[order][first + count // 2]
    middle = (low + high) / 2
    return {int(k): (float(m), int(n)) for k, m, n in zip(keys, middle, count, strict=True)}
