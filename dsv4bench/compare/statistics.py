"""The statistics of a comparison: functions of numbers, on whatever scale the caller chose (mostly logarithms).

    paired launches     θ = mean(d),           se = max(s_d, 0.2 %)/√n,                    ν = n − 1
    unpaired launches   θ = mean(b) − mean(a), se² = s_a²/n_a + s_b²/n_b,                  ν after Satterthwaite
    one launch each     θ = mean(b) − mean(a), se² = s_a²/R + s_b²/R + 2·σ_launch²

The unit is one server launch: requests of a run, and runs of a launch, are no independent witnesses. The floor of
0.2 % (clock resolution, whole tokens) keeps equal values from claiming certainty. Quantiles come from scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from statistics import fmean, median

import msgspec

SD_FLOOR = 0.002
DEFAULT_SIGMA_LAUNCH = 0.015  # of a rig that was never calibrated
POWER = 0.8
MAX_PAIRS = 1000  # beyond this an answer to "how many pairs" helps nobody


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An effect with its standard error; `pair_sd` is the deviation that one pair of launches would have."""

    theta: float
    se: float
    nu: float
    pair_sd: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        half = t_quantile((1 + level) / 2, self.nu) * self.se
        return self.theta - half, self.theta + half

    def p_value(self) -> float:
        """Two-sided, of no effect."""
        return 2 * t_cdf(-abs(self.theta) / self.se, self.nu)

    def detectable(self, alpha: float = 0.05) -> float:
        """The smallest effect that would have been seen with probability 0.8."""
        return (t_quantile(1 - alpha / 2, self.nu) + t_quantile(POWER, self.nu)) * self.se

    def widened(self, variance: float) -> Estimate:
        """The same with a further, known variance (the rounding of published figures) added."""
        return msgspec.structs.replace(
            self, se=math.sqrt(self.se**2 + variance), pair_sd=math.sqrt(self.pair_sd**2 + variance)
        )

    def scaled(self, by: float) -> Estimate:
        return msgspec.structs.replace(self, theta=self.theta / by, se=self.se / by, pair_sd=self.pair_sd / by)


@lru_cache(maxsize=65536)
def t_quantile(p: float, nu: float) -> float:
    """Quantile of Student's t; normal for infinite ν."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(p) if math.isinf(nu) else stdtrit(nu, p))


def t_cdf(t: float, nu: float) -> float:
    from scipy.special import ndtr, stdtr

    return float(ndtr(t) if math.isinf(nu) else stdtr(nu, t))


def stdev(values: Sequence[float]) -> float:
    """Of a sample of two or more. The standard library's works in fractions, which costs 10,000 cells a second."""
    centre = fmean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def paired(d: Sequence[float], floor: float = SD_FLOOR) -> Estimate:
    """Differences, one a pair of launches; two pairs or more."""
    s = max(stdev(d), floor)
    return Estimate(theta=fmean(d), se=s / math.sqrt(len(d)), nu=len(d) - 1, pair_sd=s)


def welch(a: Sequence[float], b: Sequence[float], floor: float = SD_FLOOR) -> Estimate:
    """One value a launch, unpaired, two launches or more each."""
    s_a, s_b = max(stdev(a), floor), max(stdev(b), floor)
    parts = [(s_a**2 / len(a), len(a) - 1.0), (s_b**2 / len(b), len(b) - 1.0)]
    return _sum_of(fmean(b) - fmean(a), parts, math.hypot(s_a, s_b))


def few_launches(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], sigma_launch: float, floor: float = SD_FLOOR
) -> Estimate:
    """Too few launches to see their variance, so it is added: `a` and `b` hold the repeats of each launch.

    With one launch a side this is se² = s_a²/R + s_b²/R + 2·σ²; k launches divide their σ² by k. The degrees of
    freedom are Satterthwaite's, infinite for σ, so the quantile is the normal one where σ rules. Launches that differ
    by more than σ enlarge it.
    """
    parts = [*_few(a, sigma_launch, floor), *_few(b, sigma_launch, floor)]
    theta = fmean([fmean(r) for r in b]) - fmean([fmean(r) for r in a])
    largest = max(len(a), len(b))
    return _sum_of(theta, parts, math.sqrt(sum(variance for variance, _ in parts) * largest))


def _few(launches: Sequence[Sequence[float]], sigma_launch: float, floor: float) -> list[tuple[float, float]]:
    """(variance, degrees of freedom) of an arm's mean: from its repeats, and from its launches."""
    k, nu_runs = len(launches), float(sum(len(r) - 1 for r in launches))
    runs = (floor**2 / k, math.inf)
    if nu_runs > 0:
        within = sum((len(r) - 1) * stdev(r) ** 2 for r in launches if len(r) > 1) / nu_runs
        runs = (max(within, floor**2) * sum(1 / len(r) for r in launches) / k**2, nu_runs)
    seen = stdev([fmean(r) for r in launches]) if k > 1 else 0.0
    return [runs, (seen**2 / k, k - 1.0) if seen > sigma_launch else (sigma_launch**2 / k, math.inf)]


def _sum_of(theta: float, parts: Sequence[tuple[float, float]], pair_sd: float) -> Estimate:
    variance = sum(v for v, _ in parts)
    rest = sum(v**2 / nu for v, nu in parts)
    return Estimate(
        theta=theta, se=math.sqrt(variance), nu=variance**2 / rest if rest > 0 else math.inf, pair_sd=pair_sd
    )


def pairs_needed(pair_sd: float, limit: float, alpha: float = 0.05) -> int | None:
    """Pairs of launches after which an effect of `limit` would be seen with probability 0.8; None above 1000."""
    if not limit > 0:
        return None
    normal = t_quantile(1 - alpha / 2, math.inf) + t_quantile(POWER, math.inf)
    n = max(2, math.ceil((normal * pair_sd / limit) ** 2)) if pair_sd < limit * MAX_PAIRS else MAX_PAIRS + 1
    while n <= MAX_PAIRS:
        if (t_quantile(1 - alpha / 2, n - 1) + t_quantile(POWER, n - 1)) * pair_sd / math.sqrt(n) <= limit:
            return n
        n += 1
    return None


def equivalent(interval: tuple[float, float], low: float, high: float) -> bool:
    """Two one-sided tests at α: the (1 − 2α) interval lies inside the limits. Not a number never does."""
    return low < interval[0] and interval[1] < high


def holm(p_values: Sequence[float], alpha: float = 0.05) -> set[int]:
    """Indices rejected with family-wise error α."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i] if p_values[i] >= 0 else math.inf)  # NaN: last
    rejected: set[int] = set()
    for rank, i in enumerate(order):
        if not p_values[i] <= alpha / (len(order) - rank):
            break
        rejected.add(i)
    return rejected


def hodges_lehmann(d: Sequence[float]) -> float:
    """Median of the pairwise means: a centre that one odd launch does not move."""
    return median((d[i] + d[j]) / 2 for i in range(len(d)) for j in range(i, len(d)))


def sign_flip_p(d: Sequence[float]) -> float:
    """Exact two-sided p over all 2ⁿ sign flips, for up to 16 pairs. Its floor is 2/2ⁿ: 0.125 at n = 4."""
    assert len(d) <= 16, "2ⁿ sums"
    seen = abs(sum(d))
    slack = 1e-12 * (1 + sum(map(abs, d)))
    hits = sum(
        abs(sum(s * x for s, x in zip(signs, d, strict=True))) >= seen - slack
        for signs in product((1, -1), repeat=len(d))
    )
    return float(hits / 2 ** len(d))
