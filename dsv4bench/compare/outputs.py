"""Do two configurations write the same greedy text? Each prompt's first difference, and whether it is a near-tie.

Rounding may decide between two tokens that the model holds for nearly equal; from there on the texts part for good
reason, so nothing behind the first difference is compared. A difference is a near-tie when the log-probabilities of
the two tokens differ by at most `near_tie`, in the baseline and, where that is known, in the new one. A text that
falls into a loop where the baseline's does not is said, whatever the first difference was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dsv4bench.records.campaign import OutputPair, OutputParity
from dsv4bench.records.outputs import NO_LOGPROBS, REFUSED, Output, Outputs

LONGEST_PERIOD = 8  # tokens
LEAST_ROUNDS = 4
LEAST_LOOP = 8  # tokens that a loop must cover


class Loop(NamedTuple):
    """The end of a text goes round: `period` tokens again and again, from position `start` on."""

    period: int
    start: int


def parity_of(base: Outputs, new: Outputs, config: str, base_name: str, near_tie: float) -> OutputParity:
    """`near_tie` is a difference of natural logarithms. Near-ties alone leave `same` True, and `why` counts them."""
    unlike = _unlike(base, new)
    theirs = {o.prompt: o for o in new.outputs}
    both = [(o, theirs[o.prompt]) for o in base.outputs if o.prompt in theirs]
    if unlike or not both:
        why = unlike or "no prompt was answered by both"
        return _parity(config, base_name, None, [], [why, *_notes(base, new, base_name, config)])
    silent = _silent(base, new)
    found = [_pair(a, b, near_tie, silent) for a, b in both]
    pairs = [pair for pair, _ in found]
    parted = [p for p in pairs if p.first_difference is not None]
    same: bool | None = True
    if any(p.near_tie is False for p in parted):
        same = False
    elif any(p.near_tie is None for p in parted):
        same = None
    said = [_count(parted, len(pairs), near_tie, silent)] if parted else []
    said += _first([text for _, text in found if text])
    said += [text for a, b in both if (text := _degenerate(a, b, config, base_name))]
    missing = max(len(base.outputs), len(new.outputs)) - len(both)
    said += [f"{missing} prompts were not answered by both"] if missing else []
    return _parity(config, base_name, same, pairs, said + _notes(base, new, base_name, config))


def loop_of(tokens: Sequence[str]) -> Loop | None:
    """The shortest period that the end of a text repeats, at least four times and over eight tokens."""
    for period in range(1, LONGEST_PERIOD + 1):
        start = len(tokens)
        while start > period and tokens[start - 1] == tokens[start - 1 - period]:
            start -= 1
        start -= period
        if start >= 0 and len(tokens) - start >= max(LEAST_ROUNDS * period, LEAST_LOOP):
            return Loop(period, start)
    return None


def _parity(config: str, base: str, same: bool | None, pairs: list[OutputPair], said: list[str]) -> OutputParity:
    return OutputParity(config=config, base=base, same=same, pairs=pairs, why="; ".join(said))


def _unlike(base: Outputs, new: Outputs) -> str:
    """Why the two say nothing about each other; "" when they do."""
    if base.prompts_sha256 != new.prompts_sha256 or base.osl != new.osl:
        return "they were asked different prompts"
    if base.unit != new.unit:
        return f"one server tells {base.unit}, the other {new.unit}"
    return ""


def _notes(base: Outputs, new: Outputs, base_name: str, config: str) -> list[str]:
    """What limits the statement: a server that does not repeat itself, and what each side noted; both, once."""
    said = [
        f"{name} does not repeat itself: the same prompt gave another text"
        for name, side in ((base_name, base), (config, new))
        if side.repeats is False
    ]
    ours, theirs = ([kept for note in side.notes if (kept := _kept(note))] for side in (base, new))
    said += [f"both: {note}" for note in ours if note in theirs]
    said += [f"{base_name}: {note}" for note in ours if note not in theirs]
    said += [f"{config}: {note}" for note in theirs if note not in ours]
    if "words" in (base.unit, new.unit):
        said.append("positions count words, not tokens")
    return said


def _kept(note: str) -> str:
    """A server's note without log-probabilities, whose absence is said where it matters; "" when nothing is left."""
    if note == NO_LOGPROBS:
        return ""
    if not note.startswith(REFUSED):
        return note
    others = [name for name in note.removeprefix(REFUSED).split(", ") if not name.endswith("logprobs")]
    return REFUSED + ", ".join(others) if others else ""


