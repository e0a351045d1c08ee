"""How far a plan can lead at most, item by item: the joint ceilings of `bounds.plan_ceiling` beside the target.

Percentages are never added, and a plan that the breakdown cannot carry (no shares at the target's concurrency, a
component without a share, more than 15 % unattributed) gets no ceiling but the reason. The roofline stands beside it
where the scaling report has one: what no plan on this GPU can pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsv4bench.compare.bounds import PlanCeiling, plan_ceiling, shares_at, unattributed_frac
from dsv4bench.compare.figures import figure
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.goal import Goal, GoalReport, PlanItem, PlanReach
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.records.verdict import ScalingReport


def reach(
    goal: Goal, arms: Sequence[Arm], shares: SharesDocument | None, scaling: ScalingReport | None = None
) -> GoalReport:
    """The plan's ceilings; where they cannot be told, `why` says what is missing."""
    now = figure(arms, goal.config, "output_tok_s", goal.concurrency)
    there = shares_at(shares.shares, goal.config, goal.concurrency, None) if shares is not None else []
    items, why, left = list[PlanReach](), "", None
    if now is None:
        why = f"no throughput of {goal.config} at C={goal.concurrency} was measured"
    elif not goal.plan:
        why = "no plan is given" if there else f"no plan: profile {goal.config} at C={goal.concurrency}"
    else:
        try:
            left = unattributed_frac(there) if there else None
            items = _items(goal, now.value, there)
        except (Unanswerable, UsageError) as e:
            why = e.message
    last = items[-1].joint_tok_s if items else None
    roof, note = _roofline(goal, scaling)
    return GoalReport(
        config=goal.config,
        concurrency=goal.concurrency,
        target_tok_s=goal.output_tok_s,
        measured_tok_s=now.value if now else None,
        step_s=goal.concurrency / now.value if now else None,
        needed_ratio=goal.output_tok_s / now.value if now else None,
        needed_cut_frac=1 - now.value / goal.output_tok_s if now else None,
        unattributed_frac=left,
        of=there[0].of if there else None,
        items=items,
        reached=(last is None or last >= goal.output_tok_s) if items else None,
        why=why,
        roofline_tok_s=roof,
        roofline_note=note,
    )


def _roofline(goal: Goal, scaling: ScalingReport | None) -> tuple[float | None, str]:
    """(tok/s, of what); without one, why. Of several prompt lengths the lowest counts."""
    laws = [law for law in scaling.laws if law.config == goal.config] if scaling is not None else []
    known = [(roof, law) for law in laws if (roof := law.roofline_tok_s.get(str(goal.concurrency))) is not None]
    roof, told = min(known, key=lambda k: k[0]) if known else (None, laws[0] if laws else None)
    notes = [] if told is None else [n for n in told.notes if n.startswith(("roofline:", "no roofline:"))]
    return roof, notes[0].partition(": ")[2] if notes else ""


def _items(goal: Goal, now: float, there: list[KernelShare]) -> list[PlanReach]:
    found, done = [], list[PlanItem]()
    for item in goal.plan:
        done.append(item)
        alone, joint = _ceiling([item], goal, now, there), _ceiling(done, goal, now, there)
        found.append(
            PlanReach(
                name=item.name,
                components=item.components,
                share_frac=alone.share_frac,
                kernel_speedup=item.kernel_speedup,
                effort=item.effort,
                alone_ratio=_finite(alone.speedup),
                alone_tok_s=_finite(alone.ceiling_tok_s),
                joint_ratio=_finite(joint.speedup),
                joint_tok_s=_finite(joint.ceiling_tok_s),
            )
        )
    return found


def _ceiling(items: Sequence[PlanItem], goal: Goal, now: float, there: list[KernelShare]) -> PlanCeiling:
    """Where two items touch one component, the later one counts: it is made of what the earlier one left."""
    return plan_ceiling(
        there,
        config=goal.config,
        concurrency=goal.concurrency,
        isl=None,
        speedups={c: item.kernel_speedup for item in items for c in item.components},
        measured_tok_s=now,
        target_tok_s=goal.output_tok_s,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
