"""What the data at one coordinate can carry: the grade, the effect and its error.

    E2    four or more blocks in which both arms were launched       paired t
    E2u   four or more launches on each side                         Welch
    E1    fewer launches, but repeats enough to see the run's noise  the launch variance is added
    E0    anything less                                              Δ and spread

A log metric is compared by the mean of ln over the repeats of a launch; a linear one by its difference, of the base's
mean, or in points when the metric is a fraction itself. `delta` is always `new/base − 1` (or new − base, in points)
of the figures returned beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

import msgspec

from dsv4bench.compare.samples import Column
from dsv4bench.compare.statistics import (
    SD_FLOOR,
    Estimate,
    few_launches,
    hodges_lehmann,
    paired,
    sign_flip_p,
    stdev,
    welch,
)
from dsv4bench.metrics import Metric
from dsv4bench.records.arm import Sample
from dsv4bench.records.verdict import Grade

LAUNCHES = 4
REPEATS = 5
FLIPS = range(8, 13)  # pairs: with fewer the exact test is too coarse to object, with more it is slow

Launches = dict[str, list[float]]  # launch -> its repeats, on the working scale


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one metric at one coordinate. `estimate` None: the data allow no interval."""

    grade: Grade
    base: float
    new: float
    delta: float | None
    estimate: Estimate | None = None
    log: bool
    points: bool
    n_base: int
    n_new: int
    spread: tuple[float, float] | None = None
    notes: list[str] = msgspec.field(default_factory=list)

    def fraction(self, effect: float) -> float:
        """From the working scale to what is shown."""
        if not self.log:
            return effect
        return math.expm1(effect) if effect < 700 else math.inf

    def interval(self, level: float) -> tuple[float, float]:
        assert self.estimate is not None
        low, high = self.estimate.interval(level)
        return self.fraction(low), self.fraction(high)

    def effect_of(self, limit: float) -> float:
        """From a shown fraction to the working scale."""
        return math.log1p(limit) if self.log else limit


def weigh(base: Column, new: Column, metric: Metric, sigma_launch: float) -> Effect:
    """The effect between two columns. Where a side has none but figures that may only be shown, they give E0."""
    log, points = metric.scale == "log", metric.unit == "frac"
    if min(len(base.samples), len(new.samples)) < LAUNCHES:  # no grade asks for less
        return _only_shown(base, new, log, points)
    scale: Callable[[float], float] = math.log if log else float
    a, b = _by_launch(base.samples, scale), _by_launch(new.samples, scale)
    blocks = blocks_of_both(base.samples, new.samples, scale)
    grade = _grade(a, b, blocks)
    if grade is Grade.E2:
        y_a, y_b = [p[0] for p in blocks.values()], [p[1] for p in blocks.values()]
    else:
        y_a, y_b = [fmean(v) for v in a.values()], [fmean(v) for v in b.values()]
    unit = 1.0 if log or points else fmean(y_a)
    if grade is Grade.E0 or not unit > 0:
        return _only_shown(base, new, log, points)
    estimate = _estimate(grade, y_a, y_b, a, b, sigma_launch, unit)
    at_base, at_new = fmean(y_a), fmean(y_b)
    notes = []
    if grade is Grade.E2:
        notes = _cross_check([(q - p) / unit for p, q in zip(y_a, y_b, strict=True)], list(blocks), estimate)
        notes += _unpaired(a, b, len(blocks))
    back: Callable[[float], float] = math.exp if log else float
    few = grade is Grade.E1
    return Effect(
        grade=grade,
        base=back(at_base),
        new=back(at_new),
        delta=_delta(back(at_base), back(at_new), points),
        estimate=estimate.widened(_rounding(base, at_base, log, unit) + _rounding(new, at_new, log, unit)),
        log=log,
        points=points,
        n_base=len(base.samples) if few else len(y_a),
        n_new=len(new.samples) if few else len(y_b),
        notes=notes,
    )


def _grade(a: Launches, b: Launches, blocks: Mapping[int, object]) -> Grade:
    if len(blocks) >= LAUNCHES:
        return Grade.E2
    if len(a) >= LAUNCHES and len(b) >= LAUNCHES:
        return Grade.E2U
    return Grade.E1 if _repeats(a) and _repeats(b) else Grade.E0