def _silent(base: Outputs, new: Outputs) -> str:
    """Whose server tells no log-probabilities at all, where that keeps a difference from being judged."""
    if any(o.best for o in base.outputs):
        return ""
    return "the baseline's server tells no" if any(o.best for o in new.outputs) else "neither server tells"


def _count(parted: list[OutputPair], n: int, near_tie: float, silent: str) -> str:
    """How many part, where the first does, and as far as it is known for which reason."""
    first = min(p.first_difference for p in parted if p.first_difference is not None)
    head = f"{len(parted)} of {n} prompts part (first at token {first})"
    if silent:
        return f"{head}; {silent} log-probabilities, so near-ties cannot be told from faults"
    near = sum(p.near_tie is True for p in parted)
    apart = sum(p.near_tie is False for p in parted)
    untold = len(parted) - near - apart
    parts = [
        f"{near} at a near-tie (within {near_tie:g})" if near else "",
        f"{apart} where it is none" if apart else "",
        f"{untold} where it cannot be told" if untold else "",
    ]
    return f"{head}: {', '.join(p for p in parts if p)}"


def _first(texts: Sequence[str]) -> list[str]:
    """The first of them, and how many more there are."""
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return [f"{texts[0]}{more}"] if texts else []


def _pair(base: Output, new: Output, near_tie: float, silent: str) -> tuple[OutputPair, str]:
    """(the pair, what must be said of its difference); `silent`: that nothing is told of any is said elsewhere."""
    at = _first_difference(base.tokens, new.tokens)
    pair = OutputPair(prompt=base.prompt, n_base=len(base.tokens), n_new=len(new.tokens), first_difference=at)
    if at is None:
        return pair, ""
    where = f"prompt {base.prompt}, token {at}"
    if at >= min(len(base.tokens), len(new.tokens)):
        return pair, f"{where}: one text ends here, the other goes on"
    old, other = base.tokens[at], new.tokens[at]
    ours = _gap(_told(base, at), old, other)
    theirs = _gap(_told(new, at), other, old)
    if ours is None:
        return pair, "" if silent else f"{where}: the baseline's server tells no log-probability there"
    near = _near([ours, theirs], near_tie)
    gap = ours.value if ours.exact else None
    text = "" if near else _gap_text(where, ours, theirs, near_tie)
    return msgspec.structs.replace(pair, gap=gap, near_tie=near), text


def _first_difference(a: Sequence[str], b: Sequence[str]) -> int | None:
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return at
    return None if len(a) == len(b) else min(len(a), len(b))


class _Gap(NamedTuple):
    """How much less likely the other token is; not `exact`: at least so much, for it is not among those told."""

    value: float
    exact: bool


def _told(output: Output, at: int) -> Mapping[str, float]:
    return output.best[at] if output.best is not None and at < len(output.best) else {}


def _gap(told: Mapping[str, float], own: str, other: str) -> _Gap | None:
    if own not in told:
        return None
    if other in told:
        return _Gap(told[own] - told[other], True)
    return _Gap(told[own] - min(told.values()), False)


def _near(gaps: Sequence[_Gap | None], limit: float) -> bool | None:
    """False as soon as one side is sure of its token; None while a token that was not told may be close."""
    known = [g for g in gaps if g is not None]
    if any(abs(g.value) > limit for g in known):
        return False
    return True if all(g.exact for g in known) else None


def _gap_text(where: str, ours: _Gap, theirs: _Gap | None, limit: float) -> str:
    def said(g: _Gap) -> str:
        return f"{g.value:.3g}" if g.exact else f"at least {g.value:.3g}"

    sides = f"{said(ours)} below in the baseline" + (f", {said(theirs)} in the new one" if theirs is not None else "")
    return f"{where}: the other token's log-probability is {sides} (near-tie: {limit:g})"


def _degenerate(base: Output, new: Output, config: str, base_name: str) -> str:
    """A loop of the new text that the baseline's has not."""
    loop = loop_of(new.tokens)
    if loop is None or loop_of(base.tokens) is not None:
        return ""
    what = "one token" if loop.period == 1 else f"{loop.period} tokens"
    return (
        f"prompt {new.prompt}: from position {loop.start} on the text of {config} repeats {what}, "
        f"that of {base_name} does not"
    )
