"""Kernels stream after stream, as the device ran them: what repair and neighbours are told from.

A stream is one of a device and a process. A trace is in order by start, so its streams are parted without a sort by
time; where it has one stream, nothing is sorted at all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import KernelTrace, Kind

Ints = npt.NDArray[np.int64]


def by_stream(trace: KernelTrace) -> tuple[Ints, Ints]:
    """The kernels' rows by device, process, stream and start, and for each a number of its stream."""
    rows = np.flatnonzero(trace.kind == Kind.KERNEL)
    if np.any(trace.start_ns[1:] < trace.start_ns[:-1]):
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    stream: Ints = np.broadcast_to(np.int64(0), rows.shape)
    count = 1
    for column in (trace.device, trace.pid, trace.stream):
        if len(column) == 0 or column.min() == column.max():
            continue
        values = column[rows]
        known = np.unique(values)
        stream = stream * len(known) + np.searchsorted(known, values)
        count *= len(known)
    if count == 1:
        return rows, stream
    order = np.argsort(
        stream.astype(np.int16) if count < 1 << 15 else stream, kind="stable"
    )  # 16 bits: no comparison
    return rows[order], stream[order]