def _only_shown(base: Column, new: Column, log: bool, points: bool) -> Effect:
    """E0: plain means and their spread."""
    sides = [[s.value for s in c.samples] or c.shown for c in (base, new)]
    at_base, at_new = map(fmean, sides)
    spread = None
    if min(map(len, sides)) > 1 and at_base > 0 and at_new > 0:
        spread = stdev(sides[0]) / at_base, stdev(sides[1]) / at_new
    return Effect(
        grade=Grade.E0,
        base=at_base,
        new=at_new,
        delta=_delta(at_base, at_new, points),
        log=log,
        points=points,
        n_base=len(sides[0]),
        n_new=len(sides[1]),
        spread=spread,
    )


def _delta(base: float, new: float, points: bool) -> float | None:
    if points:
        return new - base
    return new / base - 1 if base > 0 else None


def _by_launch(samples: Sequence[Sample], scale: Callable[[float], float]) -> Launches:
    found: Launches = {}
    for s in samples:
        found.setdefault(s.launch, []).append(scale(s.value))
    return found


def blocks_of_both(
    base: Sequence[Sample], new: Sequence[Sample], scale: Callable[[float], float]
) -> dict[int, tuple[float, float]]:
    """Block -> (base, new), on the working scale, for the blocks both have; a launch in two blocks makes no pairs."""
    sides: list[dict[int, Launches]] = []
    for samples in (base, new):
        blocks: dict[int, Launches] = {}
        home: dict[str, int] = {}
        for s in samples:
            if s.block is None:
                continue
            if home.setdefault(s.launch, s.block) != s.block:
                return {}
            blocks.setdefault(s.block, {}).setdefault(s.launch, []).append(scale(s.value))
        sides.append(blocks)
    return {k: (_centre(sides[0][k]), _centre(sides[1][k])) for k in sorted(sides[0].keys() & sides[1].keys())}


def _centre(launches: Launches) -> float:
    return fmean([fmean(r) for r in launches.values()])


def _repeats(launches: Launches) -> bool:
    """Whether an arm shows its own noise: five repeats of one launch, or launches enough."""
    return len(launches) >= LAUNCHES or sum(len(r) - 1 for r in launches.values()) >= REPEATS - 1


def _estimate(
    grade: Grade, y_a: list[float], y_b: list[float], a: Launches, b: Launches, sigma_launch: float, unit: float
) -> Estimate:
    """In fractions of `unit`, so that the floor and the launch deviation mean the same on either scale."""
    floor = SD_FLOOR * unit
    if grade is Grade.E2:
        found = paired([q - p for p, q in zip(y_a, y_b, strict=True)], floor)
    elif grade is Grade.E2U:
        found = welch(y_a, y_b, floor)
    else:
        found = few_launches(list(a.values()), list(b.values()), sigma_launch * unit, floor)
    return found.scaled(unit)


def _rounding(column: Column, at: float, log: bool, unit: float) -> float:
    """Variance of a figure that was rounded: a uniform error that no repeat averages out."""
    half = column.rounding / math.exp(at) if log else column.rounding / unit
    return half**2 / 3


def _cross_check(d: Sequence[float], blocks: Sequence[int], estimate: Estimate) -> list[str]:
    """What the robust tests say against the paired t.

    One odd launch moves the mean by about one standard error and the Hodges-Lehmann centre hardly; noise alone parts
    them by half of one in about 2 % of cells.
    """
    notes = []
    if abs(hodges_lehmann(d) - estimate.theta) > estimate.se / 2:
        odd = max(range(len(d)), key=lambda i: abs(d[i] - median(d)))
        notes.append(f"outlier: block {blocks[odd]}")
    if len(d) in FLIPS and estimate.p_value() <= 0.05:
        p = sign_flip_p(d)
        if p > 0.05:
            notes.append(f"the exact sign-flip test disagrees (p = {p:.2f})")
    return notes


def _unpaired(a: Launches, b: Launches, pairs: int) -> list[str]:
    rest = len(a) + len(b) - 2 * pairs
    return [f"{rest} unpaired launches left out"] if rest > 0 else []
