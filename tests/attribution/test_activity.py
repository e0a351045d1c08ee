"""Shares of a window: time weighs the mean, edges count in part, what is not covered is dropped and never idle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.attribution.activity import activity, in_bins
from dsv4bench.attribution.sampled import TENSOR, sampled
from dsv4bench.records.trace import DeviceSamples

MS = 1_000_000
T = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
M = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
S = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
D = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


def made(percents: list[float], step: int = MS, at: int = 0, gpu: int = 0, **others: list[float]) -> DeviceSamples:
    """Contiguous samples from `at` on; `others` are further metrics by name."""
    n = len(percents)
    ends = at + step * np.arange(1, n + 1, dtype=np.int64)
    columns = {T: percents, **others}
    return DeviceSamples(
        "", gpu, ends, {k: np.array(v, np.float64) for k, v in columns.items()}, span_ns=np.full(n, step, np.int64)
    )


def test_percents_become_fractions_with_their_metric_and_length() -> None:
    one = made([0.0] * 98 + [50.0, 100.0], **{M: [1.0] * 100, S: [90.0] * 100, D: [25.0] * 100})
    a = activity([one], (0, 100 * MS), "CUPTI PM sampling", compute=(9, 0), notes=["said"])
    assert a is not None and a.tensor_pipe is not None and a.tensor_mma and a.sm and a.dram
    assert (a.tensor_pipe.metric, a.tensor_pipe.mean_frac) == (T, pytest.approx(0.015))
    assert (a.tensor_pipe.p50_frac, a.tensor_pipe.p99_frac) == (0.0, 0.5)  # nearest rank: the 99th of 100
    assert (a.tensor_mma.mean_frac, a.sm.mean_frac, a.dram.mean_frac) == (0.01, pytest.approx(0.9), 0.25)
    assert (a.n_samples, a.n_dropped, a.interval_s, a.window_s) == (100, 0, 1e-3, 0.1)
    assert (a.compute, a.window, a.gpus, a.notes) == ("9.0", "steady", [0], ["said"])


def test_a_sample_on_the_edge_counts_with_what_lies_inside() -> None:
    one = made([10.0, 20.0, 30.0])
    a = activity([one], (MS // 2, 2 * MS + MS // 4), "x")
    assert a is not None and a.tensor_pipe is not None
    assert a.tensor_pipe.mean_frac == pytest.approx((10 * 0.5 + 20 + 30 * 0.25) / 1.75 / 100)
    assert a.n_dropped == 0 and a.n_samples == 3


def test_what_no_sample_covers_is_dropped_and_not_idle() -> None:
    one = made([80.0] * 100)
    kept = np.r_[0:40, 60:100]
    holed = DeviceSamples("", 0, one.time_ns[kept], {T: one.metrics[T][kept]}, span_ns=one.span_ns[kept])  # type: ignore[index]
    a = activity([holed], (0, 100 * MS), "x")
    assert a is not None and a.tensor_pipe is not None
    assert a.tensor_pipe.mean_frac == pytest.approx(0.8)
    assert (a.n_samples, a.n_dropped) == (80, 20) and a.notes == ["samples cover 80 % of the window"]


def test_gpus_are_pooled_and_a_dead_one_is_missing_time() -> None:
    both = activity([made([10.0] * 10), made([30.0] * 10, gpu=1)], (0, 10 * MS), "x")
    assert both is not None and both.tensor_pipe is not None
    assert both.tensor_pipe.mean_frac == pytest.approx(0.2) and both.gpus == [0, 1] and both.n_dropped == 0
    one = activity([made([10.0] * 10), made([], gpu=1)], (0, 10 * MS), "x")
    assert one is not None and one.n_dropped == 10 and "cover 50 %" in one.notes[0]


def test_a_metric_that_one_gpu_lacks_is_told_for_none() -> None:
    a = activity([made([1.0] * 4, **{S: [50.0] * 4}), made([1.0] * 4, gpu=1)], (0, 4 * MS), "x")
    assert a is not None and a.tensor_pipe is not None and a.sm is None and a.dram is None and a.tensor_mma is None


def test_values_that_were_not_told_are_left_out() -> None:
    a = activity([made([10.0, float("nan"), 30.0])], (0, 3 * MS), "x")
    assert a is not None and a.tensor_pipe is not None and a.tensor_pipe.mean_frac == pytest.approx(0.2)
    none = activity([made([float("nan")] * 3)], (0, 3 * MS), "x")
    assert none is not None and none.tensor_pipe is None


@pytest.mark.parametrize("window", [(5, 5), (9, 3), (100 * MS, 200 * MS)])
def test_no_time_or_no_sample_is_no_answer(window: tuple[int, int]) -> None:
    assert activity([made([1.0] * 3)], window, "x") is None
    assert activity([], (0, MS), "x") is None


def test_samples_that_do_not_tell_their_length_reach_back_to_the_one_before() -> None:
    plain = DeviceSamples(
        "", 0, np.array([10, 20, 30], np.int64) * MS, {"Tensor Active [%]": np.array([0.0, 40.0, 80.0])}
    )
    a = activity([plain], (10 * MS, 30 * MS), "nsys")
    assert a is not None and a.tensor_pipe is not None
    assert a.tensor_pipe.metric == "Tensor Active [%]" and a.tensor_pipe.mean_frac == pytest.approx(0.6)


@pytest.mark.parametrize(
    "name",
    [T, T.replace("active.", "active_realtime."), f"TPC.TriageCompute.{T}", "ANY_TENSOR_UTIL", "Tensor Active [%]"],
)
def test_the_tensor_pipe_is_known_by_each_of_its_names(name: str) -> None:
    samples = [DeviceSamples("", 0, np.array([5]), {M: np.array([1.0]), name: np.array([40.0])})]
    assert sampled(samples, 0, (0, 10)).tensor_pipe_metric == name  # not the one of MMA alone


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(1, 7))
def test_bins_hold_the_same_area(percents: list[float], n_bins: int) -> None:
    one = made(percents, step=12)
    edges = np.linspace(0, 12 * len(percents), n_bins + 1).astype(np.int64)
    got = in_bins(one, TENSOR, edges)
    assert got is not None and len(got) == n_bins
    place = np.searchsorted(edges, one.time_ns, side="left") - 1
    for i in range(n_bins):
        own = [p for p, at in zip(percents, place, strict=True) if at == i]
        assert np.isnan(got[i]) if not own else got[i] == pytest.approx(np.mean(own) / 100, abs=1e-9)


def test_bins_of_a_metric_that_is_not_there() -> None:
    assert in_bins(made([1.0]), ("DRAM",), np.array([0, 10])) is None
