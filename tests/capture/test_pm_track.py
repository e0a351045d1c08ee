"""Samples kept small: whatever is merged, time and area stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.capture.pm_track import Track

STEP = 200


def rows(n: int, first: int = 0, at: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n contiguous samples from `at` on; the value of sample i is i."""
    ends = at + STEP * np.arange(1, n + 1, dtype=np.int64)
    values = np.arange(first, first + n, dtype=np.float32)
    return ends, np.full(n, STEP, np.int64), np.stack([values, values * 2], axis=1)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(4, 64))
def test_time_and_area_survive_merging(sizes: list[int], most: int) -> None:
    track, at = Track(["a", "b"], most), 0
    for n in sizes:
        track.append(*rows(n, at // STEP, at))
        at += n * STEP
    got = track.samples(5)
    n = sum(sizes)
    assert got.device == 5 and got.span_ns is not None
    assert int(got.span_ns.sum()) == n * STEP
    assert np.all(got.time_ns - got.span_ns == np.concatenate([[0], got.time_ns[:-1]])[: len(got.time_ns)])
    area = float((got.metrics["a"] * got.span_ns).sum())
    assert area == pytest.approx(STEP * n * (n - 1) / 2, rel=1e-5)
    assert np.allclose(got.metrics["b"], 2 * got.metrics["a"])
    assert n <= most + 40 or track.merged > 1
    # a last batch may lie over the bound until the next
    assert len(got.time_ns) <= most + 40


def test_a_hole_stays_as_long_as_it_was() -> None:
    track = Track(["a", "b"], most=4)
    track.append(*rows(3))
    track.append(*rows(4, at=3 * STEP + 1000))
    got = track.samples(0)
    assert got.span_ns is not None and track.merged == 2
    covered, whole = int(got.span_ns.sum()), int(got.time_ns[-1])
    assert covered == 7 * STEP and whole - covered == 1000


def test_no_sample_is_an_empty_answer() -> None:
    got = Track(["a", "b"]).samples(1)
    assert len(got.time_ns) == 0 and set(got.metrics) == {"a", "b"} and len(got.metrics["a"]) == 0


def test_lengths_double_and_stay_alike() -> None:
    track = Track(["a", "b"], most=64)
    for i in range(160):
        track.append(*rows(4, 4 * i, 4 * i * STEP))
    got = track.samples(0)
    assert track.merged == 16 and got.span_ns is not None
    assert np.mean(got.span_ns == 16 * STEP) > 0.9  # but for the odd ones, where it doubled
