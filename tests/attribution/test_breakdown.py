"""One device: sum, busy and span, components, units, rows, warnings; a table of sums claims less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_maker import ATTENTION, MOE, MULTIPLY, NORM, Dims, Maker, decode, unknown

from dsv4bench.attribution.breakdown import device_breakdowns
from dsv4bench.attribution.units import UnitVerdict
from dsv4bench.records.breakdown import DeviceBreakdown
from dsv4bench.records.trace import DeviceFacts, DeviceSamples, KernelTable, Kind, Source, TableRow
from dsv4bench.scenario.rules import load_rules

RULES = load_rules()


def only(maker: Maker) -> DeviceBreakdown:
    (device,) = device_breakdowns(maker.trace(), RULES, unknown)
    return device


def adds_up(d: DeviceBreakdown) -> bool:
    exclusive = sum(c.exclusive_ns or 0 for c in d.components)
    return exclusive + d.overlap_ns + d.copy_only_ns + d.idle_ns == d.window_ns  # type: ignore[operator]


def test_sum_busy_span_and_their_shares() -> None:
    maker = Maker()
    maker.kernel(MOE, 0, 40)
    maker.kernel(ATTENTION, 30, 60, stream=8)
    maker.kernel("ncclDevKernel_AllReduce_Sum", 50, 70, stream=9)
    maker.copy(70, 80)
    maker.copy(55, 58, kind=Kind.MEMSET)
    maker.kernel("what_is_this", 90, 100)
    d = only(maker)
    assert (d.window_ns, d.kernel_sum_ns, d.kernel_busy_ns, d.any_busy_ns) == (100, 100, 80, 90)
    assert (d.copy_only_ns, d.idle_ns, d.overlap_ns) == (10, 10, 10)
    assert (d.kernels, d.copies, d.copy_sum_ns) == (4, 2, 13)
    assert {c.component: (c.time_ns, c.exclusive_ns) for c in d.components} == {
        "moe": (40, 30),
        "attention": (30, 20 + 0 + 0),
        "comm": (20, 10),
        "other": (10, 10),
    }
    assert [(o.components, o.time_ns) for o in d.overlaps] == [(["moe", "attention"], 10)]
    moe = next(c for c in d.components if c.component == "moe")
    shares = (moe.share_of_sum_frac, moe.share_of_busy_frac, moe.share_of_span_frac)
    assert shares == (pytest.approx(0.4), pytest.approx(30 / 80), pytest.approx(0.3))
    assert adds_up(d)


event = st.tuples(
    st.integers(0, 60),
    st.integers(-2, 25),
    st.sampled_from([MOE, ATTENTION, NORM, MULTIPLY, "cross_device_reduce", ""]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(event, min_size=1, max_size=12), st.integers(0, 2), st.integers(1, 3))
def test_every_device_adds_up_to_the_nanosecond(events: list[tuple[int, int, str]], base: int, streams: int) -> None:
    maker = Maker()
    for i, (start, length, name) in enumerate(events):
        begin = start + base * 10**18
        if name:
            maker.kernel(name, begin, begin + length, device=i % 2, stream=i % streams)
        else:
            maker.copy(begin, begin + max(length, 0), device=i % 2)
    for d in device_breakdowns(maker.trace(), RULES, unknown):
        assert adds_up(d)
        assert sum(row.time_ns for row in d.rows) == sum(c.time_ns for c in d.components) == d.kernel_sum_ns
        assert sum(row.count for row in d.rows) == sum(c.count for c in d.components) == d.kernels
        assert sum(unit.time_ns for unit in d.units) == d.kernel_sum_ns


def test_the_residual_is_always_shown_and_last() -> None:
    maker = Maker()
    maker.kernel(MOE, 0, 10)
    assert [(c.component, c.time_ns) for c in only(maker).components] == [("moe", 10), ("other", 0)]


def test_devices_are_never_summed() -> None:
    maker = Maker()
    decode(maker, 3, device=0)
    decode(maker, 5, device=3, pid=2)
    found = device_breakdowns(maker.trace(), RULES, unknown)
    assert [d.device for d in found] == [0, 3]
    assert [d.kernels for d in found] == [30, 50]


def test_a_window_cuts_and_says_so() -> None:
    maker = Maker()
    maker.kernel(MOE, 0, 100)
    maker.kernel(NORM, 200, 210)
    (d,) = device_breakdowns(maker.trace(), RULES, unknown, window=(50, 150))
    assert (d.window_ns, d.kernel_sum_ns, d.kernels, d.idle_ns) == (100, 50, 1, 50)
    assert "out of the window" in d.warnings[0]


def test_opaque_graphs_stand_apart_with_the_remedy() -> None:
    maker = Maker()
    maker.kernel(NORM, 0, 10)
    maker.kernel(NORM, 990, 1000)
    for i in range(5):
        maker.run(100 + i * 100, 150 + i * 100)
    maker.run(0, 0)
    d = only(maker)
    assert (d.opaque_graph_ns, d.window_ns, d.kernel_busy_ns, d.idle_ns) == (250, 1000, 20, 980)
    assert "--cuda-graph-trace=node" in d.warnings[0] and "1 graph launches have no times" in d.warnings[1]


def test_a_device_with_opaque_graphs_only_is_there() -> None:
    maker = Maker()
    maker.run(100, 150, device=2)
    d = only(maker)
    assert (d.device, d.kernels, d.window_ns, d.opaque_graph_ns) == (2, 0, 0, 50)


def test_lost_graph_kernels_are_said() -> None:
    maker = Maker()
    maker.kernel(NORM, 0, 10, correlation=5)
    maker.launch(77, 3, graph=True)
    assert "not to be believed" in only(maker).warnings[0]


def test_zero_durations_are_counted_and_warned_of() -> None:
    maker = Maker()
    for i in range(50):
        maker.kernel(NORM, i * 10, i * 10 + (5 if i else 0))
    d = only(maker)
    assert d.zero_duration == 1 and d.kernels == 50 and "whole microseconds" in d.warnings[0]


def test_impossible_durations_are_repaired_with_a_warning() -> None:
    maker = Maker()
    for i in range(500):
        maker.kernel(MOE, i * 10_000, i * 10_000 + 5_000)
    maker.kernel(MOE, 7_000, 10**10)
    d = only(maker)
    assert d.repaired == 1 and d.kernel_sum_ns == 500 * 5_000 + 3_000 and "impossible" in d.warnings[0]


def test_graph_share_and_sm_coverage() -> None:
    maker = Maker(devices={0: DeviceFacts(0, name="NVIDIA H200", compute=(9, 0))})
    maker.kernel(MOE, 0, 30, grid=(66, 1, 1), block=(128, 1, 1), node=4)
    maker.kernel(NORM, 40, 50)
    d = only(maker)
    assert d.gpu == "NVIDIA H200"
    assert (d.sm_coverage_frac, d.grid_known_frac, d.graph_kernels_frac) == (0.5, 0.75, 0.75)
    assert (d.rows[0].grid, d.rows[0].waves) == ((66, 1, 1), pytest.approx(66 / (132 * 16)))
    assert d.rows[1].grid is None and d.rows[1].waves is None


def by_grid(name: str, grid: Dims | None, block: Dims | None, compute: tuple[int, int] | None) -> UnitVerdict:
    if grid is None:
        return UnitVerdict(runs_on="unknown", evidence="none", note="")
    pipe = {(1, 1, 1): 0.2, (3, 1, 1): 0.6}.get(grid)
    if pipe is None:
        return UnitVerdict(runs_on="cuda", evidence="counter", note="no MMA")
    return UnitVerdict(runs_on="tensor", evidence="counter", note=str(grid), tensor_pipe_frac=pipe)


def test_the_unit_is_asked_for_by_grid_and_equal_verdicts_are_one_row() -> None:
    maker = Maker()
    maker.kernel("gemm", 0, 30, grid=(1, 1, 1))
    maker.kernel("gemm", 30, 40, grid=(3, 1, 1))
    maker.kernel("gemm", 40, 45, grid=(9, 1, 1))
    maker.kernel("gemm", 43, 46, stream=8)
    (d,) = device_breakdowns(maker.trace(), RULES, by_grid)
    assert [(r.runs_on, r.evidence, r.count, r.time_ns, r.grid) for r in d.rows] == [
        ("tensor", "counter", 2, 40, None),
        ("cuda", "counter", 1, 5, (9, 1, 1)),
        ("unknown", "none", 1, 3, None),
    ]
    assert d.rows[0].tensor_pipe_frac == pytest.approx((0.2 * 30 + 0.6 * 10) / 40)
    assert d.rows[0].evidence_note == "(1, 1, 1)"
    assert [(u.runs_on, u.time_ns) for u in d.units] == [("tensor", 40), ("cuda", 5), ("unknown", 3)]
    assert [round((u.share_of_busy_frac or 0) * 46) for u in d.units] == [40, 3, 1]  # 2 ns belong to two units


def test_samples_of_the_device_in_the_window() -> None:
    metrics = {
        "Tensor Active [Throughput %]": np.array([90.0, 1.0, 0.0, np.nan]),
        "SMs Active [Throughput %]": np.array([0.0, 50.0, 100.0, 75.0]),
        "DRAM Read Bandwidth [Throughput %]": np.array([0.0, 10.0, 20.0, 30.0]),
        "DRAM Write Bandwidth [Throughput %]": np.array([0.0, 1.0, 2.0, 3.0]),
    }
    samples = DeviceSamples("s", 0, np.array([0, 100, 150, 200]), metrics, quantum_frac=0.01)
    maker = Maker(samples=[samples])
    maker.kernel(MOE, 50, 300)
    d = only(maker)
    assert d.tensor_pipe_frac == pytest.approx(0.005) and d.tensor_pipe_metric == "Tensor Active [Throughput %]"
    assert d.sm_active_frac == pytest.approx(0.75) and d.dram_frac == pytest.approx(0.22)
    assert "steps of 1 %" in d.warnings[0]
    maker.devices[1] = DeviceFacts(1)
    maker.kernel(MOE, 50, 300, device=1)
    assert device_breakdowns(maker.trace(), RULES, unknown)[1].tensor_pipe_frac is None


def test_a_table_has_sums_and_nothing_else() -> None:
    rows = [
        TableRow(MOE, 10, 600),
        TableRow(MULTIPLY, 20, 300),
        TableRow("x", 1, 100),
        TableRow("Memcpy HtoD", 3, 50),
    ]
    (d,) = device_breakdowns(KernelTable("t.csv", Source.NSYS_STATS, rows), RULES, unknown)
    assert (d.kernel_sum_ns, d.kernels, d.copies, d.copy_sum_ns) == (1000, 31, 3, 50)
    assert {d.window_ns, d.kernel_busy_ns, d.any_busy_ns, d.copy_only_ns, d.idle_ns, d.overlap_ns} == {None}
    shares = {c.component: c.share_of_sum_frac for c in d.components}
    assert shares == {"moe": 0.6, "elementwise": 0.3, "other": 0.1}
    assert all(c.share_of_busy_frac is None and c.exclusive_ns is None for c in d.components)
    assert "of the kernel sum" in d.warnings[0]


def test_an_empty_trace_has_no_device() -> None:
    assert device_breakdowns(Maker().trace(), RULES, unknown) == []
