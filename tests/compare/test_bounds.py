"""Bounds and plans from published shares: the campaign's 39 + 38 + 14 + <1 + 1 % at C=16, and 73 % at C=1."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from arms_made import make_arm, make_cell

from dsv4bench.compare.bounds import Bound, bound_of, lever_bounds, plan_ceiling, shares_at, unattributed_frac
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.shares import KernelShare


def share(kernel: str, component: str, frac: float, concurrency: int = 16, **more: Any) -> KernelShare:
    fields: dict[str, Any] = {"config": "baseline", "isl": None}
    return KernelShare(
        kernel=kernel, component=component, share_frac=frac, concurrency=concurrency, **(fields | more)
    )


C16 = [
    share("moe_gemv", "moe", 0.39),
    share("attention_fallback", "attention", 0.38),
    share("tail", "elementwise", 0.14),
    share("fp8_gemm", "dense", 0.01, at_most=True),
    share("allreduce", "comm", 0.01),
]
C1 = [share("attention_fallback", "attention", 0.63, 1), share("moe_gemv", "moe", 0.10, 1)]
BASE = make_arm("baseline", [make_cell(10.2, 1), make_cell(24.0, 8), make_cell(23.2, 16)])


def lever(
    touches: dict[str, list[str]], base: Arm = BASE, shares: list[KernelShare] | None = None
) -> dict[tuple[int, int], Bound]:
    new = make_arm("A", [], levers=list(touches), touches=touches)
    return lever_bounds(base, new, C16 + C1 if shares is None else shares)


def said(bound: Bound, metric: str = "output_tok_s") -> str | None:
    return bound_of(bound, metric)[1]


def test_a_share_below_one_percent_bounds_the_gain_at_one_percent() -> None:
    b = lever({"fp8_cfg": ["dense"]})[16, 1024]
    assert b.gain_frac == pytest.approx(1 / 0.99 - 1)
    assert said(b) == "at most +1.0 % at C=16; 7 % unattributed"
    assert b.unattributed_frac == pytest.approx(0.07)


def test_two_levers_are_bounded_together_and_each_alone() -> None:
    b = lever({"fp8_cfg": ["dense"], "nccl_ll": ["comm"]})[16, 1024]
    assert b.gain_frac == pytest.approx(1 / 0.98 - 1)
    assert said(b) == "at most +2.0 % at C=16; fp8_cfg at most +1.0 %; nccl_ll at most +1.0 %; 7 % unattributed"
    assert said(b, "tpot_p50_s") == (
        "at most -2.0 % at C=16; fp8_cfg at most -1.0 %; nccl_ll at most -1.0 %; 7 % unattributed"
    )


def test_components_told_for_a_bundle_as_a_whole_bound_it_as_a_whole() -> None:
    joint = {"fp8_cfg": ["dense", "comm"], "nccl_ll": ["dense", "comm"]}
    assert said(lever(joint)[16, 1024]) == "at most +2.0 % at C=16; 7 % unattributed"


def test_what_each_lever_touches_is_told_by_its_own_configuration() -> None:
    joint = {lever: ["moe", "comm"] for lever in ("grouped", "nccl_ll")}
    new = make_arm("both", [], levers=list(joint), touches=joint)
    alone = {
        "grouped": make_arm("grouped", [], levers=["grouped"], touches={"grouped": ["moe"]}),
        "nccl_ll": make_arm("nccl_ll", [], levers=["nccl_ll"], touches={"nccl_ll": ["comm"]}),
    }
    b = lever_bounds(BASE, new, C16, alone)[16, 1024]
    assert b.gain_frac == pytest.approx(1 / 0.6 - 1)
    assert b.alone == {"grouped": pytest.approx(1 / 0.61 - 1), "nccl_ll": pytest.approx(1 / 0.99 - 1)}
    assert said(b) == "at most +66.7 % at C=16; grouped at most +63.9 %; nccl_ll at most +1.0 %; 7 % unattributed"
    other = {**alone, "grouped": msgspec.structs.replace(alone["grouped"], touches={"grouped": ["moe", "glue"]})}
    assert list(lever_bounds(BASE, new, C16, other)[16, 1024].alone) == ["nccl_ll"]  # of glue there is no share
    mute = {name: make_arm(name, [], levers=[name]) for name in alone}
    assert said(lever_bounds(BASE, new, C16, mute)[16, 1024]) == "at most +66.7 % at C=16; 7 % unattributed"


def test_only_a_profile_at_the_same_place_bounds() -> None:
    found = lever({"fp8_cfg": ["dense"]})
    assert said(found[8, 1024]) == "no bound: profile C=8"
    assert said(found[1, 1024]) == "no bound: no share of dense in the profile at C=1"
    assert found[1, 1024].gain_frac is None
    other = make_arm("A", BASE.cells)
    assert said(lever({"mtp": ["moe"]}, base=other)[16, 1024]) == "no bound: profile C=16"  # of A there is none
    elsewhere = [share("k", "moe", 0.5, isl=4096)]
    assert said(lever({"x": ["moe"]}, shares=elsewhere)[16, 1024]) == "no bound: profile C=16"


def test_without_touched_components_there_is_no_bound() -> None:
    assert said(lever({"x": []})[16, 1024]) == "no bound: x does not say which components it touches"
    assert said(lever({})[16, 1024]) == "no bound: A does not say which components it touches"
    assert said(lever({"x": ["moe"]}, shares=[])[16, 1024]) == "no bound: profile C=16"


# nearly all of the step is touched


@pytest.mark.parametrize(
    ("parts", "gain", "text"),
    [
        ((0.94, 0.06), 1 / 0.06 - 1, "at most +1566.7 % at C=16"),
        ((0.96, 0.04), None, "no bound: x touches 96 % of the step"),
        ((0.9984, 0.0016), None, "no bound: x touches 99.8 % of the step"),
        ((1.0, 0.0), None, "no bound: x touches 100 % of the step"),
        ((0.60, 0.03), None, "no bound: x touches 60 % of the step, 37 % is unattributed"),
        ((0.60, 0.33), 1.5, "at most +150.0 % at C=16; 7 % unattributed"),
    ],
)
def test_a_bound_needs_a_rest_that_the_lever_is_known_not_to_touch(
    parts: tuple[float, float], gain: float | None, text: str
) -> None:
    b = lever({"x": ["moe"]}, shares=[share("a", "moe", parts[0]), share("b", "idle", parts[1])])[16, 1024]
    assert b.gain_frac == (None if gain is None else pytest.approx(gain))
    assert (said(b), bound_of(b, "output_tok_s")[0]) == (text, b.gain_frac)


def test_a_bundle_that_touches_all_still_tells_its_levers_apart() -> None:
    shares = [share("a", "moe", 0.5), share("b", "attention", 0.48), share("c", "idle", 0.02)]
    b = lever({"x": ["moe"], "y": ["attention"]}, shares=shares)[16, 1024]
    assert said(b) == "no bound: x, y touch 98 % of the step; x at most +100.0 %; y at most +92.3 %"


# speculation


def speculating(accept: float | None, **more: Any) -> dict[tuple[int, int], Bound]:
    """An arm with `mtp` against BASE at C=1, 8 and 16; moe is 98 % of the step at C=16."""
    cells = [make_cell(20.0, c, accept_length=accept) for c in (1, 8, 16)]
    fields: dict[str, Any] = {"levers": ["mtp"], "touches": {"mtp": ["moe"]}, "server": {"spec_tokens": 2}}
    base, shares = more.pop("base", BASE), more.pop("shares", [share("a", "moe", 0.98), share("b", "idle", 0.02)])
    return lever_bounds(base, make_arm("B", cells, **(fields | more)), shares)


def test_speculation_brings_no_more_than_its_tokens_a_step() -> None:
    found = speculating(1.926)
    assert {c: b.gain_frac for (c, _), b in found.items()} == dict.fromkeys((1, 8, 16), pytest.approx(0.926))
    b = found[8, 1024]  # where nothing was profiled, too
    assert (b.source, said(b)) == ("speculation", "at most +92.6 % at C=8: 1.93 tokens a step, the step no shorter")
    assert bound_of(b, "tpot_p50_s") == (None, None)  # fewer requests in decode shorten TPOT by more than that


def test_the_smaller_of_both_bounds_counts() -> None:
    half = [share("a", "moe", 0.5), share("b", "dense", 0.5)]
    assert speculating(1.92, shares=half)[16, 1024].source == "speculation"  # +92 % against +100 %
    assert speculating(2.5, shares=half)[16, 1024].source == "profile"
    assert said(speculating(2.5, shares=half)[16, 1024]) == "at most +100.0 % at C=16"


def test_without_an_acceptance_length_speculation_bounds_nothing() -> None:
    assert said(speculating(None)[16, 1024]) == "no bound: mtp touches 98 % of the step"
    about = [make_cell(20.0, 16, accept_length=1.9, approximate=["accept_length"])]
    new = make_arm("B", about, levers=["mtp"], touches={"mtp": ["moe"]})
    assert lever_bounds(BASE, new, C16)[16, 1024].source == "profile"
    mute = make_arm("baseline", BASE.cells, server={"speculative_algorithm": "EAGLE"})  # speculates, tells no length
    assert said(speculating(1.92, base=mute)[8, 1024]) == "no bound: profile C=8"


def test_an_open_loop_has_no_such_bound() -> None:
    base = make_arm("baseline", [make_cell(9.0, None, rate_req_s=2.0)])
    new = make_arm("B", [make_cell(9.0, None, rate_req_s=2.0, accept_length=1.9)], levers=["mtp"])
    assert lever_bounds(base, new, []) == {}


@pytest.mark.parametrize(
    ("more", "bounded"),
    [
        ({"lever_keys": {"mtp": ["spec_tokens", "speculative*"]}}, True),
        ({"server": None}, True),  # the name says it
        ({"server": {"spec_tokens": 2, "port": 1}}, True),
        ({"levers": ["two-tokens"], "touches": {}}, True),  # the only key that differs says it
        ({"levers": ["two-tokens"], "touches": {}, "server": None}, False),
        ({"levers": ["mtp", "draft-ngram"], "touches": {}}, True),
        ({"levers": ["mtp", "grouped-moe"], "touches": {}}, False),  # the other may shorten the step
        ({"lever_keys": {"mtp": ["spec_tokens", "kernels"]}}, False),
        ({"server": {"spec_tokens": 2, "kernels": "optimized"}}, False),
    ],
)
def test_only_levers_that_are_speculation_alone_are_bounded_by_it(more: dict[str, Any], bounded: bool) -> None:
    assert (speculating(1.92, **more)[8, 1024].source == "speculation") is bounded


@pytest.mark.parametrize(
    ("before", "after", "accept", "gain"),
    [
        (2, 4, 2.88, 0.5),
        (4, 2, 2.88, None),  # fewer positions: the step may be shorter
        (2, 2, 2.88, None),  # another draft may be cheaper
        (2, None, 2.88, None),
        (2, 4, None, None),
    ],
)
def test_a_base_that_speculates_must_verify_fewer_positions(
    before: int, after: int | None, accept: float | None, gain: float | None
) -> None:
    cells = [make_cell(10.0, 8, accept_length=1.92)]
    base = make_arm("baseline", cells, server={"spec_tokens": before})
    found = speculating(accept, base=base, server={"spec_tokens": after})[8, 1024]
    assert found.gain_frac == (None if gain is None else pytest.approx(gain))
    if gain is not None:
        assert said(found) == "at most +50.0 % at C=8: 2.88 for 1.92 tokens a step, the step no shorter"


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([share("a", "moe", 0.7), share("b", "moe", 0.7)], "shares sum to 140 %"),
        ([share("a", "moe", 0.5, of="sum"), share("b", "comm", 0.1, of="span")], "different denominators"),
        ([share("a", "moe", math.nan)], "share of a is nan"),
        ([share("a", "moe", -0.1)], "share of a is -0.1"),
    ],
)
def test_unsound_shares_bound_nothing(shares: list[KernelShare], said: str) -> None:
    with pytest.raises(Unanswerable, match=said):
        unattributed_frac(shares)
    note = bound_of(lever({"x": ["moe"]}, shares=shares)[16, 1024], "output_tok_s")[1]
    assert note is not None and note.startswith("no bound: ") and said in note


def test_the_exact_isl_is_preferred() -> None:
    shares = [share("a", "moe", 0.2), share("b", "moe", 0.3, isl=1024), share("c", "moe", 0.4, isl=4096)]
    assert [s.kernel for s in shares_at(shares, "baseline", 16, 1024)] == ["b"]
    assert [s.kernel for s in shares_at(shares, "baseline", 16, 2048)] == ["a"]


def test_a_bound_in_the_sign_of_its_metric() -> None:
    b = lever({"x": ["dense"]})[16, 1024]
    assert bound_of(b, "output_tok_s")[0] == pytest.approx(0.010101, rel=1e-4)
    assert bound_of(b, "tpot_p50_s")[0] == pytest.approx(-0.01)
    assert bound_of(b, "ttft_p50_s") == (None, None)
    assert bound_of(None, "output_tok_s") == (None, None)


def plan(speedups: dict[str, float | None], **more: Any) -> Any:
    fields: dict[str, Any] = {"config": "baseline", "concurrency": 16, "isl": 1024, "measured_tok_s": 23.2}
    return plan_ceiling(C16 + C1, speedups=speedups, **(fields | more))


@pytest.mark.parametrize(
    ("speedups", "factor", "tok_s"),
    [
        ({"moe": None}, 1.64, 38.0),
        ({"moe": 5.0}, 1.45, 33.7),
        ({"attention": None}, 1.61, 37.4),
        ({"moe": None, "attention": None}, 4.35, 100.9),
        ({"moe": 5.0, "attention": 5.0}, 2.60, 60.4),
        ({"moe_gemv": None, "attention_fallback": None, "tail": None}, 11.1, 257.8),
    ],
)
def test_the_campaigns_plan(speedups: dict[str, float | None], factor: float, tok_s: float) -> None:
    p = plan(speedups)
    assert p.speedup == pytest.approx(factor, abs=0.012)
    assert p.ceiling_tok_s == pytest.approx(tok_s, abs=0.06)


def test_the_target_is_out_of_the_plans_reach_and_the_text_says_so() -> None:
    p = plan({"moe": None, "attention": None, "elementwise": None}, target_tok_s=1000.0)
    assert p.reaches is False
    assert p.needed_frac == pytest.approx(0.9768)
    assert p.text == (
        "moe, attention, elementwise free (91 % of the step): at most x11.1, 258 tok/s; 7 % unattributed; "
        "the target of 1000 tok/s needs 97.7 % of the step to vanish"
    )
    assert plan({"moe": None}, target_tok_s=30.0).reaches is True


def test_no_plan_stands_on_a_quarter_unattributed() -> None:
    with pytest.raises(Unanswerable) as e:
        plan({"attention": None}, concurrency=1)
    assert e.value.message.startswith("27 % of the step at C=1 is unattributed")
    assert e.value.hint


@pytest.mark.parametrize(
    ("speedups", "more", "error", "said"),
    [
        ({"moe": None}, {"concurrency": 8}, Unanswerable, "no kernel breakdown of baseline at C=8"),
        ({"glue": None}, {}, UsageError, "no glue in the breakdown"),
        ({"moe": None, "moe_gemv": None}, {}, UsageError, "a kernel is in the plan twice"),
        ({"moe": None}, {"measured_tok_s": 0.0}, UsageError, "0.0 tok/s"),
        ({"moe": None}, {"target_tok_s": math.nan}, UsageError, "nan tok/s"),
        ({"moe": math.nan}, {}, UsageError, "speed-up of moe: nan"),
    ],
)
def test_plans_that_are_refused(
    speedups: dict[str, float | None], more: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        plan(speedups, **more)
