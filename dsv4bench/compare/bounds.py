"""What a kernel breakdown allows: the most that a lever, or a whole plan, can bring.

    gain ≤ 1 / (1 − Σ shares of the touched components) − 1         all of them made free, nothing else changed

Only a breakdown of the base at the same concurrency (and ISL, where it tells one) bounds anything. A share given
as "<1 %" counts as 1 %, which keeps the bound above the truth; so does a share of kernel time, which exceeds the
share of the step. What is not attributed is said beside the bound: it may hide more of the touched components.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.limits import MAX_UNATTRIBUTED, Denominator, Share, amdahl, needed_frac
from dsv4bench.records.arm import Arm
from dsv4bench.records.shares import KernelShare

SLACK = 1e-9
# Metrics that the decode step decides; the others also hold prefill, queueing or the client.
RATES = frozenset({"output_tok_s", "output_tok_s_steady", "tok_s_per_user"})
TIMES = frozenset({"tpot_mean_s", "tpot_p50_s"})


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """At one coordinate: `gain_frac` of throughput at most, or None and the note says what is missing."""

    concurrency: int
    isl: int
    gain_frac: float | None
    unattributed_frac: float | None = None
    note: str


def bound_of(bound: Bound | None, metric: str) -> tuple[float | None, str | None]:
    """(the most this metric can change, in its own sign; the note), nothing for metrics the step does not decide."""
    if bound is None or metric not in RATES | TIMES:
        return None, None
    if bound.gain_frac is None or metric in RATES:
        return bound.gain_frac, bound.note
    return -bound.gain_frac / (1 + bound.gain_frac), bound.note


def lever_bounds(base: Arm, new: Arm, shares: Sequence[KernelShare]) -> dict[tuple[int, int], Bound]:
    """For each closed-loop coordinate of the base: what `new`'s levers can bring together, and each alone."""
    places = sorted({(c.concurrency, c.isl) for c in base.cells if c.concurrency is not None})
    return {at: _bound(base.name, new, shares, *at) for at in places}


def _bound(config: str, new: Arm, shares: Sequence[KernelShare], concurrency: int, isl: int) -> Bound:
    def none(note: str) -> Bound:
        return Bound(concurrency=concurrency, isl=isl, gain_frac=None, note=f"no bound: {note}")

    silent = [lever for lever in new.levers if not new.touches.get(lever)]
    if silent or not new.levers:
        return none(f"{', '.join(silent) or new.name} does not say which components it touches")
    there = shares_at(shares, config, concurrency, isl)
    if not there:
        return none(f"profile C={concurrency}")
    try:
        unattributed = unattributed_frac(there)
        gains = {lever: _gain(there, new.touches[lever]) for lever in new.levers}
        joint = _gain(there, [c for lever in new.levers for c in new.touches[lever]])
    except Unanswerable as e:
        return none(f"{e.message} at C={concurrency}")
    parts = [f"{lever} at most +{100 * gain:.1f} %" for lever, gain in gains.items()] if len(gains) > 1 else []
    parts.insert(
        0, f"at most +{100 * joint:.1f} % at C={concurrency}" if math.isfinite(joint) else "no limit: all is touched"
    )
    parts.append(f"{100 * unattributed:.0f} % unattributed" if unattributed > SLACK else "")
    return Bound(
        concurrency=concurrency,
        isl=isl,
        gain_frac=joint if math.isfinite(joint) else None,
        unattributed_frac=unattributed,
        note="; ".join(filter(None, parts)),
    )


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


def _gain(shares: Sequence[KernelShare], components: Iterable[str]) -> float:
    touched = set(components)
    missing = touched - {s.component for s in shares}
    if missing:
        raise Unanswerable(f"no share of {', '.join(sorted(missing))} in the profile")
    return amdahl([_joint(shares, touched)]) - 1


def _joint(shares: Sequence[KernelShare], components: set[str]) -> Share:
    part = sum(s.share_frac for s in shares if s.component in components)
    return Share(name="+".join(sorted(components)), share_frac=min(part, 1.0), of=_denominator(shares))


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
