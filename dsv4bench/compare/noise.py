"""What this rig's noise allows: the variance of launches and days, and the smallest δ that it can carry.

Calibrated values are those of `calibrate`, a metric at a time; without them the assumed ones stand in and are
named so. A calibration whose launches were spread over four days or more holds the drift of days in its launches
already.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from dsv4bench.compare.gate import ALPHA, LOOKS, direction
from dsv4bench.compare.statistics import DEFAULT_SIGMA_LAUNCH, t_quantile
from dsv4bench.records.calibration import Calibration

ASSUMED_SIGMA_DAY = 0.02
ASSUMED_SIGMA_RUN = 0.01
RUNS = 5  # of a launch that is gated by
DAYS_ENOUGH = 4


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations of logarithms, by metric where they were calibrated."""

    launch_frac: dict[str, float] = msgspec.field(default_factory=dict)
    run_frac: dict[str, float] = msgspec.field(default_factory=dict)
    sigma_day_frac: float = ASSUMED_SIGMA_DAY
    source: Literal["calibrated", "assumed"] = "assumed"

    def launch(self, metric: str) -> float:
        return self.launch_frac.get(metric, DEFAULT_SIGMA_LAUNCH)

    def run(self, metric: str) -> float:
        return self.run_frac.get(metric, ASSUMED_SIGMA_RUN)


ASSUMED = Noise()


def noise_of(calibration: Calibration | None) -> Noise:
    """A metric's noise is the largest over its levels."""
    if calibration is None:
        return ASSUMED
    launch: dict[str, float] = {}
    run: dict[str, float] = {}
    for f in calibration.floors:
        if f.sigma_launch_frac is not None:
            launch[f.metric] = max(launch.get(f.metric, 0.0), f.sigma_launch_frac)
        if f.sigma_run_frac is not None:
            run[f.metric] = max(run.get(f.metric, 0.0), f.sigma_run_frac)
    day = 0.0 if launch and calibration.n_days >= DAYS_ENOUGH else ASSUMED_SIGMA_DAY
    return Noise(launch_frac=launch, run_frac=run, sigma_day_frac=day, source="calibrated" if launch else "assumed")


def smallest_limit_frac(metric: str, noise: Noise, *, paired: bool, alpha: float = ALPHA) -> float:
    """The half-width of an A/A: below it, two equal servers could not be told from two unequal ones.

    Paired: at the last look, with one run a launch. Stored: one launch of `RUNS` runs each.
    """
    launch, run = noise.launch(metric), noise.run(metric)
    if paired:
        n = LOOKS[-1]
        half = t_quantile(1 - alpha / 2, n - 1) * math.sqrt(2 * (launch**2 + run**2) / n)
    else:
        variance = 2 * (launch**2 + noise.sigma_day_frac**2 + run**2 / RUNS)
        half = t_quantile(1 - alpha / 2, math.inf) * math.sqrt(variance)
    return -math.expm1(-half) if direction(metric) > 0 else math.expm1(half)
