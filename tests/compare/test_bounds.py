"""Bounds and plans from published shares: the campaign's 39 + 38 + 14 + <1 + 1 % at C=16, and 73 % at C=1."""

from __future__ import annotations

import math
from typing import Any

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


def test_a_share_below_one_percent_bounds_the_gain_at_one_percent() -> None:
    b = lever({"fp8_cfg": ["dense"]})[16, 1024]
    assert b.gain_frac == pytest.approx(1 / 0.99 - 1)
    assert b.note == "at most +1.0 % at C=16; 7 % unattributed"
    assert b.unattributed_frac == pytest.approx(0.07)


def test_two_levers_are_bounded_together_and_each_alone() -> None:
    b = lever({"fp8_cfg": ["dense"], "nccl_ll": ["comm"]})[16, 1024]
    assert b.gain_frac == pytest.approx(1 / 0.98 - 1)
    assert b.note == "at most +2.0 % at C=16; fp8_cfg at most +1.0 %; nccl_ll at most +1.0 %; 7 % unattributed"


def test_only_a_profile_at_the_same_place_bounds() -> None:
    found = lever({"fp8_cfg": ["dense"]})
    assert found[8, 1024].note == "no bound: profile C=8"
    assert found[1, 1024].note == "no bound: no share of dense in the profile at C=1"
    assert found[1, 1024].gain_frac is None
    other = make_arm("A", BASE.cells)
    assert lever({"mtp": ["moe"]}, base=other)[16, 1024].note == "no bound: profile C=16"  # of A there is none
    elsewhere = [share("k", "moe", 0.5, isl=4096)]
    assert lever({"x": ["moe"]}, shares=elsewhere)[16, 1024].note == "no bound: profile C=16"


def test_without_touched_components_there_is_no_bound() -> None:
    assert lever({"x": []})[16, 1024].note == "no bound: x does not say which components it touches"
    assert lever({})[16, 1024].note == "no bound: A does not say which components it touches"
    assert lever({"x": ["moe"]}, shares=[])[16, 1024].note == "no bound: profile C=16"


def test_all_of_the_step_touched_is_no_limit() -> None:
    b = lever({"x": ["moe"]}, shares=[share("k", "moe", 1.0)])[16, 1024]
    assert (b.gain_frac, b.note) == (None, "no limit: all is touched")


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
    note = lever({"x": ["moe"]}, shares=shares)[16, 1024].note
    assert note.startswith("no bound: ") and said in note


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
