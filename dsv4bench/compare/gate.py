"""Non-inferiority in three outcomes: the new one is shown to be at most δ worse, shown to be worse, or neither.

θ is ln(new/base), + = better, whatever the metric's direction. With L and U the ends of its 1−α interval:

    PASS          L > −δ at every gating cell (an intersection-union test: no correction)
    FAIL          at some cell U < 0 after Holm, and θ̂ ≤ −δ
    INCONCLUSIVE  anything else, NaN included: every rule is written so that NaN makes it false

Pairs of launches: Student's t of their differences; α is split evenly over the looks that may be taken (after 4,
6 and 8 pairs). Stored launches: se² = s_runs² + (1/k_A + 1/k_B)·σ_launch² + (1/d_A + 1/d_B)·σ_day² for k launches
on d days. Nothing here knows of cells or files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dsv4bench.compare.statistics import Estimate, few_launches, holm, t_quantile
from dsv4bench.metrics import BY_NAME
from dsv4bench.records.gate import Outcome

K = TypeVar("K")

ALPHA = 0.05
POWER = 0.8
LOOKS = (4, 6, 8)  # pairs at which one may look
MIN_PAIRS = LOOKS[0]

GATING = ("output_tok_s", "tpot_p50_s", "ttft_p50_s")
STORED_LIMIT_FRAC = 0.10
PAIRED_LIMIT_FRAC = {"output_tok_s": 0.05, "tpot_p50_s": 0.05, "ttft_p50_s": 0.10}


def direction(metric: str) -> int:
    """+1 where higher is better, −1 where lower is."""
    return 1 if BY_NAME[metric].direction == "higher" else -1


def log_limit(metric: str, limit_frac: float) -> float:
    """δ on the scale of θ: a throughput may fall by δ, a time may grow by δ."""
    return -math.log1p(-limit_frac) if direction(metric) > 0 else math.log1p(limit_frac)


def to_frac(metric: str, theta: float) -> float:
    """θ as the change of the metric itself: −0.05 is 5 % fewer tokens a second, +0.05 a TPOT 5 % longer."""
    return math.expm1(direction(metric) * theta)


def alpha_at(n_pairs: int) -> tuple[float, int]:
    """The α of one look and the number of looks it is split over."""
    looks = max(len(LOOKS), 1 + math.ceil((n_pairs - MIN_PAIRS) / 2))
    return ALPHA / looks, looks


def stored(
    base: Sequence[Sequence[float]],
    new: Sequence[Sequence[float]],
    *,
    sigma_launch: float,
    sigma_day: float,
    days: tuple[int, int] = (1, 1),
) -> Estimate:
    """θ from the runs of each launch of each arm (logarithms, + = better), with the variance of launches and days."""
    return few_launches(base, new, sigma_launch).widened(sigma_day**2 * (1 / days[0] + 1 / days[1]))


def decide(estimates: Mapping[K, Estimate], limits: Mapping[K, float], alpha: float) -> dict[K, Outcome]:
    """The outcome at every gating cell; `limits` are on the scale of θ and positive."""
    keys = list(estimates)
    rejected = holm([estimates[k].p_value() for k in keys], alpha)
    return {k: _decide_one(estimates[k], limits[k], alpha, i in rejected) for i, k in enumerate(keys)}


def overall(outcomes: Sequence[Outcome]) -> Outcome:
    """PASS only where every cell passed; no cell at all is nothing shown."""
    if Outcome.NOT_COMPARABLE in outcomes:
        return Outcome.NOT_COMPARABLE
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL
    passed = bool(outcomes) and all(o is Outcome.PASS for o in outcomes)
    return Outcome.PASS if passed else Outcome.INCONCLUSIVE


def could_see(e: Estimate, limit: float, alpha: float) -> float:
    """The smallest true loss, on the scale of θ, that would have been called FAIL four times in five (one cell)."""
    return max(limit, t_quantile(1 - alpha / 2, e.nu) * e.se) + t_quantile(POWER, e.nu) * e.se


def _decide_one(e: Estimate, limit: float, alpha: float, rejected: bool) -> Outcome:
    lower, upper = e.interval(1 - alpha)
    if lower > -limit:
        return Outcome.PASS
    if rejected and upper < 0 and e.theta <= -limit:
        return Outcome.FAIL
    return Outcome.INCONCLUSIVE
