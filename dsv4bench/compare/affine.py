"""Lines and parabolas through step times, and intervals over launches. Numbers only: no cells, no words.

    t(C) = a + b·C   minimising  Σ ((a + b·C_i)/t_i − 1)²

The error is relative because step times span an order of magnitude and are known to a percentage, not to a
millisecond; an unweighted fit would let the highest level alone decide. Intervals are t intervals over launches, on
the log scale for what is positive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from dsv4bench.compare.statistics import SD_FLOOR, paired

Interval = tuple[float, float]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """t(C) = a + b·C in seconds."""

    a_s: float
    b_s: float

    def step_s(self, concurrency: float) -> float:
        return self.a_s + self.b_s * concurrency


def fit_line(levels: Sequence[float], times_s: Sequence[float], *, relative: bool = True) -> Line:
    """Least squares on relative error (absolute when not `relative`, as in ordinary least squares).

    Needs two distinct levels and times above 0; that is the caller's to see to.
    """
    a, b = _solve([[1.0, c] for c in levels], times_s, relative)
    return Line(a_s=a, b_s=b)


class Usl(msgspec.Struct, frozen=True, kw_only=True):
    """X(C) = λC/(1 + σ(C−1) + κC(C−1)), which is a step time quadratic in C."""

    rate: float
    sigma: float
    kappa: float


def fit_usl(levels: Sequence[float], times_s: Sequence[float]) -> Usl:
    """C/X = p + q·C + r·C² with p = (1−σ)/λ, q = (σ−κ)/λ, r = κ/λ: linear, hence exact and without a start value."""
    p, q, r = _solve([[1.0, c, c * c] for c in levels], times_s, True)
    rate = 1 / (p + q + r)  # t(1) = 1/λ
    return Usl(rate=rate, sigma=1 - p * rate, kappa=r * rate)


def usl_step_s(usl: Usl, concurrency: float) -> float:
    c = concurrency
    return (1 + usl.sigma * (c - 1) + usl.kappa * c * (c - 1)) / usl.rate


def aicc(residuals_frac: Sequence[float], parameters: int) -> float:
    """Akaike's criterion for small samples; infinite where the sample is too small for the parameters."""
    n, k = len(residuals_frac), parameters + 1  # the error's variance is estimated, too
    if n - k - 1 <= 0:
        return math.inf
    squares = max(math.fsum(r * r for r in residuals_frac) / n, SD_FLOOR**2)
    return n * math.log(squares) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """t interval of the mean over launches; None below two."""
    return paired(values).interval(confidence) if len(values) > 1 else None


def log_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The interval of the geometric mean; None below two values or where one is not positive."""
    if any(v <= 0 for v in values):
        return None
    found = interval([math.log(v) for v in values], confidence)
    return None if found is None else (math.exp(found[0]), math.exp(found[1]))


def _solve(rows: Sequence[Sequence[float]], times_s: Sequence[float], relative: bool) -> list[float]:
    """Normal equations by Gauss with pivoting; the systems have two or three unknowns."""
    weights = [1 / t if relative else 1.0 for t in times_s]
    scaled = [[w * v for v in row] for row, w in zip(rows, weights, strict=True)]
    target = [w * t for t, w in zip(times_s, weights, strict=True)]
    k = len(scaled[0])
    system = [
        [math.fsum(row[i] * row[j] for row in scaled) for j in range(k)]
        + [math.fsum(row[i] * y for row, y in zip(scaled, target, strict=True))]
        for i in range(k)
    ]
    for i in range(k):
        pivot = max(range(i, k), key=lambda r: abs(system[r][i]))
        system[i], system[pivot] = system[pivot], system[i]
        assert system[i][i] != 0, "levels are distinct"
        for r in range(k):
            if r != i:
                factor = system[r][i] / system[i][i]
                system[r] = [v - factor * u for v, u in zip(system[r], system[i], strict=True)]
    return [system[i][k] / system[i][i] for i in range(k)]
