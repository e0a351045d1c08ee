"""What bounds a change: the most that a lever, or a whole plan, can bring.

    profile        gain ≤ 1 / (1 − Σ shares of the touched components) − 1     all of them free, nothing else changed
    speculation    gain ≤ tokens a step, new / base − 1                        verifying more makes no step shorter

Only a breakdown of the base at the same concurrency (and ISL, where it tells one) bounds anything. A share given
as "<1 %" counts as 1 %, which keeps the bound above the truth; so does a share of kernel time, which exceeds the
share of the step. What is not attributed is said beside the bound: it may hide more of the touched components.
Where hardly anything is left that the lever is known not to touch, the quotient is the noise of that rest and no
bound. For levers that are speculation and nothing else the smaller of the two counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dsv4bench.compare import wording
from dsv4bench.compare.speculation import TokensAStep, more_tokens
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.limits import MAX_UNATTRIBUTED, Denominator, Share, amdahl, needed_frac
from dsv4bench.records.arm import Arm
from dsv4bench.records.shares import KernelShare
from dsv4bench.records.verdict import BoundSource

SLACK = 1e-9
MIN_UNTOUCHED = 0.05  # of the step, known not to be touched: with less of it a bound says nothing
# Metrics that the decode step decides; the others also hold prefill, queueing or the client.
RATES = frozenset({"output_tok_s", "output_tok_s_steady", "full_load_tok_s", "tok_s_per_user"})
TIMES = frozenset({"tpot_mean_s", "full_load_tpot_mean_s", "tpot_p50_s"})


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """At one coordinate: `gain_frac` of throughput at most, or None and `why` says what is missing.

    Beside a gain `why` says what it rests on, when that is no profile. `alone`: what each lever of a bundle brings at
    most, where its own components were told.
    """

    concurrency: int
    isl: int
    gain_frac: float | None
    source: BoundSource = "profile"
    alone: dict[str, float] = msgspec.field(default_factory=dict)
    unattributed_frac: float | None = None
    why: str = ""


def bound_of(bound: Bound | None, metric: str) -> tuple[float | None, str | None]:
    """(the most this metric can change, in its own sign; the same in words), nothing for metrics of other times."""
    if bound is None or not _bounds(bound, metric):
        return None, None
    falls = metric in TIMES
    most = None if bound.gain_frac is None else _signed(bound.gain_frac, falls)
    if most is None:
        parts = [f"no bound: {bound.why}"]
    else:
        parts = [f"at most {wording.percent(most)} at C={bound.concurrency}" + (bound.why and f": {bound.why}")]
    for lever, gain in bound.alone.items():
        parts.append(f"{lever} at most {wording.percent(_signed(gain, falls))}")
    if most is not None and (unattributed := _whole_percent(bound.unattributed_frac or 0.0)):
        parts.append(f"{unattributed} unattributed")
    return most, "; ".join(parts)


def _bounds(bound: Bound, metric: str) -> bool:
    """Whether it holds for this metric: a smaller decode batch shortens TPOT beyond what tokens a step allow."""
    return metric in RATES or (metric in TIMES and bound.source != "speculation")


def beyond_of(bound: Bound | None, metric: str) -> float | None:
    """What only a wrong share or measurement can exceed: all that is not attributed counted as touched, too."""
    if bound is None or bound.gain_frac is None or not _bounds(bound, metric):
        return None
    left = 1 / (1 + bound.gain_frac) - (bound.unattributed_frac or 0.0)  # of the step
    return _signed(1 / left - 1, metric in TIMES) if left > SLACK else None


def _signed(gain: float, falls: bool) -> float:
    """A gain of throughput as a change of the metric: a time falls by what the rate gains."""
    return -gain / (1 + gain) if falls else gain


def _whole_percent(frac: float) -> str:
    """`7 %`; nothing where it rounds to zero."""
    return "" if round(100 * frac) == 0 else f"{100 * frac:.0f} %"


def lever_bounds(
    base: Arm, new: Arm, shares: Sequence[KernelShare], alone: Mapping[str, Arm] | None = None
) -> dict[tuple[int, int], Bound]:
    """For each closed-loop coordinate of the base: what `new`'s levers can bring together, and each alone.

    `alone` holds, for a bundle, the configurations that carry one of its levers each: they tell its components.
    """
    touches = {lever: new.touches.get(lever, []) for lever in new.levers}
    own = {lever: arm.touches.get(lever, []) for lever, arm in (alone or {}).items()} or touches
    tokens = more_tokens(base, new)
    places = sorted({(c.concurrency, c.isl) for c in base.cells if c.concurrency is not None})
    return {
        (c, isl): _smaller(_profiled(base.name, new.name, touches, own, shares, c, isl), tokens.get((c, isl)))
        for c, isl in places
    }


def _smaller(profiled: Bound, tokens: TokensAStep | None) -> Bound:
    """The profile's bound, or that of speculation where it is the smaller or the only one."""
    if tokens is None:
        return profiled
    gain = tokens.new / tokens.base - 1
    if profiled.gain_frac is not None and profiled.gain_frac <= gain:
        return profiled
    against = "" if tokens.base == 1 else f" for {tokens.base:.2f}"
    return Bound(
        concurrency=profiled.concurrency,
        isl=profiled.isl,
        gain_frac=gain,
        source="speculation",
        why=f"{tokens.new:.2f}{against} tokens a step, the step no shorter",
    )


