"""What would be worth changing, and how far it can lead: joint Amdahl over one decode step, never a sum of gains.

    alone ≤ 1 / (1 − s)      at k: 1 / (1 − s + s / k)      together ≤ 1 / (1 − Σ s − overlap)

s is the time in which only this component ran, over the span of the step, at this concurrency. Overlap counts as
gone as soon as two targets are free, which keeps the ceiling above the truth. Targets are ranked by what they can
gain here; below 2 % of a step a component is no target. Where the data cannot carry a plan it is refused, with the
reason and what to do; that is a warning, the breakdown stands. Nothing here is a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from dsv4bench.attribution.binding import LAUNCHES, UNKNOWN, Binding, KernelFacts, Roof, bind
from dsv4bench.errors import Unanswerable
from dsv4bench.limits import MAX_UNATTRIBUTED, ROUNDING, Denominator, Share, amdahl, needed_frac, unattributed_frac
from dsv4bench.records.breakdown import Plan, PlanStep, Steps
from dsv4bench.records.shares import KernelShare

MIN_TARGET = 0.02
MIN_STEPS = 10
MAX_INFLATION = 1.15
OTHER, IDLE, COPY = "other", "idle", "copy"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One component that could be changed."""

    component: str
    share_frac: float
    speedup: float | None = None
    source: str | None = None
    binds: str = UNKNOWN
    reason: str = ""

    @property
    def alone(self) -> float:
        """What it can bring at most: at its k where that is known, else made free."""
        return amdahl([Share(name=self.component, share_frac=self.share_frac, of="span", speedup=self.k)])

    @property
    def k(self) -> float:
        return math.inf if self.speedup is None else self.speedup


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the plan: where it is measured, where the user wants to arrive, how the trace was taken."""

    concurrency: int | None = None
    measured_tok_s: float | None = None
    target_tok_s: float | None = None
    inflation_ratio: float | None = None  # step under the profiler over step without


def plan_of_steps(
    steps: Steps,
    aim: Aim,
    *,
    facts: Mapping[str, KernelFacts] | None = None,
    roofs: Mapping[str, Roof] | None = None,
    measured_k: Mapping[str, float] | None = None,
) -> Plan:
    """The plan of one label's decode steps. `facts`, `roofs` and `measured_k` are by component."""
    shares = step_shares(steps)
    other = shares.pop(OTHER, 0.0)
    overlap = _overlap(steps, other + sum(shares.values()))
    head = Plan(label=steps.label, unattributed_frac=other if steps.median_ns else None)
    refusals = [*_too_few(steps), *_unattributed(other, "rules for these kernels can be given with --rules FILE")]
    if refusals := [*refusals, *_inflated(aim)]:
        return _beside(head, aim, refusals=refusals)
    known = facts or {}
    targets = []
    for component, share in shares.items():
        if share < MIN_TARGET:
            continue
        found = _no_kernel(steps, component)
        if found is None:
            fact = known.get(component) or _facts(steps, component)
            found = bind(fact, (roofs or {}).get(component), (measured_k or {}).get(component))
        targets.append(
            Target(
                component=component,
                share_frac=share,
                speedup=found.speedup,
                source=found.source,
                binds=found.binds,
                reason=found.reason,
            )
        )
    head = msgspec.structs.replace(head, roofline_tok_s=_roofline(steps, aim, roofs or {}))
    return _beside(_ranked(head, targets, overlap, aim), aim, notes=_small(shares))


