"""Impossible durations are cut, possible overlaps are left alone."""

from __future__ import annotations

import numpy as np
from trace_maker import Maker

from dsv4bench.attribution.repair import repaired

MS = 1_000_000


def busy_stream(maker: Maker, kernels: int = 200, tick: int = 10_000) -> None:
    for i in range(kernels):
        maker.kernel("gemm", i * tick, i * tick + 5_000)


def test_a_duration_over_the_whole_stream_is_cut_at_the_next_start() -> None:
    maker = Maker()
    busy_stream(maker, 1000)
    maker.kernel("gemm", 10_000 * 5 + 7_000, 10_000 * 5 + 7_000 + 9 * MS)
    trace, changed = repaired(maker.trace())
    assert np.count_nonzero(changed) == 1
    row = int(np.flatnonzero(changed)[0])
    assert (trace.start_ns[row], trace.end_ns[row]) == (57_000, 60_000)


def test_a_short_overlap_on_a_stream_is_legal() -> None:
    maker = Maker()
    for i in range(100):
        maker.kernel("gemm", i * 1000, i * 1000 + 1200)  # programmatic dependent launch
    trace = maker.trace()
    assert repaired(trace)[0] is trace


def test_long_branches_of_a_graph_on_one_stream_are_legal() -> None:
    maker = Maker()
    busy_stream(maker, 400)
    for i in range(5):
        maker.kernel("ncclDevKernel_AllReduce", i * 500_000, i * 500_000 + 2 * MS)
    trace = maker.trace()
    assert repaired(trace)[0] is trace  # long, but as long as all of its name


def test_a_long_kernel_beside_another_stream_is_legal() -> None:
    maker = Maker()
    busy_stream(maker)
    maker.kernel("once", 5, 90 * MS, stream=8)
    trace = maker.trace()
    assert repaired(trace)[0] is trace


def test_an_end_before_its_start_becomes_nothing() -> None:
    maker = Maker()
    maker.kernel("gemm", 100, 40)
    trace, changed = repaired(maker.trace())
    assert changed.tolist() == [True] and trace.end_ns.tolist() == [100]
