"""The sweep against a naive one that looks at every nanosecond."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.attribution import intervals
from dsv4bench.attribution.intervals import clip, covered, sweep, total, union

LABELS = 4
COPY = LABELS
YIELDS = 3

interval = st.tuples(st.integers(-5, 40), st.integers(-5, 40), st.integers(0, COPY))


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def naive(rows: list[tuple[int, int, int]], low: int, high: int) -> Counter[object]:
    """Every nanosecond looked at: label | ("overlap", labels) | "copy" | "idle"."""
    found: Counter[object] = Counter()
    for moment in range(low, high):
        active = {label for start, end, label in rows if start <= moment < end}
        kernels = active - {COPY}
        if not kernels:
            found["copy" if active else "idle"] += 1
        elif len(kernels) == 1:
            found[next(iter(kernels))] += 1
        elif len(kernels) == 2 and YIELDS in kernels:
            found[next(iter(kernels - {YIELDS}))] += 1
        else:
            found["overlap", tuple(sorted(kernels))] += 1
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(interval, max_size=12), st.sets(st.integers(-3, 38), min_size=2, max_size=5), st.sampled_from((1, 3, 99))
)
def test_the_sweep_is_the_naive_one_and_adds_up(rows: list[tuple[int, int, int]], cuts: set[int], piece: int) -> None:
    edges = sorted(cuts)
    start, end, label = columns(rows)
    with patch.object(intervals, "PIECE", piece):
        swept = sweep(start, end, label, label == COPY, np.array(edges), LABELS, YIELDS)
    together: Counter[object] = Counter()
    for i, (low, high) in enumerate(pairwise(edges)):
        expected = naive(rows, low, high)
        together += expected
        assert swept.exclusive_ns[i].tolist() == [expected[k] for k in range(LABELS)]
        assert swept.copy_only_ns[i] == expected["copy"] and swept.idle_ns[i] == expected["idle"]
        parts = swept.exclusive_ns[i].sum() + swept.overlap_ns[i] + swept.copy_only_ns[i] + swept.idle_ns[i]
        assert parts == high - low
    assert {("overlap", labels): ns for labels, ns in swept.overlaps_ns.items() if ns} == {
        key: ns for key, ns in together.items() if isinstance(key, tuple)
    }
    kernels = [(s, e, k) for s, e, k in rows if k != COPY]
    inside = clip(*columns(kernels)[:2], (edges[0], edges[-1]))
    assert swept.kernel_busy_ns().sum() == covered(inside[0], inside[1])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, COPY)), max_size=12), st.integers(1, 5)
)
def test_pieces_of_one_stream_are_the_whole(gaps: list[tuple[int, int, int]], piece: int) -> None:
    """Kernels one after another, as on one stream, take a path of their own."""
    rows, now = [], 0
    for wait, lasts, label in gaps:
        rows.append((now + wait, now + wait + lasts, label))
        now += wait + lasts
    start, end, label = columns(rows)
    with patch.object(intervals, "PIECE", piece):
        swept = sweep(start, end, label, label == COPY, np.array([1, 7, 50]), LABELS, YIELDS)
    for i, (low, high) in enumerate(((1, 7), (7, 50))):
        expected = naive(rows, low, high)
        assert swept.exclusive_ns[i].tolist() == [expected[k] for k in range(LABELS)]
        assert swept.copy_only_ns[i] == expected["copy"] and swept.idle_ns[i] == expected["idle"]


@settings(max_examples=100, deadline=None)
@given(st.lists(interval, max_size=15))
def test_union_is_disjoint_and_holds_the_same_moments(rows: list[tuple[int, int, int]]) -> None:
    start, end, _ = columns(rows)
    starts, ends = union(start, end)
    moments = {m for s, e, _ in rows for m in range(s, e)}
    assert {m for s, e in zip(starts.tolist(), ends.tolist(), strict=True) for m in range(s, e)} == moments
    assert np.all(starts[1:] > ends[:-1])
    assert covered(start, end) == len(moments)
    assert total(start, end) == sum(max(e - s, 0) for s, e, _ in rows)


def test_times_past_the_precision_of_a_float_stay_exact() -> None:
    epoch = 1_700_000_000_000_000_001  # a double there is 256 ns coarse
    start = np.array([epoch, epoch + 7])
    swept = sweep(start, start + 5, np.array([0, 1]), np.zeros(2, bool), np.array([epoch, epoch + 13]), 2)
    assert swept.exclusive_ns.tolist() == [[5, 5]] and swept.idle_ns.tolist() == [3]
    wide = sweep(np.array([0]), np.array([1]), np.array([0]), np.zeros(1, bool), np.array([0, epoch]), 1)
    assert wide.idle_ns.tolist() == [epoch - 1]


def test_clip_counts_what_it_cut_and_keeps_empty_events() -> None:
    start, end = np.array([0, 5, 10, 20, 12]), np.array([3, 8, 15, 30, 12])
    low, high, inside, cut = clip(start, end, (6, 14))
    assert (low.tolist(), high.tolist()) == ([6, 10, 12], [8, 14, 12])
    assert inside.tolist() == [False, True, True, False, True]
    assert cut == 4


def test_two_kernels_of_one_component_are_that_component() -> None:
    """Programmatic dependent launch: a kernel starts before the one before it on its stream has ended."""
    swept = sweep(np.array([0, 8]), np.array([10, 20]), np.array([1, 1]), np.zeros(2, bool), np.array([0, 20]), 2)
    assert swept.exclusive_ns.tolist() == [[0, 20]] and swept.overlap_ns.tolist() == [0]


def test_a_million_kernels_add_up() -> None:
    rng = np.random.default_rng(1)
    start = np.sort(rng.integers(0, 10**10, 10**6))
    end = start + rng.integers(0, 20_000, 10**6)
    swept = sweep(start, end, rng.integers(0, 14, 10**6), np.zeros(10**6, bool), np.array([0, 2 * 10**10]), 14, 10)
    parts = swept.exclusive_ns.sum() + swept.overlap_ns.sum() + swept.copy_only_ns.sum() + swept.idle_ns.sum()
    assert parts == 2 * 10**10
