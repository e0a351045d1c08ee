"""From two arms to a gate's outcome: integrity first, then `gate` at every level and gating metric.

Four or more pairs of launches (the same `block` in both arms, one pair measured before the next begins) are judged
as pairs; all else in the stored mode. What is made of the outcomes is in `reasons`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from dsv4bench.compare import gate, integrity
from dsv4bench.compare.gate import GATING, PAIRED_LIMIT_FRAC, STORED_LIMIT_FRAC
from dsv4bench.compare.levels import Key, by_launch, by_level, days
from dsv4bench.compare.noise import ASSUMED, Noise, smallest_limit_frac
from dsv4bench.compare.pairing import blocks_of, differences
from dsv4bench.compare.reasons import explained, implausible, odd_launch, one_sided
from dsv4bench.compare.samples import Coordinate
from dsv4bench.compare.statistics import Estimate, paired
from dsv4bench.errors import UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.gate import GateCell, GateDocument, Outcome

MIN_REQUESTS = 10
MIN_RUNS = 5


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user may set, and this rig's noise. `limits_frac` is δ by metric."""

    limits_frac: dict[str, float] = msgspec.field(default_factory=dict)
    max_error_frac: float = 0.0
    min_requests: int = MIN_REQUESTS
    noise: Noise = ASSUMED


@dataclass(frozen=True, slots=True)
class Case:
    """Two sound arms, and how they are judged; no blocks: the stored mode."""

    base: Mapping[Coordinate, list[Cell]]
    new: Mapping[Coordinate, list[Cell]]
    blocks: Sequence[int]
    rules: Rules
    alpha: float

    def limit_frac(self, metric: str) -> float:
        """δ. Raises UsageError for one that the noise cannot carry."""
        wanted, is_paired = self.rules.limits_frac.get(metric), bool(self.blocks)
        if wanted is None:
            return PAIRED_LIMIT_FRAC[metric] if is_paired else STORED_LIMIT_FRAC
        noise = self.rules.noise
        smallest = smallest_limit_frac(metric, noise, paired=is_paired, alpha=self.alpha)
        if not wanted >= smallest:
            how = f"{gate.LOOKS[-1]} pairs" if is_paired else "single launches"
            raise UsageError(
                f"δ {wanted:.1%} for {metric} is below what {how} can tell ({smallest:.1%}, {noise.source} noise)",
                "take a larger δ, measure paired launches, or calibrate this rig: dsv4bench calibrate NAME",
            )
        return wanted

    def too_little(self, level: Coordinate) -> str | None:
        """Why nothing can be estimated there; None when it can."""
        for cells, role in ((self.base[level], "baseline"), (self.new[level], "candidate")):
            fewest = min(c.n_ok for c in cells)
            if not fewest >= self.rules.min_requests:
                return f"{fewest} requests in a cell of the {role}, {self.rules.min_requests} are needed"
            if not self.blocks and not len(cells) >= MIN_RUNS:
                runs = f"{len(cells)} run{'s' if len(cells) > 1 else ''}"
                return f"{runs} in the {role}: their spread needs sweep --repeat {MIN_RUNS}"
        return None

    def differences(self, k: Key) -> list[float]:
        return differences(self.base[k.level], self.new[k.level], k.metric, self.blocks)

    def estimate(self, k: Key) -> Estimate:
        base, new = self.base[k.level], self.new[k.level]
        if self.blocks:
            return paired(self.differences(k))
        noise = self.rules.noise
        return gate.stored(
            _oriented_logs(base, k.metric),
            _oriented_logs(new, k.metric),
            sigma_launch=noise.launch(k.metric),
            sigma_day=noise.sigma_day_frac,
            days=(days(base), days(new)),
        )

    def n(self, level: Coordinate) -> int:
        return len(self.blocks) or min(len(self.base[level]), len(self.new[level]))


