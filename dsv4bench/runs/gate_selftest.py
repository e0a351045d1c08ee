"""`dsv4bench gate --self-test`: put known faults before the gate, and see that it sees each.

With a stored baseline its own cells are used, else built-in ones. A gate that misses one is not to be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dsv4bench.compare import injection
from dsv4bench.compare.gate import MIN_PAIRS
from dsv4bench.compare.injection import again, changed, paired_from, sample_arm, slowed
from dsv4bench.compare.integrity import breaches_of_arm
from dsv4bench.compare.judgement import Rules, judge
from dsv4bench.errors import BenchError, Unanswerable
from dsv4bench.records.arm import Arm
from dsv4bench.records.gate import GateDocument, Outcome, SelfTestCase, SelfTestDocument
from dsv4bench.runs.arms import arm_of
from dsv4bench.runs.baselines import pinned_id
from dsv4bench.store.store import Store

Judge = Callable[[Arm, Arm, Rules], GateDocument]
REPEATS = 5


class Case(NamedTuple):
    """A pair of arms, and what the gate must say of it."""

    name: str
    base: Arm
    new: Arm
    expected: Outcome


def run_self_test(root: str, baseline: str | None = None, judged_by: Judge = judge) -> SelfTestDocument:
    """Every case; `judged_by` is replaced only to show that a blind gate is found out."""
    stored, source = _stored(root, baseline)
    cases = [_run(case, judged_by) for case in _cases(stored)]
    blind = cases[0].outcome is Outcome.INCONCLUSIVE
    noisy = f"{source}: its own runs differ too much for a gate to decide anything; see dsv4bench calibrate"
    return SelfTestDocument(source=source, cases=cases, ok=all(c.seen for c in cases), notes=[noisy] if blind else [])


def _run(case: Case, judged_by: Judge) -> SelfTestCase:
    try:
        found = judged_by(case.base, case.new, Rules())
        outcome, why = found.outcome, "; ".join(found.integrity[:1] or [_telling(found)])
    except BenchError as e:
        outcome, why = None, e.message
    return SelfTestCase(
        name=case.name, expected=case.expected, outcome=outcome, seen=outcome is case.expected, reason=why
    )


def _telling(d: GateDocument) -> str:
    """The reason of the first cell that has the document's outcome."""
    return next((c.reason for c in d.cells if c.outcome is d.outcome), "")


def _cases(stored: Arm) -> Iterator[Case]:
    base, other = paired_from(stored)
    yield Case("A/A pair", base, other, Outcome.PASS)
    yield Case("7 % slower", base, changed(other, slowed(1 / 0.93)), Outcome.FAIL)
    yield Case("capacity lost, TPOT better", base, changed(other, injection.capped), Outcome.FAIL)
    copy = again(stored)
    yield Case("30 % slower, single launches", stored, changed(copy, slowed(1 / 0.7)), Outcome.FAIL)
    yield Case("a level missing", stored, injection.without_a_level(copy), Outcome.NOT_COMPARABLE)
    yield Case("a value that is not a number", stored, injection.with_nan(copy), Outcome.NOT_COMPARABLE)
    yield Case("every request failed", stored, changed(copy, injection.all_failed), Outcome.NOT_COMPARABLE)
    yield Case("the baseline as its own candidate", stored, stored, Outcome.NOT_COMPARABLE)
    yield Case("twice as fast, no lever", stored, changed(copy, slowed(0.5)), Outcome.NOT_COMPARABLE)
    yield Case("two requests a level", stored, changed(copy, injection.with_few_requests), Outcome.INCONCLUSIVE)


def _stored(root: str, baseline: str | None) -> tuple[Arm, str]:
    if baseline is None:
        return sample_arm("sample", seed=1, repeats=REPEATS), "built-in samples"
    found = pinned_id(root, baseline)
    arm = arm_of([Store(root).open(found)])
    unsound = breaches_of_arm(arm, found)
    if unsound:
        raise Unanswerable(f"{unsound[0]}", "the self-test needs a sound baseline")
    fewest = min(sum(c.isl == d.isl and c.concurrency == d.concurrency for d in arm.cells) for c in arm.cells)
    if fewest < max(MIN_PAIRS, REPEATS):
        raise Unanswerable(
            f"{found} holds {fewest} runs of a level, the self-test needs {REPEATS}",
            "sweep --repeat 5, or leave --baseline out for the built-in samples",
        )
    return arm, found
