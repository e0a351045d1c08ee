"""Speculative decoding taken apart: tokens a step, and what a step costs.

    X_new / X_base = (AL_new / AL_base) · (steps/s ratio)        step inflation = (AL ratio) / (X ratio)

Throughput holds prefill, so this is the time a step with its share of prefill and waiting; beside it stands the step
by TPOT, AL ratio · TPOT ratio, where both sides have one: what is between them is no verifier's. It pays when more
tokens a step outweigh the longer step; the verifier is saturated where a step grows by 0.95 of the acceptance length
or more; below an acceptance length of 1.2 the drafts are at fault. Without a recorded acceptance length the cause is
not measured, and no cause is named.

Verifying more positions makes no step shorter, so the AL ratio bounds what speculation can bring: of a lever that is
nothing else, and where more positions are verified than the base's.
"""

from __future__ import annotations

import re
from statistics import fmean
from typing import NamedTuple

from dsv4bench.compare.comparable import Realised, comparable_at, realised
from dsv4bench.compare.levers import differing_settings
from dsv4bench.compare.samples import Column, Coordinate, aligned, columns, order
from dsv4bench.compare.spec_law import verified_tokens
from dsv4bench.records.arm import Arm
from dsv4bench.records.verdict import SpecState, SpecVerdict

ACCEPT_LEAST = 1.2
SATURATED = 0.95
METRIC, TPOT = "output_tok_s", "tpot_p50_s"
WORDS = re.compile(r"(^|[._+ -])(spec|speculative|mtp|eagle\d*|draft|ngram|nextn|medusa)([._+ -]|$)", re.IGNORECASE)
OFF = {None, False, "", "none", "null", "off", "false"}


def speculates(arm: Arm) -> bool:
    """Whether an arm shows speculative decoding: an acceptance length, a lever's name, or a setting that is on."""
    return any(c.accept_length is not None for c in arm.cells) or _turned_on(arm)


def _turned_on(arm: Arm) -> bool:
    """By a lever's name or a setting; what the cells show aside."""
    if any(WORDS.search(lever) for lever in arm.levers):
        return True
    settings = arm.server or {}
    return any(WORDS.search(k) and (v.lower() if isinstance(v, str) else v) not in OFF for k, v in settings.items())


class TokensAStep(NamedTuple):
    """Acceptance lengths of both sides at one coordinate; 1 for a side that shows no speculation."""

    base: float
    new: float


def more_tokens(base: Arm, new: Arm) -> dict[tuple[int, int], TokensAStep]:
    """By (concurrency, ISL) of the base: where the AL ratio bounds the gain of `new`'s levers; closed loops only.

    Empty where a lever is more than speculation, or where the base speculates and is not known to verify fewer
    positions: then the step may be shorter, too.
    """
    if not _only_speculation(base, new):
        return {}
    sides = [realised(c for c in arm.cells if "accept_length" not in c.approximate) for arm in (base, new)]
    untold, found = _tokens_untold(base), {}
    for there, at in aligned(list(sides[0]), list(sides[1])).items():
        if at.concurrency is None or at not in sides[0]:
            continue
        told, al_new = sides[0][at].accept_length, sides[1][there].accept_length
        al_base = untold if told is None else told
        if al_base is not None and al_new is not None and _verifies_more(base, new, al_base) and al_new >= 1:
            found[at.concurrency, at.isl] = TokensAStep(al_base, al_new)
    return found


def _tokens_untold(base: Arm) -> float | None:
    """Tokens a step where no acceptance length is told: 1 of a configuration that shows no speculation."""
    return None if speculates(base) else 1.0


def _only_speculation(base: Arm, new: Arm) -> bool:
    """Whether every lever is speculation by its declared keys, else by its name, and no other setting differs.

    A lone lever of another name without declared keys is one where only settings of speculation differ.
    """
    differing, _ = differing_settings(base, new)
    if not new.levers or not all(map(_speaks, differing)):
        return False
    declared = [(lever, new.lever_keys.get(lever, [])) for lever in new.levers]
    if all(all(map(_speaks, keys)) if keys else _speaks(lever) for lever, keys in declared):
        return True
    return len(declared) == 1 and not declared[0][1] and bool(differing)


def _speaks(name: str) -> bool:
    """Whether a lever's name, a key or a pattern of keys is of speculation."""
    return WORDS.search(name.strip("*?")) is not None