def _profiled(
    config: str,
    new: str,
    touches: Mapping[str, Sequence[str]],
    own: Mapping[str, Sequence[str]],
    shares: Sequence[KernelShare],
    concurrency: int,
    isl: int,
) -> Bound:
    def none(why: str, alone: dict[str, float] | None = None) -> Bound:
        return Bound(concurrency=concurrency, isl=isl, gain_frac=None, why=why, alone=alone or {})

    silent = [lever for lever, components in touches.items() if not components]
    if silent or not touches:
        return none(f"{', '.join(silent) or new} does not say which components it touches")
    there = shares_at(shares, config, concurrency, isl)
    if not there:
        return none(f"profile C={concurrency}")
    try:
        unattributed = unattributed_frac(there)
        joint = _touched(there, [c for components in touches.values() for c in components])
    except Unanswerable as e:
        return none(f"{e.message} at C={concurrency}")
    known = {s.component for s in there}
    parts = {lever: _touched(there, components) for lever, components in own.items() if known.issuperset(components)}
    told = {
        lever: _gain(part)
        for lever, part in parts.items()
        if len(touches) > 1 and 0 < part.share_frac < joint.share_frac - SLACK  # else the joint bound says it
    }
    if 1 - joint.share_frac - unattributed < MIN_UNTOUCHED - SLACK:
        verb = "touches" if len(touches) == 1 else "touch"
        rest = _whole_percent(unattributed)
        beside = f", {rest} is unattributed" if rest else ""
        return none(f"{', '.join(touches)} {verb} {wording.size(joint.share_frac)} of the step{beside}", told)
    return Bound(concurrency=concurrency, isl=isl, gain_frac=_gain(joint), alone=told, unattributed_frac=unattributed)


def shares_at(shares: Iterable[KernelShare], config: str, concurrency: int, isl: int | None) -> list[KernelShare]:
    """The breakdown of this configuration here: of this ISL, or else one that does not tell its ISL."""
    here = [s for s in shares if s.config == config and s.concurrency == concurrency]
    exact = [s for s in here if isl is not None and s.isl == isl]
    return exact or [s for s in here if s.isl is None or isl is None]


def unattributed_frac(shares: Sequence[KernelShare]) -> float:
    """What no kernel of the breakdown accounts for ("<1 %" counts as 1 %).

    Raises Unanswerable for shares that are unsound: outside 0..1, of several denominators, above 1 in sum.
    """
    if bad := [s for s in shares if not 0 <= s.share_frac <= 1]:
        raise Unanswerable(f"share of {bad[0].kernel} is {bad[0].share_frac}", "a share lies between 0 and 1")
    if len({s.of for s in shares}) > 1:
        raise Unanswerable("shares of different denominators", "take all from one breakdown")
    total = sum(s.share_frac for s in shares)
    if total > 1 + SLACK:
        raise Unanswerable(f"shares sum to {100 * total:.0f} %", "do the kernels overlap, or are two traces mixed?")
    return max(0.0, 1 - total)


def _gain(part: Share) -> float:
    return amdahl([part]) - 1


def _touched(shares: Sequence[KernelShare], components: Iterable[str]) -> Share:
    """The part of the step that these components are. Raises Unanswerable where one has no share."""
    touched = set(components)
    missing = touched - {s.component for s in shares}
    if missing:
        raise Unanswerable(f"no share of {', '.join(sorted(missing))} in the profile")
    part = sum(s.share_frac for s in shares if s.component in touched)
    return Share(name="+".join(sorted(touched)), share_frac=min(part, 1.0), of=_denominator(shares))


