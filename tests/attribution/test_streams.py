"""Kernels parted by stream, against the plain sort."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from trace_maker import Maker

from dsv4bench.attribution.streams import by_stream
from dsv4bench.records.trace import Kind

row = st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 2), st.integers(-1, 1), st.sampled_from(Kind))


@given(st.lists(row, max_size=12), st.booleans())
def test_streams_come_one_after_another_in_order_of_start(
    rows: list[tuple[int, int, int, int, Kind]], in_order: bool
) -> None:
    rows = sorted(rows, key=lambda r: r[0]) if in_order else rows
    start, device, pid, stream, kind = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    small, code = device.astype(np.int32), kind.astype(np.uint8)
    trace = dataclasses.replace(
        Maker().trace(), start_ns=start, end_ns=start, device=small, pid=pid, stream=stream, kind=code
    )
    found, number = by_stream(trace)
    kernels = [i for i, r in enumerate(rows) if r[4] is Kind.KERNEL]
    assert found.tolist() == sorted(kernels, key=lambda i: (*rows[i][1:4], rows[i][0]))
    own = [rows[i][1:4] for i in found.tolist()]
    for a in range(len(own)):
        for b in range(len(own)):
            assert (number[a] == number[b]) == (own[a] == own[b])
