"""How many data sets and replays there are, and what two captures become: arithmetic, no GPU."""

from __future__ import annotations

import pytest

from dsv4bench.kernels.timing import (
    LEAST_REPLAYS,
    LEAST_SETS,
    MOST_REPLAYS,
    MOST_SETS,
    Call,
    replays_within,
    rotation,
    summary,
    timed,
)

L2 = 60 * 2**20  # an H200's
ROW = 584


@pytest.mark.parametrize(
    ("bytes_a_call", "sets"),
    [
        (80.2e6, LEAST_SETS),  # MoE at one token: three calls would do
        (2687e6, LEAST_SETS),
        (13 * 640 * ROW, 39),
        (1 * 640 * ROW, MOST_SETS),  # 505 would be wanted
    ],
)
def test_sets_fill_three_caches_within_bounds(bytes_a_call: float, sets: int) -> None:
    found = rotation(bytes_a_call, L2)
    assert found.sets == sets and found.touched_bytes == int(sets * bytes_a_call)
    assert found.cold is (found.touched_bytes >= 3 * L2)


def test_a_replay_that_the_cache_may_serve_says_so() -> None:
    assert not rotation(640 * ROW, L2).cold
    assert rotation(2 * 640 * ROW, L2).cold
    assert rotation(640 * ROW, 0).cold  # no cache, nothing to keep out


def test_a_call_that_touches_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="touches"):
        rotation(0, L2)


@pytest.mark.parametrize(
    ("replay_s", "n"),
    [(1e-6, MOST_REPLAYS), (0.05, 10), (0.32, LEAST_REPLAYS), (9.0, LEAST_REPLAYS), (0.0, MOST_REPLAYS)],
)
def test_replays_fit_the_budget_within_bounds(replay_s: float, n: int) -> None:
    assert replays_within(replay_s, budget_s=0.5) == n


def test_a_summary_takes_medians_and_nearest_ranks() -> None:
    found = summary([5.0, 1.0, 3.0, 2.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0], [2.0, 9.0, 3.0], calls=12)
    assert (found.median_s, found.again_s, found.p10_s, found.p90_s, found.least_s) == (5.5, 3.0, 1.0, 9.0, 1.0)
    assert (found.replays, found.calls) == (10, 12)


def test_two_captures_are_timed() -> None:
    class Stopwatch:
        captured: int = 0

        def replays(self, calls: list[Call]) -> list[float]:
            self.captured += 1
            return [float(self.captured)] * 3

    watch = Stopwatch()
    found = timed([lambda: None] * 4, watch)  # type: ignore[arg-type] # a list is a sequence
    assert (found.median_s, found.again_s, found.calls, watch.captured) == (1.0, 2.0, 4, 2)