def _denominator(shares: Sequence[KernelShare]) -> Denominator:
    """An untold denominator is taken as the sum of kernel time, the one that gives the larger share."""
    of = shares[0].of
    return "sum" if of == "unknown" else of


class PlanCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """The joint ceiling of a plan. `needed_frac`: how much of the step must vanish before the target is met."""

    config: str
    concurrency: int
    isl: int | None
    speedups: dict[str, float | None]  # kernel or component -> how much faster; None: free
    share_frac: float
    unattributed_frac: float
    speedup: float
    measured_tok_s: float
    ceiling_tok_s: float
    target_tok_s: float | None = None
    needed_frac: float | None = None
    reaches: bool | None = None
    text: str


def plan_ceiling(
    shares: Sequence[KernelShare],
    *,
    config: str,
    concurrency: int,
    isl: int | None,
    speedups: Mapping[str, float | None],
    measured_tok_s: float,
    target_tok_s: float | None = None,
) -> PlanCeiling:
    """What a plan brings at most when each named kernel or component becomes so much faster (None: free).

    Raises Unanswerable when there is no breakdown here, or more than 15 % of it is unattributed; UsageError for a
    name that the breakdown does not hold.
    """
    there = shares_at(shares, config, concurrency, isl)
    if not there:
        raise Unanswerable(f"no kernel breakdown of {config} at C={concurrency}", f"profile C={concurrency}")
    for figure in (measured_tok_s, target_tok_s):
        if figure is not None and not 0 < figure < math.inf:
            raise UsageError(f"{figure} tok/s", "give a throughput above 0")
    unattributed = unattributed_frac(there)
    if not unattributed <= MAX_UNATTRIBUTED + SLACK:
        raise Unanswerable(
            f"{100 * unattributed:.0f} % of the step at C={concurrency} is unattributed: no plan stands on the rest",
            "profile again until at most 15 % is; rules for the unknown kernels may be missing",
        )
    freed = [_planned(there, name, faster) for name, faster in speedups.items()]
    if len({s.kernel for _, ks in freed for s in ks}) < sum(len(ks) for _, ks in freed):
        raise UsageError(f"a kernel is in the plan twice: {', '.join(speedups)}", "name its component or the kernel")
    speedup = amdahl([share for share, _ in freed])
    ceiling = measured_tok_s * speedup
    share = sum(s.share_frac for s, _ in freed)
    needed = None if target_tok_s is None else needed_frac(measured_tok_s, target_tok_s)
    return PlanCeiling(
        config=config,
        concurrency=concurrency,
        isl=isl,
        speedups=dict(speedups),
        share_frac=share,
        unattributed_frac=unattributed,
        speedup=speedup,
        measured_tok_s=measured_tok_s,
        ceiling_tok_s=ceiling,
        target_tok_s=target_tok_s,
        needed_frac=needed,
        reaches=None if target_tok_s is None else ceiling >= target_tok_s,
        text=_plan_text(speedups, share, unattributed, speedup, ceiling, target_tok_s, needed),
    )


def _planned(shares: Sequence[KernelShare], name: str, faster: float | None) -> tuple[Share, list[KernelShare]]:
    own = [s for s in shares if name in (s.kernel, s.component)]
    if not own:
        known = sorted({s.component for s in shares} | {s.kernel for s in shares})
        raise UsageError(f"no {name} in the breakdown", f"it holds {', '.join(known)}")
    part = sum(s.share_frac for s in own)
    speedup = math.inf if faster is None else faster
    return Share(name=name, share_frac=part, of=_denominator(shares), speedup=speedup), own


def _plan_text(
    speedups: Mapping[str, float | None],
    share: float,
    unattributed: float,
    speedup: float,
    ceiling: float,
    target: float | None,
    needed: float | None,
) -> str:
    what = ", ".join(name if k is None else f"{name} x{k:g}" for name, k in speedups.items())
    free = " free" if all(k is None for k in speedups.values()) else ""
    text = f"{what}{free} ({100 * share:.0f} % of the step): at most x{speedup:.3g}, {ceiling:.0f} tok/s"
    if unattributed > SLACK:
        text += f"; {100 * unattributed:.0f} % unattributed"
    if target is not None and needed is not None:
        reach = "is within it" if ceiling >= target else f"needs {100 * needed:.1f} % of the step to vanish"
        text += f"; the target of {target:.0f} tok/s {reach}"
    return text
