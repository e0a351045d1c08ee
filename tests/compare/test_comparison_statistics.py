"""Statistics against numbers worked by hand, scipy's own tests and published tables."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from dsv4bench.compare.statistics import (
    SD_FLOOR,
    equivalent,
    few_launches,
    hodges_lehmann,
    holm,
    paired,
    pairs_needed,
    sign_flip_p,
    t_cdf,
    t_quantile,
    welch,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("p", "nu", "expected"),
    [
        (0.975, 3, 3.182446),
        (0.975, 1, 12.706205),
        (0.95, 5, 2.015048),
        (0.8, 7, 0.896030),
        (0.975, math.inf, 1.959964),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(p: float, nu: float, expected: float) -> None:
    assert t_quantile(p, nu) == pytest.approx(expected, abs=1e-6)
    assert t_cdf(expected, nu) == pytest.approx(p, abs=1e-6)


def test_paired_worked_by_hand() -> None:
    e = paired([0.01, 0.02, 0.03, 0.04])  # mean .025, sd .0129099, se .00645497
    low, high = e.interval()
    assert (e.theta, e.se, e.nu) == (pytest.approx(0.025), pytest.approx(0.00645497, rel=1e-5), 3)
    assert (low, high) == (pytest.approx(0.0044573, rel=1e-4), pytest.approx(0.0455427, rel=1e-4))
    assert e.p_value() == pytest.approx(stats.ttest_1samp([0.01, 0.02, 0.03, 0.04], 0).pvalue)


def test_welch_is_scipys() -> None:
    a, b = [1.0, 1.2, 0.9, 1.1, 1.05], [1.3, 1.1, 1.5, 1.4]
    e, theirs = welch(a, b), stats.ttest_ind(b, a, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert e.p_value() == pytest.approx(theirs.pvalue)
    assert e.nu == pytest.approx(theirs.df)
    assert e.interval() == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_equal_values_do_not_claim_certainty() -> None:
    assert paired([0.0] * 4).se == pytest.approx(SD_FLOOR / 2)
    assert welch([0.0] * 4, [0.0] * 4).se == pytest.approx(SD_FLOOR / math.sqrt(2))
    assert few_launches([[0.0] * 5], [[0.0] * 5], 0.0).se == pytest.approx(SD_FLOOR * math.sqrt(2 / 5))


def test_one_launch_each_pays_for_the_launches_nobody_saw() -> None:
    """se² = s_A²/R + s_B²/R + 2σ²; with σ 1.5 % the half-width is never below 4.2 %, at 90 % never below 3.5 %."""
    a, b = [0.00, 0.01, 0.02, 0.03, 0.04], [0.10, 0.12, 0.14, 0.16, 0.18]  # s² = .00025 and .001
    e = few_launches([a], [b], 0.015)
    assert e.theta == pytest.approx(0.12)
    assert e.se**2 == pytest.approx(0.00025 / 5 + 0.001 / 5 + 2 * 0.015**2)
    quiet = few_launches([[0.0] * 5], [[0.0] * 5], 0.015)
    assert (quiet.interval()[1], quiet.interval(0.9)[1]) == (
        pytest.approx(0.0417, abs=3e-4),
        pytest.approx(0.035, abs=3e-4),
    )
    assert quiet.pair_sd == pytest.approx(quiet.se)  # one pair of launches has just this deviation


def test_more_launches_pay_less_and_launches_that_differ_pay_more() -> None:
    one, two = [[0.0] * 5], [[0.0] * 5, [0.0] * 5]
    assert few_launches(two, one, 0.015).se ** 2 == pytest.approx(0.015**2 * (1 + 1 / 2), rel=0.02)
    apart = [[-0.05] * 5, [0.05] * 5]  # sd of launches .0707
    e = few_launches(apart, one, 0.015)
    assert e.se**2 == pytest.approx(0.0707107**2 / 2 + 0.015**2, rel=0.02)
    assert e.nu < 2  # one degree of freedom is nearly all there is


def test_pairs_needed_agrees_with_the_power_table() -> None:
    """Standard deviation of pairs 2 %: six pairs see 3 % (2.85 % by the formula), five do not (3.3 %)."""
    assert pairs_needed(0.02, 0.03) == 6
    assert pairs_needed(0.03, 0.03) == 10
    assert pairs_needed(0.015, 0.03) == 5
    assert paired([0.0, 0.0, 0.0, 0.02 * math.sqrt(4)]).detectable() == pytest.approx(0.0416, abs=2e-4)
    assert pairs_needed(1.0, 0.001) is None
    assert pairs_needed(0.02, 0.0) is None
    assert pairs_needed(0.02, NAN) is None


def test_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == {3, 0}  # .005 ≤ .0125, .01 ≤ .0167, .03 > .025
    assert holm([0.04]) == {0}
    assert holm([0.03, 0.04]) == set()
    assert holm([]) == set()
    assert holm([NAN, 0.001]) == {1}


def test_hodges_lehmann_and_the_exact_sign_flip() -> None:
    assert hodges_lehmann([1.0, 2.0, 9.0]) == 3.5  # of 1, 1.5, 5, 2, 5.5, 9
    assert sign_flip_p([0.1] * 4) == 0.125
    assert [sign_flip_p([0.01] * n) for n in (5, 6, 8)] == [0.0625, 0.03125, 0.0078125]
    assert sign_flip_p([1.0, -1.0]) == 1.0


def test_equivalence_needs_the_whole_interval_and_never_takes_nan() -> None:
    assert equivalent((-0.02, 0.029), -0.03, 0.03)
    assert not equivalent((-0.02, 0.03), -0.03, 0.03)
    assert not equivalent((-0.04, 0.0), -0.03, 0.03)
    assert not equivalent((NAN, 0.0), -0.03, 0.03)
    assert not equivalent((0.0, NAN), -0.03, 0.03)