def _verifies_more(base: Arm, new: Arm, al_base: float) -> bool:
    if al_base <= 1 and not _turned_on(base):
        return True
    positions = verified_tokens(base.server), verified_tokens(new.server)
    return positions[0] is not None and positions[1] is not None and positions[0] < positions[1]


def speculation(base: Arm, new: Arm) -> list[SpecVerdict]:
    """One line a concurrency where both have a throughput; empty when `new` does not speculate."""
    if not speculates(new):
        return []
    sides = [{at: c for (_, at), c in columns(arm, [METRIC]).items()} for arm in (base, new)]
    tpots = [{at: c for (_, at), c in columns(arm, [TPOT]).items()} for arm in (base, new)]
    facts = realised(base.cells), realised(new.cells)
    to_base = aligned(list(sides[0]), list(sides[1]))
    found = []
    for there, at in sorted(to_base.items(), key=lambda pair: order(pair[1])):
        a, b = sides[0].get(at), sides[1][there]
        if a is None or at.concurrency is None or not (_values(a) and _values(b)):
            continue
        tpot = _ratio(tpots[0].get(at), tpots[1].get(there))
        found.append(_taken_apart(base, new, at, a, b, facts[0][at], facts[1][there], tpot))
    return found


def _ratio(base: Column | None, new: Column | None) -> float | None:
    """new/base of a metric that both sides have."""
    before, after = (_values(c) if c is not None else [] for c in (base, new))
    return fmean(after) / fmean(before) if before and after else None


def _values(column: Column) -> list[float]:
    return [s.value for s in column.samples] or column.shown


def _taken_apart(
    base: Arm,
    new: Arm,
    at: Coordinate,
    a: Column,
    b: Column,
    fact_a: Realised,
    fact_b: Realised,
    tpot_ratio: float | None,
) -> SpecVerdict:
    assert at.concurrency is not None
    ratio = fmean(_values(b)) / fmean(_values(a))
    al_base, assumed = fact_a.accept_length, False
    if al_base is None:
        al_base = _tokens_untold(base)
        assumed = al_base is not None
    al_new = fact_b.accept_length
    inflation = None if al_base is None or al_new is None else al_new / al_base / ratio
    by_tpot = None if al_base is None or al_new is None or tpot_ratio is None else al_new / al_base * tpot_ratio
    unlike = comparable_at(fact_a, fact_b, METRIC).why()
    state, reason = _state(base, new, a, b, ratio, (al_base, al_new), unlike, by_tpot)
    if assumed and state is not SpecState.NOT_MEASURED:
        reason += f"; {base.name} shows no speculation: 1 token a step"
    return SpecVerdict(
        config=new.name,
        base=base.name,
        concurrency=at.concurrency,
        isl=at.isl,
        throughput_ratio=ratio,
        tokens_per_step_base=al_base,
        tokens_per_step=al_new,
        step_time_ratio=inflation,
        step_by_tpot_ratio=by_tpot,
        state=state,
        reason=reason,
    )


def _state(
    base: Arm,
    new: Arm,
    a: Column,
    b: Column,
    ratio: float,
    accept: tuple[float | None, float | None],
    unlike: str,
    by_tpot: float | None,
) -> tuple[SpecState, str]:
    missing = [arm.name for arm, al in zip((base, new), accept, strict=True) if al is None]
    notes = [c.note() for c in (a, b) if not c.samples]
    if missing:
        return SpecState.NOT_MEASURED, f"{' and '.join(missing)} recorded no acceptance length"
    if unlike or notes:
        return SpecState.NOT_MEASURED, "; ".join(dict.fromkeys(filter(None, [unlike, *notes])))
    al_base, al_new = accept
    assert al_base is not None and al_new is not None
    inflation = al_new / al_base / ratio
    tpot = "" if by_tpot is None else f" (by TPOT x{by_tpot:.2f})"
    text = (
        f"tokens/step {al_base:.2f}->{al_new:.2f}, step with prefill x{inflation:.2f}{tpot}, throughput x{ratio:.2f}"
    )
    if al_new < ACCEPT_LEAST:
        return SpecState.ACCEPT_LIMITED, f"{text}: fewer than {ACCEPT_LEAST} tokens a step are accepted"
    if inflation >= SATURATED * al_new / al_base:
        longer = by_tpot is None or by_tpot >= SATURATED * al_new / al_base
        taker = "the longer step takes" if longer else "prefill and waiting, not the longer step alone, take"
        return SpecState.SATURATED, f"{text}: {taker} back what acceptance gives"
    return SpecState.PAYS, text
