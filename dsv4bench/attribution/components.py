"""Which component does a kernel belong to? The first rule that matches its name; else `other`, always shown.

Names alone cannot place the elementwise long tail: the multiply after an expert GEMM and the one after attention
are the same ATen kernel. A rule marked `tail` therefore asks the neighbours on the same stream, over a run of tail
kernels only and no further than REACH of them:

    both sides of one component                 -> that component
    one side moe or attention, the other neither -> moe or attention
    otherwise                                   -> the rule's own component

A row's `rule` says that a neighbour decided. Copies and memsets are no kernels and get no component here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.streams import by_stream
from dsv4bench.records.rules import COMPONENTS, ComponentRule, Rules
from dsv4bench.records.trace import KernelTrace, Kind

INDEX = {name: i for i, name in enumerate(COMPONENTS)}
OTHER = INDEX["other"]
REACH = 32  # kernels; the longest tail of the fallback path (merge and sink after attention) is about 25
OWNERS = ("moe", "attention")  # whose launch sequences end and begin in elementwise kernels
NEVER_OWN = ("other", "glue", "elementwise", "copy")

Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Per row of a trace: its component (index in COMPONENTS) and the text that says why (index in `reasons`)."""

    component: Codes
    reason: Codes
    reasons: list[str | None]
    tail: Bools  # the name could not tell: a tail rule matched


@dataclass(frozen=True, slots=True)
class _Matcher:
    rule: ComponentRule
    pattern: re.Pattern[str] | None

    def matches(self, names: Sequence[str]) -> bool:
        rule = self.rule
        if self.pattern is not None:
            found = any(self.pattern.search(n) for n in names)
        else:
            found = any(part in n for n in names for part in rule.contains)
        return found and not any(part in n for n in names for part in rule.without)


def _matchers(rules: Rules) -> list[_Matcher]:
    return [_Matcher(r, re.compile(r.regex) if r.regex else None) for r in rules.components]


def reason_of(rule: ComponentRule | None) -> str | None:
    """What a row says of the rule that named it."""
    return None if rule is None else rule.note or rule.regex or " | ".join(rule.contains)


def classify_all(names: Sequence[Sequence[str]], rules: Rules) -> list[ComponentRule | None]:
    """For each kernel (its spellings: raw, demangled, short) the first rule that matches any of them."""
    matchers = _matchers(rules)
    return [next((m.rule for m in matchers if m.matches(spellings)), None) for spellings in names]


def assign(trace: KernelTrace, rules: Rules) -> Assignment:
    """Every row's component. Copies and memsets get `copy` with the reason None."""
    found = classify_all(trace.kernel_names, rules)
    reasons: list[str | None] = [None]
    of_name = np.full(max(1, len(found)), OTHER, dtype=np.int32)
    why = np.zeros(max(1, len(found)), dtype=np.int32)
    is_tail = np.zeros(max(1, len(found)), dtype=np.bool_)
    known: dict[str, int] = {}
    for i, rule in enumerate(found):
        if rule is None:
            continue
        text = reason_of(rule)
        assert text is not None
        if text not in known:
            known[text] = len(reasons)
            reasons.append(text)
        of_name[i], why[i], is_tail[i] = INDEX[rule.component], known[text], rule.tail
    kernel = trace.kind == Kind.KERNEL
    name = trace.name if kernel.all() else np.where(kernel, trace.name, 0)
    component, reason, tail = of_name[name], why[name], is_tail[name]
    component[~kernel], reason[~kernel], tail[~kernel] = INDEX["copy"], 0, False
    if tail.any():
        component, reason, reasons = _by_neighbour(trace, component, reason, tail, reasons)
    return Assignment(component=component, reason=reason, reasons=reasons, tail=tail)


def _by_neighbour(
    trace: KernelTrace, component: Codes, reason: Codes, tail: Bools, reasons: list[str | None]
) -> tuple[Codes, Codes, list[str | None]]:
    rows, group = by_stream(trace)
    is_tail, comp = tail[rows], component[rows]
    at = np.flatnonzero(is_tail)
    before = _nearest(is_tail, group, comp)[at]
    after = _nearest(is_tail[::-1], group[::-1], comp[::-1])[::-1][at]
    owner = _owner(before, after)
    moved, owner = rows[at[owner >= 0]], owner[owner >= 0]
    component, reason, reasons = component.copy(), reason.copy(), list(reasons)
    texts: dict[tuple[int, int], int] = {}
    pair, which = np.unique(reason[moved] * len(COMPONENTS) + owner, return_inverse=True)
    new = np.zeros(len(pair), dtype=np.int32)
    for i, code in enumerate(pair.tolist()):
        old, to = divmod(code, len(COMPONENTS))
        if (old, to) not in texts:
            texts[old, to] = len(reasons)
            reasons.append(f"{reasons[old]}; neighbour on its stream: {COMPONENTS[to]}")
        new[i] = texts[old, to]
    component[moved] = owner
    reason[moved] = new[which]
    return component, reason, reasons


def _nearest(is_tail: Bools, group: npt.NDArray[np.int64], component: Codes) -> Codes:
    """The component of the last kernel before each that is no tail, on its stream and within REACH; -1 if none."""
    at = np.arange(len(group), dtype=np.int32)
    last = np.maximum.accumulate(np.where(is_tail, -1, at))
    safe = np.maximum(last, 0)
    near = (last >= 0) & (group[safe] == group) & (at - last <= REACH)
    return np.where(near, component[safe], -1)


def _owner(before: Codes, after: Codes) -> Codes:
    never = [INDEX[name] for name in NEVER_OWN]
    owners = [INDEX[name] for name in OWNERS]
    alike = (before == after) & (before >= 0) & ~np.isin(before, never)
    first, second = np.isin(before, owners), np.isin(after, owners)
    one = np.where(first & ~second, before, np.where(second & ~first, after, -1))
    return np.where(alike, before, one)
