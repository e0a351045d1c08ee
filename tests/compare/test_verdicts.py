"""Verdicts: each rule once, each refusal once, and the published campaign's figures."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from arms_made import launches, make_arm, make_cell, repeats

from dsv4bench.compare.bounds import Bound
from dsv4bench.compare.verdicts import compare_arms
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.codec import encode
from dsv4bench.records.request import TokenSource
from dsv4bench.records.verdict import BoundSource, CellVerdict, Grade, LeverStatus, LeverVerdict, Verdict

X = "output_tok_s"
QUIET = [100.0, 100.4, 99.6, 100.2, 99.8]
CALIBRATED: dict[str, Any] = {"sigma_launch_frac": 0.005, "calibrated": True}


def compared(
    base: list[Cell] | Arm, new: list[Cell] | Arm, metrics: tuple[str, ...] = (X,), **more: Any
) -> list[CellVerdict]:
    a = base if isinstance(base, Arm) else make_arm("base", base)
    b = new if isinstance(new, Arm) else make_arm("new", new)
    return compare_arms(a, b, metrics=metrics, **({"versus": "baseline"} | more))


def one(base: list[Cell] | Arm, new: list[Cell] | Arm, **more: Any) -> CellVerdict:
    (verdict,) = compared(base, new, **more)
    return verdict


def scaled(values: list[float], by: float) -> list[float]:
    return [v * by for v in values]


# the rules


def test_paired_launches_give_a_full_verdict() -> None:
    v = one(launches(QUIET, blocks=True), launches(scaled(QUIET, 1.467), blocks=True))
    assert (v.verdict, v.grade, v.better, v.n_base, v.n_new) == (Verdict.GAIN, Grade.E2, True, 5, 5)
    assert v.delta_frac == pytest.approx(0.467)
    assert v.ci_frac is not None and v.ci_frac[0] == pytest.approx(
        math.exp(math.log(1.467) - 2.776445 * 0.002 / 5**0.5) - 1
    )
    assert v.reason == ""  # the change and its interval stand in their own fields


def test_pairing_removes_what_both_launches_share() -> None:
    day = [80.0, 90.0, 100.0, 110.0]  # a machine that drifts by a third
    assert one(launches(day, blocks=True), launches(scaled(day, 1.05), blocks=True)).verdict is Verdict.GAIN
    unpaired = one(launches(day), launches(scaled(day, 1.05)))
    assert (unpaired.verdict, unpaired.grade) == (Verdict.UNRESOLVED, Grade.E2U)


def test_a_time_that_falls_is_a_gain_and_keeps_its_sign() -> None:
    a = [make_cell(None, launch=f"L{i}", tpot_p50_s=0.1) for i in range(4)]
    b = [make_cell(None, launch=f"L{i}", tpot_p50_s=0.09) for i in range(4)]
    v = one(a, b, metrics=("tpot_p50_s",))
    assert (v.verdict, v.better) == (Verdict.GAIN, True)
    assert v.delta_frac == pytest.approx(-0.1)
    back = one(b, a, metrics=("tpot_p50_s",))
    assert (back.verdict, back.better) == (Verdict.LOSS, False)


def test_no_effect_is_proven_and_a_small_one_is_trivial() -> None:
    same = one(
        launches(QUIET, blocks=True),
        launches([v * f for v, f in zip(QUIET, [1.001, 0.999, 1, 1.002, 0.998], strict=True)], blocks=True),
    )
    assert same.verdict is Verdict.NO_EFFECT
    assert same.reason == "|Δ| < 3 % proven"
    small = one(launches(QUIET, blocks=True), launches(scaled(QUIET, 1.012), blocks=True))
    assert small.verdict is Verdict.TRIVIAL
    assert small.reason == "real but below 3 %"


def test_unresolved_says_what_could_have_been_seen_and_what_it_takes() -> None:
    wobble = [1.02, 0.98, 1.03, 0.97]
    v = one(launches([100.0] * 4, blocks=True), launches(scaled(wobble, 100), blocks=True))
    d = [math.log(w) for w in wobble]
    sd = math.sqrt(sum((x - sum(d) / 4) ** 2 for x in d) / 3)
    assert v.verdict is Verdict.UNRESOLVED
    assert v.mde_frac == pytest.approx(math.expm1((3.182446 + 0.978472) * sd / 2))
    assert v.pairs_needed == 10
    assert v.reason == f"could have seen {100 * v.mde_frac:.3g} %; needs 10 pairs of launches"


def test_one_launch_each_needs_five_repeats() -> None:
    v = one(repeats(QUIET[:4]), repeats(scaled(QUIET[:4], 1.5)))
    assert (v.verdict, v.grade) == (None, Grade.E0)
    assert v.delta_frac == pytest.approx(0.5)
    assert v.spread_frac == (pytest.approx(0.003416, rel=1e-3),) * 2
    assert v.ci_frac is None and v.mde_frac is None
    assert one(repeats(QUIET), repeats(scaled(QUIET, 1.5))).grade is Grade.E1


def test_an_uncalibrated_rig_claims_nothing_below_eight_percent() -> None:
    for factor in (1.0, 1.05, 1.075, 0.95):
        v = one(repeats(QUIET), repeats(scaled(QUIET, factor)))
        assert v.verdict is Verdict.UNRESOLVED
        assert "dsv4bench calibrate" in v.reason
    v = one(repeats(QUIET), repeats(scaled(QUIET, 1.1)))
    assert v.verdict is Verdict.GAIN
    assert "launch variance assumed" in v.reason
    assert one(repeats(QUIET), repeats(scaled(QUIET, 1.05)), **CALIBRATED).verdict is Verdict.GAIN
    assert one(repeats(QUIET), repeats(QUIET[::-1]), **CALIBRATED).verdict is Verdict.NO_EFFECT


def test_a_launch_in_two_blocks_makes_no_pairs() -> None:
    one_launch = [make_cell(v, repeat=i, block=i) for i, v in enumerate(QUIET)]
    v = one(one_launch, [*one_launch[:4], make_cell(99.0, repeat=4, block=4)])
    assert v.grade is Grade.E1


def test_unpaired_launches_beside_the_pairs_are_said() -> None:
    extra = [*launches(QUIET, blocks=True), make_cell(70.0, launch="L9", block=9)]
    v = one(extra, launches(QUIET, blocks=True))
    assert (v.grade, v.n_base) == (Grade.E2, 5)
    assert "1 unpaired launches left out" in v.reason
    assert v.base == pytest.approx(100.0, rel=1e-3)


def test_an_outlier_is_named_and_the_exact_test_may_disagree() -> None:
    d = [1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 0.9]
    v = one(launches([100.0] * 8, blocks=True), launches(scaled(d, 100), blocks=True))
    assert "outlier: block 7" in v.reason
    even = one(launches([100.0] * 8, blocks=True), launches(scaled([1.05, 1.06] * 4, 100), blocks=True))
    assert "outlier" not in even.reason and "disagrees" not in even.reason
    mixed = [1.05, 1.05, 1.05, 1.05, 1.05, 0.97, 0.97, 1.05]
    v = one(launches([100.0] * 8, blocks=True), launches(scaled(mixed, 100), blocks=True))
    assert v.verdict is Verdict.UNRESOLVED


def test_gains_are_corrected_over_the_family_and_no_effect_is_not() -> None:
    wobble = [1.0, 1.012, 1.035, 1.013, 1.002, 1.05]
    alone = one(launches([100.0] * 6, blocks=True), launches(scaled(wobble, 103), blocks=True))
    assert alone.verdict is Verdict.GAIN
    a, b = launches([100.0] * 6, blocks=True), launches(scaled(wobble, 101.3), blocks=True)
    assert one(a, b, deltas={X: 0.02}).verdict is Verdict.GAIN
    for c in (16, 32, 64, 128):
        a += launches([100.0] * 6, blocks=True, concurrency=c)
        b += launches([100.2, 99.8, 100.1, 99.9, 100, 100], blocks=True, concurrency=c)
    first, *rest = compared(a, b, deltas={X: 0.02})
    assert first.verdict is Verdict.UNRESOLVED
    assert "not significant after Holm over 5 cells" in first.reason
    assert {v.verdict for v in rest} == {Verdict.NO_EFFECT}


def test_metrics_outside_the_family_do_not_weaken_it() -> None:
    wobble = [1.0, 1.012, 1.035, 1.013, 1.002, 1.05]

    def cells(factors: list[float]) -> list[Cell]:
        more = dict.fromkeys(("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "e2e_p50_s"), 0.1)
        return [make_cell(100 * f, launch=f"L{i}", block=i, **more) for i, f in enumerate(factors)]

    metrics = (X, "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "e2e_p50_s")
    a, b = cells([1.0] * 6), cells(scaled(wobble, 1.013))
    assert compared(a, b, metrics=metrics, deltas={X: 0.02})[0].verdict is Verdict.UNRESOLVED
    assert compared(a, b, metrics=metrics, deltas={X: 0.02}, family=[X])[0].verdict is Verdict.GAIN


def test_linear_metrics_are_compared_on_their_own_scale() -> None:
    a = [make_cell(None, launch=f"L{i}", accept_length=v) for i, v in enumerate([1.9, 1.92, 1.94, 1.92])]
    b = [make_cell(None, launch=f"L{i}", accept_length=v) for i, v in enumerate([2.59, 2.61, 2.63, 2.61])]
    v = one(a, b, metrics=("accept_length",))
    assert (v.verdict, v.in_points) == (Verdict.GAIN, False)
    assert v.delta_frac == pytest.approx(2.61 / 1.92 - 1)
    assert v.ci_frac is not None and v.ci_frac[0] < v.delta_frac < v.ci_frac[1]


def test_a_fraction_is_compared_in_points_and_zero_is_no_trouble() -> None:
    a = [make_cell(None, launch=f"L{i}", slo_frac=0.0) for i in range(4)]
    b = [make_cell(None, launch=f"L{i}", slo_frac=0.25) for i in range(4)]
    v = one(a, b, metrics=("slo_frac",), deltas={"slo_frac": 0.05})
    assert (v.verdict, v.in_points, v.delta_frac) == (Verdict.GAIN, True, 0.25)
    assert v.reason == ""
    assert one(a, b, metrics=("slo_frac",)).verdict is None


def test_a_metric_without_delta_or_direction_carries_no_verdict() -> None:
    a = [make_cell(None, launch=f"L{i}", icl_p50_s=0.1, achieved_batch=8.0, tokens_per_chunk=1.0) for i in range(4)]
    v = one(a, [msgspec.structs.replace(c, icl_p50_s=0.05) for c in a], metrics=("icl_p50_s",))
    assert (v.verdict, v.grade) == (None, Grade.E2U)
    assert v.ci_frac is not None
    assert one(a, a[:4], metrics=("achieved_batch",), versus="parent").better is None


def test_rounding_of_figures_with_repeats_is_not_taken_for_precision() -> None:
    fine, coarse = repeats([24.0] * 5), repeats([24.0] * 5, rounding={X: 1.0})
    sharp, blunt = one(fine, repeats([25.0] * 5), **CALIBRATED), one(coarse, repeats([25.0] * 5), **CALIBRATED)
    assert sharp.verdict is Verdict.GAIN
    assert blunt.verdict is Verdict.UNRESOLVED
    assert sharp.ci_frac and blunt.ci_frac and blunt.ci_frac[1] - blunt.ci_frac[0] > 0.04


# bounds


def bound(gain: float | None, source: BoundSource = "profile") -> dict[tuple[int, int], Bound]:
    return {
        (8, 1024): Bound(concurrency=8, isl=1024, gain_frac=gain, source=source, why="" if gain else "profile C=8")
    }


def test_more_than_the_profile_allows_is_a_contradiction() -> None:
    a, b = launches(QUIET, blocks=True), launches(scaled(QUIET, 1.049), blocks=True)
    v = one(a, b, bounds=bound(0.0101))
    assert v.verdict is Verdict.CONTRADICTION
    assert v.reason == "more than the bound allows: the share or the measurement is wrong, or prefill got faster, too"
    v = one(a, b, bounds=bound(0.0101, "speculation"))
    assert (v.verdict, v.bound_source) == (Verdict.CONTRADICTION, "speculation")
    assert v.reason == "more than the bound allows: the step got shorter, too, or a measurement is wrong"
    assert one(a, b, bounds=bound(0.0487)).verdict is Verdict.GAIN  # the interval still reaches the bound
    free = one(a, b, bounds=bound(None))
    assert (free.verdict, free.bound_frac, free.bound_note) == (Verdict.GAIN, None, "no bound: profile C=8")


def test_what_is_not_attributed_may_hide_more_of_what_is_touched() -> None:
    a, b = launches(QUIET, blocks=True), launches(scaled(QUIET, 1.049), blocks=True)
    (here,) = bound(0.0101).items()
    hidden = {here[0]: msgspec.structs.replace(here[1], unattributed_frac=0.07)}
    v = one(a, b, bounds=hidden)
    assert (v.verdict, v.bound_frac) == (Verdict.GAIN, 0.0101)  # 1 % + 7 % of the step allow +8.7 %
    assert one(a, launches(scaled(QUIET, 1.12), blocks=True), bounds=hidden).verdict is Verdict.CONTRADICTION


def test_a_bound_holds_for_times_in_their_own_sign() -> None:
    a = [make_cell(None, launch=f"L{i}", tpot_p50_s=0.1, ttft_p50_s=1.0) for i in range(4)]
    b = [make_cell(None, launch=f"L{i}", tpot_p50_s=0.08, ttft_p50_s=0.5) for i in range(4)]
    tpot, ttft = compared(a, b, metrics=("tpot_p50_s", "ttft_p50_s"), bounds=bound(0.10))
    assert tpot.verdict is Verdict.CONTRADICTION
    assert tpot.bound_frac == pytest.approx(-0.1 / 1.1)
    assert (ttft.verdict, ttft.bound_frac) == (Verdict.GAIN, None)  # prefill is not in the decode step
    assert one(b, a, metrics=("tpot_p50_s",), bounds=bound(0.10)).verdict is Verdict.LOSS


def test_without_a_second_measurement_a_bound_is_all_there_is() -> None:
    v, _ = compared([make_cell(10.0), make_cell(11.0, 16)], [make_cell(11.0, 16)], bounds=bound(0.01))
    assert (v.concurrency, v.verdict, v.grade, v.bound_frac) == (8, Verdict.NOT_COMPARABLE, Grade.P, 0.01)
    v, _ = compared([make_cell(10.0), make_cell(11.0, 16)], [make_cell(11.0, 16)], bounds=bound(0.9, "speculation"))
    assert (v.grade, v.bound_frac) == (None, 0.9)  # P is a profile's


# what is not comparable


def test_every_coordinate_of_either_side_appears() -> None:
    a = [make_cell(10.0, 1), make_cell(20.0, 8)]
    b = [make_cell(20.0, 8), make_cell(30.0, 16), make_cell(9.0, None, rate_req_s=2.0)]
    found = {(v.concurrency, v.rate_req_s): v for v in compared(a, b)}
    assert list(found) == [(1, None), (8, None), (16, None), (None, 2.0)]
    assert found[1, None].reason == "new has no level at C=1, ISL 1024"
    assert found[16, None].reason == "base has no level at C=16, ISL 1024"
    assert found[None, 2.0].reason == "base has no level at 2 req/s, ISL 1024"
    assert {v.verdict for k, v in found.items() if k != (8, None)} == {Verdict.NOT_COMPARABLE}
    assert found[1, None].base == 10.0 and found[1, None].new is None


def test_a_level_without_the_figure_says_why() -> None:
    a = [make_cell(10.0, 1, ttft_p50_s=1.0), make_cell(20.0, 8, why_null={"ttft_p50_s": "no stream"})]
    b = [make_cell(10.5, 1, ttft_p50_s=1.0), make_cell(20.5, 8, ttft_p50_s=1.0)]
    low, high = compared(a, b, metrics=("ttft_p50_s",))
    assert low.verdict is None and high.verdict is Verdict.NOT_COMPARABLE
    assert high.reason == "base at C=8, ISL 1024: no ttft_p50_s (no stream)"


def test_an_invalid_level_is_no_number() -> None:
    a = repeats(QUIET)
    bad = [msgspec.structs.replace(c, invalid=Invalid.CLIENT_SATURATED) for c in repeats(scaled(QUIET, 3.0))]
    v = one(a, bad)
    assert (v.verdict, v.new, v.delta_frac) == (Verdict.NOT_COMPARABLE, None, None)
    assert "level invalid (client_saturated)" in v.reason
    both = one([msgspec.structs.replace(c, invalid=Invalid.INTERRUPTED) for c in a], bad)
    assert both.reason.count("level invalid") == 2
    some = one(a, [*repeats(scaled(QUIET, 1.2)), msgspec.structs.replace(bad[0], repeat=7)])
    assert some.verdict is Verdict.GAIN
    assert "new: 1 of 6 left out: level invalid (client_saturated)" in some.reason


def test_unlike_workloads_are_refused_with_both_values() -> None:
    hot = make_arm("new", repeats(QUIET), workload={"model": "m", "endpoint": "chat", "temperature": 1.0})
    v = one(make_arm("base", repeats(QUIET)), hot)
    assert (v.verdict, v.delta_frac) == (Verdict.NOT_COMPARABLE, None)
    assert v.reason == "endpoint: completions vs chat; temperature: 0.0 vs 1.0"
    assert v.base == pytest.approx(100.0) and v.new == pytest.approx(100.0)


def test_realised_lengths_must_agree() -> None:
    a = repeats(QUIET, isl_mean=1024.0, osl_mean=256.0)
    assert one(a, repeats(QUIET, isl_mean=1040.0, osl_mean=252.0), **CALIBRATED).verdict is Verdict.NO_EFFECT
    v = one(a, repeats(QUIET, isl_mean=1050.0, osl_mean=200.0))
    assert (v.verdict, v.reason) == (Verdict.NOT_COMPARABLE, "isl_mean: 1024.0 vs 1050.0; osl_mean: 256.0 vs 200.0")


def test_hardware_is_refused_unless_asked_for_and_then_said_each_time() -> None:
    other = make_arm("new", launches(scaled(QUIET, 2.0)), hardware={"gpus": "GPU Y", "n_gpus": 1, "driver": "570.9"})
    v = one(launches(QUIET), other)
    assert (v.verdict, v.reason) == (Verdict.NOT_COMPARABLE, "gpus: GPU X vs GPU Y")
    v = one(launches(QUIET), other, across_hardware=True)
    assert v.verdict is Verdict.GAIN
    assert "across hardware: gpus: GPU X vs GPU Y" in v.reason


def test_hardware_nobody_told_is_not_taken_as_equal() -> None:
    v = one(launches(QUIET), make_arm("file", launches(QUIET[::-1]), hardware=None))
    assert "hardware not told by file" in v.reason


def lever(status: LeverStatus, levers: list[str], extra: list[str] | None = None) -> LeverVerdict:
    return LeverVerdict(
        config="new", parent="base", levers=levers, bundled=len(levers) > 1, status=status, extra_keys=extra or []
    )


def test_a_contradicted_lever_closes_the_parent_column_only() -> None:
    a, b = launches(QUIET), launches(scaled(QUIET, 1.2))
    wrong = lever(LeverStatus.CONTRADICTED, ["mtp"], ["max_running_requests"])
    v = one(a, b, versus="parent", lever=wrong)
    assert (v.verdict, v.reason) == (Verdict.NOT_COMPARABLE, "more than the lever differs: max_running_requests")
    assert one(a, b, versus="baseline", lever=wrong).verdict is Verdict.GAIN


def test_unverified_and_bundled_levers_are_marked() -> None:
    v = one(
        launches(QUIET),
        launches(scaled(QUIET, 1.2)),
        versus="parent",
        lever=lever(LeverStatus.UNVERIFIED, ["a", "b"]),
    )
    assert v.verdict is Verdict.GAIN
    assert v.reason == "new bundles a, b: not separable; lever unverified"


# refusals


def test_the_same_experiment_on_both_sides_is_refused() -> None:
    arm = make_arm("a", launches(QUIET))
    with pytest.raises(UsageError, match="compared with itself"):
        one(arm, arm)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"deltas": {X: 0.004}}, "below this rig's noise floor, 0.5 %"),
        ({"deltas": {X: math.nan}}, "δ for output_tok_s: nan"),
        ({"deltas": {X: 0.0}}, "δ for output_tok_s: 0.0"),
        ({"deltas": {"ttft_p50_s": 0.1}}, "ttft_p50_s, which is not compared"),
        ({"sigma_launch_frac": math.nan}, "launch deviation nan"),
        ({"sigma_launch_frac": -0.1}, "launch deviation -0.1"),
        ({"metrics": ("itl",)}, "unknown metric: itl"),
        ({"metrics": ("achieved_batch",), "deltas": {"achieved_batch": 0.1}}, "neither better high nor better low"),
    ],
)
def test_options_that_cannot_be_used_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as e:
        compared(launches(QUIET), launches(QUIET[::-1]), **(CALIBRATED | more))
    assert said in e.value.message
    assert e.value.hint


def test_a_rig_noisier_than_the_default_raises_it_and_says_so() -> None:
    v = one(launches(QUIET), launches(scaled(QUIET, 1.035)), sigma_launch_frac={X: 0.04}, calibrated=True)
    assert (v.limit_frac, v.verdict) == (0.04, Verdict.TRIVIAL)
    assert "δ raised from 3 % to this rig's noise floor" in v.reason
    assumed = one(launches(QUIET), launches(scaled(QUIET, 1.035)), sigma_launch_frac=0.04)
    assert (assumed.limit_frac, assumed.verdict) == (0.03, Verdict.GAIN)  # paired or not, no assumed figure enters


def test_nothing_to_compare_is_no_success() -> None:
    with pytest.raises(Unanswerable, match="neither base nor new has a figure of tpot_p50_s"):
        compared(launches(QUIET), launches(QUIET), metrics=("tpot_p50_s",))
    with pytest.raises(Unanswerable):
        compared([], [])


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_unsound_values_are_refused_not_compared(value: float) -> None:
    with pytest.raises(Unanswerable) as e:
        compared(repeats(QUIET), repeats([*QUIET[:4], value]))
    assert "output_tok_s" in e.value.message and "C=8" in e.value.message


def test_tokens_counted_from_chunks_enter_no_verdict() -> None:
    v = one(launches(QUIET), launches(scaled(QUIET, 1.3), token_source=TokenSource.CHUNKS))
    assert (v.verdict, v.grade) == (None, Grade.E0)
    assert v.delta_frac == pytest.approx(0.3)
    assert "tokens not counted by usage (chunks)" in v.reason
    times = [make_cell(1.0, launch=f"L{i}", token_source=TokenSource.CHUNKS, ttft_p50_s=0.2) for i in range(4)]
    slow = [msgspec.structs.replace(c, ttft_p50_s=0.3) for c in times]
    assert one(times, slow, metrics=("ttft_p50_s",)).verdict is Verdict.LOSS


# the published campaign


def published(name: str, c1: float, c8: float, c16: float, about: bool = False) -> Arm:
    def cell(x: float, c: int, rough: bool = False) -> Cell:
        more: dict[str, Any] = {"rounding": {X: 0.5 if rough else 0.05}, "approximate": [X] if rough else []}
        return make_cell(x, c, **more)

    return make_arm(name, [cell(c1, 1), cell(c8, 8, about), cell(c16, 16)], server=None, hardware=None)


BASE = published("baseline", 10.2, 24, 23.2, about=True)
A = published("A", 10.7, 22.6, 23.2)
B = published("B", 15.7, 23.2, 23.6)


def test_the_campaigns_percentages_name_their_base() -> None:
    lever_b, total = compared(A, B, versus="parent")[0], compared(BASE, B, versus="baseline")[0]
    assert (lever_b.versus, lever_b.versus_name, total.versus_name) == ("parent", "A", "baseline")
    assert lever_b.delta_frac == pytest.approx(0.467, abs=5e-4) and total.delta_frac == pytest.approx(0.539, abs=5e-4)
    first = compared(BASE, A)[0]
    assert first.reason.startswith("rounding allows +3.9…+5.9 % (the figures are rounded); ")
    assert {v.verdict for v in compared(BASE, A)} == {None}
    assert {v.grade for v in compared(BASE, A)} == {Grade.E0}


def test_the_campaigns_loss_at_eight_is_shown_with_what_rounding_allows() -> None:
    at8 = compared(BASE, A)[1]
    assert (at8.base, at8.new, at8.better) == (24, 22.6, False)
    assert at8.reason.startswith("rounding allows -3.8…-7.8 % ('~24' is rounded); base: '~24' enters no verdict")
    five = [make_arm(n, repeats([v] * 5, approximate=[X] if n == "a" else [])) for n, v in (("a", 24.0), ("b", 22.6))]
    assert one(*five).verdict is None  # however often "about" is repeated


def test_documents_hold_no_nan() -> None:
    for v in compared(BASE, A) + compared(launches(QUIET), launches(scaled(QUIET, 1e9))):
        assert b"NaN" not in encode(v)


def test_short_levels_tell_the_change_without_ramp_and_drain() -> None:
    def arm_of_levels(name: str, whole: list[float], full: list[float | None]) -> Arm:
        cells = launches(whole, blocks=True)
        pairs = zip(cells, full, strict=True)
        return make_arm(name, [msgspec.structs.replace(c, full_load_tok_s=f) for c, f in pairs])

    def reason(full: list[float | None]) -> str:
        base = arm_of_levels("base", [100.0, 101.0, 99.0, 100.0], [100.0, 101.0, 99.0, 100.0])
        new = arm_of_levels("new", [106.0, 107.2, 105.1, 106.0], full)
        (cell,) = compare_arms(base, new, versus="parent", metrics=["output_tok_s"])
        assert cell.verdict is Verdict.GAIN and cell.delta_frac == pytest.approx(0.06, abs=0.003)
        return cell.reason

    said = reason([111.0, 112.3, 110.1, 111.0])
    assert "without ramp and drain +11.1 % [" in said
    assert "ramp" not in reason([111.0, 112.3, 110.1, None])  # of all launches or of none
    assert "ramp" not in reason([106.0, 107.2, 105.1, 106.0])  # as the whole level says
    assert "ramp" not in reason([None, None, None, None])
