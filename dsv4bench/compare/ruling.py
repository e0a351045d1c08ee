"""From effects to verdicts: the rules, once the family of tests is known.

    GAIN, LOSS     the interval excludes 0, so does Holm over the family, and |Δ| ≥ δ
    NO EFFECT      the 90 % interval lies inside ±δ and the 95 % one holds 0      TRIVIAL   … and does not hold 0
    CONTRADICTION  even the interval's lower end exceeds the bound, all that is not attributed counted as touched
    UNRESOLVED     anything else, with the smallest effect that could have been seen

Tests are positive (`low > -δ`), so that not-a-number proves nothing. "No effect" is never corrected for multiplicity:
all of its cells must pass. One launch each on a rig that was never calibrated carries no claim below 8 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dsv4bench.compare import wording
from dsv4bench.compare.grading import LAUNCHES, Effect
from dsv4bench.compare.statistics import Estimate, equivalent, holm, pairs_needed
from dsv4bench.metrics import Metric
from dsv4bench.records.verdict import CellVerdict, Verdict

ASSUMED_LEAST = (
    0.08  # where a launch deviation of up to 2.5 %, not the assumed 1.5 %, still deceives in 3 % of cells only
)


@dataclass(slots=True)
class Open:
    """A cell that awaits its family: everything but the verdict is known.

    `assumed`: E1 without a calibration. `beyond`: what contradicts the bound's premises when it is exceeded.
    """

    cell: CellVerdict
    effect: Effect
    estimate: Estimate
    metric: Metric
    limit: float
    assumed: bool
    notes: list[str]
    beyond: float | None = None


def judge_family(cells: Sequence[Open], alpha: float) -> None:
    """Gives each cell its verdict, gains and losses corrected over all of them."""
    p_values = [c.estimate.p_value() for c in cells]
    rejected = holm(p_values, alpha)
    for i, c in enumerate(cells):
        doubt = "" if i in rejected else f"not significant after Holm over {len(cells)} cells (p = {p_values[i]:.3f})"
        c.cell = _judged(c, doubt, alpha)


def _judged(c: Open, doubt: str, alpha: float) -> CellVerdict:
    ci, inner = c.effect.interval(1 - alpha), c.effect.interval(1 - 2 * alpha)
    verdict = _rule(c, not doubt, ci, inner)
    mde = c.effect.fraction(c.estimate.detectable(alpha))
    pairs = None
    if verdict is Verdict.UNRESOLVED:
        pairs = pairs_needed(c.estimate.pair_sd, c.effect.effect_of(c.limit), alpha)
        pairs = None if pairs is None else max(pairs, LAUNCHES)
        text = wording.unresolved(c.effect, mde, pairs)
        if doubt and _apart(ci):
            text += f"; {doubt}"
    elif verdict is Verdict.CONTRADICTION:
        text = wording.contradiction(c.cell.bound_source)
    else:
        text = wording.claim(verdict, c.effect, c.limit)
    notes = list(c.notes)
    if c.assumed:
        least = f", so no claim below {wording.size(ASSUMED_LEAST)}: run `dsv4bench calibrate`"
        notes.append("launch variance assumed" + (least if verdict is Verdict.UNRESOLVED else ", not calibrated"))
    return msgspec.structs.replace(
        c.cell,
        ci_frac=ci,
        verdict=verdict,
        mde_frac=mde if math.isfinite(mde) else None,
        pairs_needed=pairs,
        reason="; ".join(filter(None, [text, *notes])),
    )


def _rule(c: Open, significant: bool, ci: tuple[float, float], inner: tuple[float, float]) -> Verdict:
    size = abs(c.effect.delta or 0.0)
    least = ASSUMED_LEAST if c.assumed else 0.0
    if _contradicts(ci, c.beyond, c.metric) and size >= least:
        return Verdict.CONTRADICTION
    if significant and _apart(ci) and size >= max(c.limit, least):
        return Verdict.GAIN if c.cell.better else Verdict.LOSS
    if equivalent(inner, -c.limit, c.limit) and c.limit >= least:
        return Verdict.TRIVIAL if _apart(ci) else Verdict.NO_EFFECT
    return Verdict.UNRESOLVED


def _apart(ci: tuple[float, float]) -> bool:
    return ci[0] > 0 or ci[1] < 0


def _contradicts(ci: tuple[float, float], bound: float | None, metric: Metric) -> bool:
    if bound is None:
        return False
    return ci[0] > bound if metric.direction == "higher" else ci[1] < bound
