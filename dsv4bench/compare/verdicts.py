"""One verdict a metric and coordinate: what the new configuration did against a base, as far as the data carry it.

NOT COMPARABLE comes first: unlike workloads, hardware or settings, a lever that is contradicted or not live, or a
side without a figure. What is left is weighed (`grading.py`) and judged (`ruling.py`); at grade E0 the verdict is
None and the change is shown. Every coordinate of either arm appears, for each metric of which either has a figure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from dsv4bench.compare import wording
from dsv4bench.compare.bounds import Bound, beyond_of, bound_of
from dsv4bench.compare.comparable import comparable, comparable_at, realised
from dsv4bench.compare.grading import Effect, weigh
from dsv4bench.compare.ruling import Open, judge_family
from dsv4bench.compare.samples import Column, Coordinate, aligned, columns, known, order, place
from dsv4bench.compare.statistics import DEFAULT_SIGMA_LAUNCH
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.metrics import Metric
from dsv4bench.records.arm import Arm
from dsv4bench.records.verdict import CellVerdict, Grade, LeverStatus, LeverVerdict, Verdict, Versus

WHOLE_LEVEL, FULL_LOAD = "output_tok_s", "full_load_tok_s"

Bounds = Mapping[tuple[int, int], Bound]  # (concurrency, ISL) of the base


def compare_arms(
    base: Arm,
    new: Arm,
    *,
    versus: Versus,
    metrics: Sequence[str],
    sigma_launch_frac: float | Mapping[str, float] | None = None,
    calibrated: bool = False,
    deltas: Mapping[str, float] | None = None,
    across_hardware: bool = False,
    bounds: Bounds | None = None,
    lever: LeverVerdict | None = None,
    family: Collection[str] | None = None,
    alpha: float = 0.05,
) -> list[CellVerdict]:
    """Verdicts of `new` against `base`, by metric, ISL and load.

    `sigma_launch_frac` is the launch deviation of this rig, one for all or by metric; a metric without one gets 1.5 %
    and counts as not calibrated. `deltas` replaces the registry's δ. `bounds` holds for the step that `new` is from
    `base`; `lever` marks or forbids the verdicts against the parent. `family` names the metrics that share one Holm
    correction (None: all; those outside share another).
    Raises UsageError for an unknown metric, a δ below the rig's noise, or one experiment on both sides; Unanswerable
    when neither arm has a figure of these metrics, or when one holds an unsound value.
    """
    if base.ids and base.ids == new.ids and base.cells == new.cells:
        raise UsageError(f"{new.name} is compared with itself ({', '.join(base.ids)})", "name two experiments")
    if unused := set(deltas or {}) - set(metrics):
        raise UsageError(f"δ for {', '.join(sorted(unused))}, which is not compared", "name it among the metrics")
    yardsticks = [_yardstick(known(name), deltas or {}, sigma_launch_frac, calibrated) for name in metrics]
    pair = _Pair(base, new, versus, metrics, across_hardware, bounds, lever if versus == "parent" else None)
    done = [pair.cell(y, at) for y in yardsticks for at in pair.places(y.metric.name)]
    if not done:
        raise Unanswerable(
            f"neither {base.name} nor {new.name} has a figure of {', '.join(metrics)}", "name other metrics"
        )
    opened = [c for c in done if isinstance(c, Open)]
    gating = set(metrics if family is None else family)
    for inside in (True, False):
        judge_family([c for c in opened if (c.metric.name in gating) is inside], alpha)
    return [c.cell if isinstance(c, Open) else c for c in done]


class _Yardstick(msgspec.Struct, frozen=True):
    """What one metric is judged by."""

    metric: Metric
    limit: float | None  # δ
    sigma: float
    calibrated: bool
    notes: list[str]


def _yardstick(
    metric: Metric, deltas: Mapping[str, float], sigmas: float | Mapping[str, float] | None, calibrated: bool
) -> _Yardstick:
    """The user's own δ below the noise floor is refused; the registry's is raised to it, and that is said."""
    given = sigmas.get(metric.name) if isinstance(sigmas, Mapping) else sigmas
    sigma, calibrated = (DEFAULT_SIGMA_LAUNCH, False) if given is None else (given, calibrated)
    if not 0 <= sigma < math.inf:
        raise UsageError(
            f"launch deviation {sigma}", "give a fraction such as 0.015; `dsv4bench calibrate` measures it"
        )
    noise = sigma if calibrated else 0.0
    own, usual = deltas.get(metric.name), metric.delta_frac
    if own is None:
        if usual is None or noise <= usual:
            return _Yardstick(metric, usual, sigma, calibrated, [])
        note = f"δ raised from {wording.size(usual)} to this rig's noise floor"
        return _Yardstick(metric, noise, sigma, calibrated, [note])
    if metric.direction == "none":
        raise UsageError(f"δ for {metric.name}: it is neither better high nor better low", "it carries no verdict")
    if not 0 < own < 1:
        raise UsageError(f"δ for {metric.name}: {own}", "give a fraction between 0 and 1, such as 0.03")
    if not own >= noise:
        raise UsageError(
            f"δ {wording.size(own)} for {metric.name} is below this rig's noise floor, {wording.size(noise)}",
            "take a larger δ, or calibrate again on a quieter rig",
        )
    return _Yardstick(metric, own, sigma, calibrated, [])


class _Pair:
    """The two arms side by side: their coordinates, their figures, and what holds for all of their cells."""

    def __init__(
        self,
        base: Arm,
        new: Arm,
        versus: Versus,
        metrics: Sequence[str],
        across_hardware: bool,
        bounds: Bounds | None,
        lever: LeverVerdict | None,
    ) -> None:
        self.base, self.new, self.versus, self.bounds = base, new, versus, bounds
        there = list(dict.fromkeys(map(place, base.cells)))
        to_base = aligned(there, list(dict.fromkeys(map(place, new.cells))))
        self.to_new = {b: n for n, b in to_base.items()}
        self.everywhere = sorted({*there, *to_base.values()}, key=order)
        self.columns = columns(base, metrics), columns(new, metrics)
        self.full_load = columns(base, [FULL_LOAD]), columns(new, [FULL_LOAD])
        self.facts = realised(base.cells), realised(new.cells)
        self.recorded = {name for side in self.columns for (name, _), column in side.items() if column.recorded}
        self.refusal, self.notes = _refusal(base, new, across_hardware, lever)

    def places(self, name: str) -> list[Coordinate]:
        """The coordinates of a metric: all, or none when neither arm has a single figure of it."""
        return self.everywhere if name in self.recorded else []

    def cell(self, y: _Yardstick, at: Coordinate) -> CellVerdict | Open:
        name, there = y.metric.name, self.to_new.get(at, at)
        base, new = self.columns[0].get((name, at)), self.columns[1].get((name, there))
        blank = self._blank(y, at, base, new)
        sides = ((base, self.base, at), (new, self.new, there))
        lacking = [wording.absent(c, arm.name, str(p)) for c, arm, p in sides if _figure(c) is None]
        if lacking or base is None or new is None:
            grade = Grade.P if blank.bound_source == "profile" else None
            return msgspec.structs.replace(blank, grade=grade, reason="; ".join(lacking))
        unlike = comparable_at(self.facts[0][at], self.facts[1][there], name)
        if self.refusal or not unlike.ok:
            return msgspec.structs.replace(blank, reason=self.refusal or unlike.why())
        weighed = _weighed(blank, base, new, y, [*unlike.notes, *y.notes, *self.notes])
        if isinstance(weighed, Open):
            weighed.beyond = beyond_of(self._bound(at), name)
            if name == WHOLE_LEVEL:
                weighed.notes += self._without_edges(weighed.effect, y, at, len(base.samples), len(new.samples))
        return weighed

    def _without_edges(self, whole: Effect, y: _Yardstick, at: Coordinate, n_base: int, n_new: int) -> list[str]:
        """The change under full load, where every launch tells it and ramp and drain bend that of whole levels."""
        base = self.full_load[0].get((FULL_LOAD, at), Column())
        new = self.full_load[1].get((FULL_LOAD, self.to_new.get(at, at)), Column())
        if len(base.samples) < n_base or len(new.samples) < n_new:
            return []
        e = weigh(base, new, known(FULL_LOAD), y.sigma)
        low, high = whole.interval(0.95)
        if e.estimate is None or e.delta is None or low <= e.delta <= high:
            return []
        return [wording.without_edges(e)]

    def _bound(self, at: Coordinate) -> Bound | None:
        if self.bounds is None or at.concurrency is None:
            return None
        return self.bounds.get((at.concurrency, at.isl))

    def _blank(self, y: _Yardstick, at: Coordinate, base: Column | None, new: Column | None) -> CellVerdict:
        bound = self._bound(at)
        most, note = bound_of(bound, y.metric.name)
        return CellVerdict(
            metric=y.metric.name,
            concurrency=at.concurrency,
            rate_req_s=at.rate_req_s,
            isl=at.isl,
            config=self.new.name,
            versus=self.versus,
            versus_name=self.base.name,
            base=_figure(base),
            new=_figure(new),
            delta_frac=None,
            limit_frac=y.limit,
            verdict=Verdict.NOT_COMPARABLE,
            grade=None,
            bound_frac=most,
            bound_note=note,
            bound_source=bound.source if bound is not None and most is not None else None,
        )


def _refusal(base: Arm, new: Arm, across_hardware: bool, lever: LeverVerdict | None) -> tuple[str, list[str]]:
    """(why no cell may be compared, what every claim must carry)."""
    arms = comparable(base, new, across_hardware=across_hardware)
    notes = list(arms.notes)
    if not arms.ok:
        return arms.why(), notes
    for arm in (base, new):  # one of them was not what its name says
        if arm.not_live is not None:
            return f"lever not live in {arm.name}: {arm.not_live}", notes
    if lever is not None and lever.status is LeverStatus.CONTRADICTED:
        return f"more than the lever differs: {', '.join(lever.extra_keys)}", notes
    if lever is not None and lever.bundled:
        notes.append(wording.bundled(new.name, lever.levers, apart=bool(lever.bundle)))
    if lever is not None and lever.status is LeverStatus.UNVERIFIED:
        notes.append("lever unverified")
    return "", notes


def _figure(column: Column | None) -> float | None:
    """A plain mean, for a cell that is not compared."""
    values = [] if column is None else [s.value for s in column.samples] or column.shown
    return sum(values) / len(values) if values else None


def _weighed(blank: CellVerdict, base: Column, new: Column, y: _Yardstick, notes: list[str]) -> CellVerdict | Open:
    """E0 and metrics without a verdict are finished here; the rest awaits its family."""
    e, metric = weigh(base, new, y.metric, y.sigma), y.metric
    sided = metric.direction != "none" and e.delta is not None and e.delta != 0
    cell = msgspec.structs.replace(
        blank,
        base=e.base,
        new=e.new,
        delta_frac=e.delta,
        better=((e.delta or 0) > 0) is (metric.direction == "higher") if sided else None,
        in_points=e.points,
        ci_frac=None if e.estimate is None else e.interval(0.95),
        spread_frac=e.spread,
        verdict=None,
        grade=e.grade,
        n_base=e.n_base,
        n_new=e.n_new,
    )
    if e.estimate is None or e.delta is None:
        reason = wording.ungraded(e, base, new)
        return msgspec.structs.replace(cell, reason="; ".join([reason, *e.notes, *notes]))
    left_out = [f"{side}: {c.note()}" for side, c in (("base", base), ("new", new)) if c.note()]
    if y.limit is None or metric.direction == "none":
        why = "neither better high nor better low" if metric.direction == "none" else "no δ of its own"
        return msgspec.structs.replace(cell, reason="; ".join([f"{why}: no verdict", *left_out, *e.notes, *notes]))
    assumed = e.grade is Grade.E1 and not y.calibrated
    return Open(cell, e, e.estimate, metric, y.limit, assumed, [*left_out, *e.notes, *notes])