def judge(base: Arm, new: Arm, rules: Rules | None = None) -> GateDocument:
    """The outcome and every cell's part in it. Raises UsageError for a δ that this rig's noise cannot carry."""
    rules = rules or Rules()
    keys = _keys(base, new)
    document = GateDocument(
        baseline=base.name, candidate=new.name, n_expected=len(keys), notes=integrity.notes(base, new)
    )
    breaches = integrity.check(base, new, rules.max_error_frac)
    if breaches:
        return msgspec.structs.replace(document, outcome=Outcome.NOT_COMPARABLE, integrity=[str(b) for b in breaches])
    blocks, why_not = blocks_of(base, new)
    alpha, looks = gate.alpha_at(len(blocks)) if blocks else (gate.ALPHA, 1)
    case = Case(by_level(base.cells), by_level(new.cells), blocks, rules, alpha)
    unmeasured = {k: why for k in keys if (why := case.too_little(k.level)) is not None}
    estimates = {k: case.estimate(k) for k in keys if k not in unmeasured}
    limits = {k: case.limit_frac(k.metric) for k in keys}
    outcomes = gate.decide(estimates, {k: gate.log_limit(k.metric, limits[k]) for k in estimates}, alpha)
    wonders = {} if new.levers else implausible(estimates, outcomes)
    outcomes |= dict.fromkeys(wonders, Outcome.NOT_COMPARABLE)
    cells = [
        _measured(case, k, limits[k], estimates, outcomes[k])
        if k in estimates
        else _cell(case, k, limits[k], Outcome.INCONCLUSIVE, unmeasured[k])
        for k in keys
    ]
    noise = None if blocks else rules.noise
    odd = [n for k in estimates if blocks for n in odd_launch(k, case.differences(k), blocks)]
    return msgspec.structs.replace(
        document,
        mode="paired" if blocks else "stored",
        outcome=gate.overall([c.outcome for c in cells]),
        integrity=list(wonders.values()),
        cells=cells,
        alpha=alpha,
        looks=looks,
        n_compared=len(estimates),
        sigma_launch_frac=noise.launch("output_tok_s") if noise else None,
        sigma_day_frac=noise.sigma_day_frac if noise else None,
        sigma_source=noise.source if noise else None,
        notes=[*document.notes, *([why_not] if why_not else []), *one_sided(estimates), *odd],
    )


def _keys(base: Arm, new: Arm) -> list[Key]:
    """Every level of either arm and every gating metric that it has; a metric that no cell has is not gated by."""
    together = by_level([*base.cells, *new.cells])
    return [
        Key(level, metric)
        for level, cells in together.items()
        for metric in GATING
        if any(getattr(c, metric) is not None for c in cells)
    ]


def _oriented_logs(cells: Sequence[Cell], metric: str) -> list[list[float]]:
    sign = gate.direction(metric)
    return [[sign * math.log(getattr(c, metric)) for c in runs] for runs in by_launch(cells).values()]


def _measured(case: Case, k: Key, limit: float, estimates: Mapping[Key, Estimate], found: Outcome) -> GateCell:
    e = estimates[k]
    low, high = sorted(gate.to_frac(k.metric, end) for end in e.interval(1 - case.alpha))
    seen = gate.to_frac(k.metric, -gate.could_see(e, gate.log_limit(k.metric, limit), case.alpha))
    outcome, reason = explained(k, found, estimates, limit, case.new[k.level])
    return msgspec.structs.replace(
        _cell(case, k, limit, outcome, reason),
        delta_frac=gate.to_frac(k.metric, e.theta),
        ci_frac=(low, high),
        could_see_frac=abs(seen),
    )


def _cell(case: Case, k: Key, limit_frac: float, outcome: Outcome, reason: str) -> GateCell:
    before, after = (_centre(side[k.level], k.metric, case.blocks) for side in (case.base, case.new))
    return GateCell(
        metric=k.metric,
        concurrency=k.level.concurrency,
        rate_req_s=k.level.rate_req_s,
        isl=k.level.isl,
        base=before,
        new=after,
        delta_frac=None,
        ci_frac=None,
        limit_frac=limit_frac,
        n=case.n(k.level),
        outcome=outcome,
        could_see_frac=None,
        reason=reason,
    )


def _centre(cells: Sequence[Cell], metric: str, blocks: Sequence[int]) -> float | None:
    """The geometric mean over launches, of which the change is the ratio."""
    used = [c for c in cells if not blocks or c.block in blocks]
    logs = [[math.log(v) for c in runs if (v := getattr(c, metric))] for runs in by_launch(used).values()]
    means = [fmean(runs) for runs in logs if runs]
    return math.exp(fmean(means)) if means else None
