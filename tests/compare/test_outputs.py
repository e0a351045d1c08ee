"""Output parity: first differences, near-ties, loops, and what cannot be told."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from dsv4bench.compare.outputs import loop_of, parity_of
from dsv4bench.records.campaign import OutputParity
from dsv4bench.records.codec import encode
from dsv4bench.records.outputs import Output, Outputs

NEAR = 0.25
TEXT = [str(i * i) for i in range(12)]


def told(tokens: list[str], other: dict[int, dict[str, float]] | None = None) -> list[dict[str, float]]:
    """Each token certain, but where `other` says what else was told there."""
    return [{t: -0.1, **(other or {}).get(i, {"x": -4.0})} for i, t in enumerate(tokens)]


def outputs(*texts: list[str], best: list[list[dict[str, float]]] | None = None, **more: Any) -> Outputs:
    found = [Output(prompt=i, tokens=t, best=None if best is None else best[i]) for i, t in enumerate(texts)]
    fields: dict[str, Any] = {
        "unit": "ids", "endpoint": "completions", "prompt_kind": "token_ids", "prompts_sha256": "a", "seed": 1,
        "isl": 8, "osl": 12, "outputs": found,
    }  # fmt: skip
    return Outputs(**(fields | more))


def parity(base: Outputs, new: Outputs, near: float = NEAR) -> OutputParity:
    return parity_of(base, new, "fast", "slow", near)


def changed(at: int, token: str = "new") -> list[str]:
    return [*TEXT[:at], token, *(f"y{i}" for i in range(at + 1, 12))]


def compared(at: int, base_other: dict[str, float] | None, new_other: dict[str, float] | None = None) -> OutputParity:
    """One prompt that parts at `at`; what each side told of the other's token there."""
    new = changed(at)
    base_best = None if base_other is None else [told(TEXT, {at: base_other})]
    new_best = None if new_other is None else [told(new, {at: new_other})]
    return parity(outputs(TEXT, best=base_best), outputs(new, best=new_best))


def test_equal_texts_are_the_same_without_log_probabilities() -> None:
    p = parity(outputs(TEXT, TEXT), outputs(TEXT, TEXT))
    assert (p.same, p.why, len(p.pairs)) == (True, "", 2)
    assert {(x.first_difference, x.near_tie, x.n_base) for x in p.pairs} == {(None, None, 12)}


@pytest.mark.parametrize(
    ("other", "same"),
    [(-0.1, True), (-0.349, True), (-0.36, False), (-3.0, False)],
)
def test_a_difference_is_a_near_tie_within_the_limit(other: float, same: bool) -> None:
    p = compared(5, {"new": other})
    (pair,) = p.pairs
    assert (p.same, pair.first_difference, pair.near_tie) == (same, 5, same)
    assert pair.gap == pytest.approx(-0.1 - other)
    assert ("1 at a near-tie (within 0.25)" in p.why) is same
    assert ("prompt 0, token 5: the other token's log-probability is" in p.why) is not same


def test_one_real_difference_among_near_ties_is_enough() -> None:
    new = changed(3)
    base = outputs(TEXT, TEXT, best=[told(TEXT, {3: {"new": -0.2}}), told(TEXT, {3: {"new": -2.0}})])
    p = parity(base, outputs(new, new))
    assert (p.same, [x.near_tie for x in p.pairs]) == (False, [True, False])
    assert p.why.startswith(
        "2 of 2 prompts part (first at token 3): 1 at a near-tie (within 0.25), 1 where it is none"
    )


def test_the_new_one_must_hold_it_for_a_near_tie_too() -> None:
    assert compared(5, {"new": -0.2}, {TEXT[5]: -0.2}).same is True
    p = compared(5, {"new": -0.2}, {TEXT[5]: -6.0})
    assert (p.same, p.pairs[0].near_tie) == (False, False)
    assert "0.1 below in the baseline, 5.9 in the new one" in p.why


def test_a_token_that_was_not_told_is_at_least_so_far_below() -> None:
    p = compared(5, {"a": -1.0, "b": -3.0})
    assert (p.same, p.pairs[0].gap, p.pairs[0].near_tie) == (False, None, False)
    assert "at least 2.9 below in the baseline" in p.why
    close = compared(5, {"a": -0.2, "b": -0.3})
    assert (close.same, close.pairs[0].near_tie) == (None, None)
    assert "1 where it cannot be told" in close.why


def test_without_log_probabilities_a_difference_cannot_be_told() -> None:
    p = compared(5, None)
    assert (p.same, p.pairs[0].first_difference, p.pairs[0].near_tie) == (None, 5, None)
    why = "1 of 1 prompts part (first at token 5); {} log-probabilities, so near-ties cannot be told from faults"
    assert p.why == why.format("neither server tells")
    assert compared(5, None, {TEXT[5]: -0.2}).why == why.format("the baseline's server tells no")