def plan_of_shares(shares: Sequence[KernelShare], aim: Aim, measured_k: Mapping[str, float] | None = None) -> Plan:
    """The plan of one coordinate's shares, such as a text publishes. What they do not name is unattributed.

    Raises Unanswerable for shares of several denominators, outside 0 to 1, or above 1 in sum.
    """
    by_component: dict[str, float] = {}
    for s in shares:
        by_component[s.component] = by_component.get(s.component, 0.0) + s.share_frac
    other = by_component.pop(OTHER, 0.0)
    of = sorted({s.of for s in shares})
    if len(of) > 1:
        raise Unanswerable(f"shares of different denominators: {', '.join(of)}", "take all from one breakdown")
    taken: Denominator = "sum" if of == ["unknown"] or not of else of[0]  # type: ignore[assignment]
    unattributed = other + unattributed_frac(
        [Share(name=c, share_frac=s, of=taken) for c, s in [*by_component.items(), (OTHER, other)]]
    )
    head = Plan(unattributed_frac=unattributed, of=of[0] if of else "unknown")
    if refusals := [*_unattributed(unattributed, "the rest must be profiled"), *_inflated(aim)]:
        return _beside(head, aim, refusals=refusals)
    targets = [
        Target(
            component=c,
            share_frac=s,
            speedup=(measured_k or {}).get(c),
            source=f"measured kernel x{measured_k[c]:g}" if measured_k and c in measured_k else None,
            reason="a share alone does not tell what binds",
        )
        for c, s in by_component.items()
        if s >= MIN_TARGET
    ]
    notes = _small(by_component)
    if head.of != "span":
        notes.append(f"the shares are of {_OF[head.of]}, so every ceiling is too high where a step also idles")
    return _beside(_ranked(head, targets, 0.0, aim), aim, notes=notes)


_OF = {"busy": "busy time", "sum": "the sum of kernel times", "unknown": "a time that is not told"}


def step_shares(steps: Steps) -> dict[str, float]:
    """Exclusive share of the step's span by component, idle among them; empty where no step was found."""
    if not steps.median_ns:
        return {}
    found = {}
    for c in steps.components:
        if c.share_of_step_frac is not None:
            found[c.component] = c.share_of_step_frac
        elif c.exclusive_median_ns is not None:
            found[c.component] = c.exclusive_median_ns / steps.median_ns
    for name, time_ns in ((IDLE, steps.idle_median_ns), (COPY, steps.copy_only_median_ns)):
        if time_ns and name not in found:
            found[name] = time_ns / steps.median_ns
    total = sum(found.values())  # medians of parts may exceed the median of the whole by a little
    return {c: s / total for c, s in found.items()} if total > 1 else found


def _overlap(steps: Steps, apart: float) -> float:
    """Where several components ran at once; the medians of parts leave no more room than the step has."""
    told = steps.overlap_median_ns
    free = max(0.0, 1 - apart)
    return free if told is None or not steps.median_ns else min(free, told / steps.median_ns)


def _ranked(head: Plan, targets: Sequence[Target], overlap: float, aim: Aim) -> Plan:
    """Targets by gain, each with the joint ceiling of all up to it."""
    order = sorted(targets, key=lambda t: (-t.alone, t.component))
    rows = []
    for i, t in enumerate(order):
        free = _joint(order[: i + 1], overlap, at_k=False)
        with_k = [x for x in order[: i + 1] if x.speedup is not None]
        at_k = _joint(with_k, overlap, at_k=True) if with_k else None
        alone = Share(name=t.component, share_frac=t.share_frac, of="span")
        rows.append(
            PlanStep(
                component=t.component,
                share_of_step_frac=t.share_frac,
                bound_ratio=_finite(amdahl([alone])),
                speedup=t.speedup,
                speedup_source=t.source,
                target_ratio=None if t.speedup is None else _finite(t.alone),
                joint_ratio=_finite(free),
                joint_tok_s=_tok_s(free, aim),
                joint_at_k_ratio=None if at_k is None else _finite(at_k),
                binds=t.binds,
                reason=t.reason,
            )
        )
    last = rows[-1] if rows else None
    return msgspec.structs.replace(
        head,
        steps=rows,
        ceiling_ratio=None if last is None else last.joint_ratio,
        ceiling_tok_s=None if last is None else last.joint_tok_s,
        at_k_ratio=None if last is None else last.joint_at_k_ratio,
        at_k_tok_s=None if last is None or last.joint_at_k_ratio is None else _tok_s(last.joint_at_k_ratio, aim),
    )


def _roofline(steps: Steps, aim: Aim, roofs: Mapping[str, Roof]) -> float | None:
    """What the GPU allows: C over the least time of all components. None under speculation, where it would be low."""
    least_s = sum(r.line.time_s for r in roofs.values())
    if aim.concurrency is None or aim.measured_tok_s is None or not least_s > 0 or not steps.median_ns:
        return None
    tokens_a_step = aim.measured_tok_s * steps.median_ns / 1e9 / aim.concurrency
    return None if tokens_a_step > MAX_INFLATION else aim.concurrency / least_s