def test_what_both_servers_do_not_tell_is_said_once() -> None:
    notes = ["the server does not take logprobs", "the server tells no log-probabilities"]
    texts = [changed(8), changed(6), TEXT, changed(11)]
    p = parity(outputs(*[TEXT] * 4, notes=notes), outputs(*texts, notes=notes))
    assert p.why == (
        "3 of 4 prompts part (first at token 6); neither server tells log-probabilities, so near-ties cannot be told "
        "from faults"
    )
    assert p.outcome == "cannot be told"
    same = parity(outputs(TEXT, notes=notes), outputs(TEXT, notes=notes))
    assert (same.outcome, same.why) == ("the same", ""), "without a difference nobody misses them"


def test_other_notes_stay_and_those_of_both_are_said_once() -> None:
    refused = "the server does not take logprobs, top_logprobs, ignore_eos"
    base = outputs(TEXT, notes=[refused, "a text may end early"])
    p = parity(base, outputs(TEXT, notes=[refused, "1 of 2 prompts failed: x"]))
    assert p.why == (
        "both: the server does not take ignore_eos; slow: a text may end early; fast: 1 of 2 prompts failed: x"
    )


def test_a_position_that_alone_is_not_told_is_named() -> None:
    best = told(TEXT)
    best[5] = {}
    p = parity(outputs(TEXT, best=[best]), outputs(changed(5)))
    assert p.why == (
        "1 of 1 prompts part (first at token 5): 1 where it cannot be told; prompt 0, token 5: the baseline's server "
        "tells no log-probability there"
    )


def test_one_difference_is_told_for_all() -> None:
    best = [told(TEXT, {at: {"new": -3.0}}) for at in (2, 4, 6)]
    p = parity(outputs(*[TEXT] * 3, best=best), outputs(*map(changed, (2, 4, 6))))
    assert p.why.count("prompt ") == 1 and p.why.endswith("(near-tie: 0.25) (and 2 more)")
    assert p.outcome == "DIFFERENT"


def test_nothing_is_compared_beyond_the_first_difference() -> None:
    new = [*TEXT[:4], "new", *TEXT[5:8], "worse", *TEXT[9:]]
    base = outputs(TEXT, best=[told(TEXT, {4: {"new": -0.2}, 8: {"worse": -9.0}})])
    assert parity(base, outputs(new)).same is True


def test_a_text_that_ends_early_is_a_difference_where_it_ends() -> None:
    p = parity(outputs(TEXT, best=[told(TEXT)]), outputs(TEXT[:7]))
    assert (p.same, p.pairs[0].first_difference, p.pairs[0].n_new) == (None, 7, 7)
    assert "one text ends here, the other goes on" in p.why


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["a"] * 8, (1, 0)),
        (["a"] * 7, None),
        (["q", "r", *["a"] * 9], (1, 2)),
        (["q", *["a", "b"] * 4], (2, 1)),
        (["a", "b", "c", "d", "e"] * 3, None),  # three rounds
        (["a", "b", "c", "d", "e"] * 4, (5, 0)),
        ([*["a"] * 20, "b"], None),  # it got out of it
        (TEXT, None),
        ([], None),
    ],
)
def test_loops(tokens: list[str], found: tuple[int, int] | None) -> None:
    assert loop_of(tokens) == found


def test_a_text_that_falls_into_a_loop_is_said() -> None:
    stuck = [*TEXT[:3], *["7"] * 9]
    base = outputs(TEXT, best=[told(TEXT, {3: {"7": -0.2}})])
    p = parity(base, outputs(stuck))
    assert p.same is True  # the first difference is a near-tie
    assert "prompt 0: from position 3 on the text of fast repeats one token, that of slow does not" in p.why
    assert "repeats" not in parity(outputs(stuck), outputs([*TEXT[:2], *["5"] * 10])).why, "the baseline's does, too"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompts_sha256": "b"}, "different prompts"),
        ({"osl": 13}, "different prompts"),
        ({"unit": "tokens"}, "one server tells ids, the other tokens"),
        ({"outputs": [], "notes": ["4 of 4 prompts failed: /v1/completions answered 500"]}, "answered by both"),
    ],
)
def test_unlike_outputs_say_nothing(change: dict[str, Any], says: str) -> None:
    p = parity(outputs(TEXT), msgspec.structs.replace(outputs(TEXT), **change))
    assert (p.same, p.pairs) == (None, [])
    assert says in p.why
    assert all(note in p.why for note in change.get("notes", []))


def test_missing_prompts_and_unsteady_servers_are_said() -> None:
    p = parity(outputs(TEXT, TEXT, repeats=False), outputs(TEXT))
    assert (p.same, len(p.pairs)) == (True, 1)
    assert "1 prompts were not answered by both" in p.why
    assert "slow does not repeat itself" in p.why
    assert "positions count words" in parity(outputs(TEXT, unit="words"), outputs(TEXT, unit="words")).why


def test_the_record_survives_the_codec() -> None:
    before = outputs(TEXT, best=[told(TEXT)], repeats=True, notes=["n"])
    assert msgspec.json.decode(encode(before), type=Outputs) == before
    assert all(math.isfinite(x) for best in before.outputs[0].best or [] for x in best.values())