def _joint(targets: Sequence[Target], overlap: float, *, at_k: bool) -> float:
    shares = [
        Share(name=t.component, share_frac=t.share_frac, of="span", speedup=t.k if at_k else math.inf)
        for t in targets
    ]
    if overlap > ROUNDING and len(targets) > 1:
        # both of a pair must run: the slower one of the two fastest keeps this above the truth
        pair = sorted(t.k for t in targets)[-2] if at_k else math.inf
        shares.append(Share(name="overlap", share_frac=overlap, of="span", speedup=pair))
    return amdahl(shares)


def _beside(plan: Plan, aim: Aim, *, refusals: Sequence[str] = (), notes: Sequence[str] = ()) -> Plan:
    """The plan with the user's figures, and how much of the step the target asks for."""
    needed = None
    if aim.measured_tok_s is not None and aim.target_tok_s is not None:
        needed = needed_frac(aim.measured_tok_s, aim.target_tok_s)
    return msgspec.structs.replace(
        plan,
        concurrency=aim.concurrency,
        measured_tok_s=aim.measured_tok_s,
        target_tok_s=aim.target_tok_s,
        needed_frac=needed,
        refusals=list(refusals),
        notes=list(notes),
    )


def _no_kernel(steps: Steps, component: str) -> Binding | None:
    """Of the time in which no kernel runs."""
    if component == COPY and all(c.component != COPY for c in steps.components):
        return Binding(None, None, UNKNOWN, "only copies run: overlap them with kernels, or leave them out")
    if component != IDLE:
        return None
    counts = ((steps.launches, "kernels"), (steps.graph_launches, "graph launches"))
    launched = [f"{n:.0f} {what}" for n, what in counts if n]
    tail = f" ({' in '.join(launched)} a step)" if launched else ""
    return Binding(None, None, LAUNCHES, f"nothing runs: the host, or gaps between kernels{tail}")


def _facts(steps: Steps, component: str) -> KernelFacts:
    own = next(c for c in steps.components if c.component == component)
    return KernelFacts(time_ns=own.median_ns, launches=own.launches)


def _too_few(steps: Steps) -> list[str]:
    if not steps.count:
        return ["no decode step was found: no share of a step, and no plan; trace a window of decode alone"]
    if steps.count < MIN_STEPS:
        return [f"{steps.count} decode steps, a plan needs {MIN_STEPS}: trace longer"]
    if not steps.components or not steps.median_ns:
        return ["the steps are timed, not broken down: trace again with --cuda-graph-trace=node"]
    return []


def _unattributed(frac: float, remedy: str) -> list[str]:
    if frac <= MAX_UNATTRIBUTED + ROUNDING:
        return []
    limit = f"limit {100 * MAX_UNATTRIBUTED:.0f} %"
    return [f"{100 * frac:.0f} % of the step is unattributed ({limit}): no plan stands on the rest; {remedy}"]


def _inflated(aim: Aim) -> list[str]:
    ratio = aim.inflation_ratio
    if ratio is None or 1 / MAX_INFLATION <= ratio <= MAX_INFLATION:
        return []
    if ratio > 1:
        return [
            f"the profiler stretched the step x{ratio:.3g} (limit x{MAX_INFLATION}): shares lean towards short "
            "kernels; trace GPU activities only, without stacks"
        ]
    return [f"the traced step lasts x{ratio:.3g} of the measured one: it is another load, or no whole step"]


def _small(shares: Mapping[str, float]) -> list[str]:
    left = {c: s for c, s in shares.items() if 0 < s < MIN_TARGET}
    if not left:
        return []
    names = ", ".join(f"{c} {100 * s:.1f} %" for c, s in sorted(left.items(), key=lambda i: -i[1]))
    return [f"no target, below {100 * MIN_TARGET:.0f} % of the step: {names}"]


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def _tok_s(ratio: float, aim: Aim) -> float | None:
    return None if aim.measured_tok_s is None or not math.isfinite(ratio) else ratio * aim.measured_tok_s
