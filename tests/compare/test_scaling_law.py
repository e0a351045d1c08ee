"""The affine law: the published table's values, planted lines, intervals that cover, and every refusal."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from queueing import Server, arm, changed, published, without

from dsv4bench.compare.affine import aicc, fit_line, fit_usl, interval, log_interval, usl_step_s
from dsv4bench.compare.ladder import StepSource, ladders
from dsv4bench.compare.law import scaling_law
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.records.verdict import ScalingLaw

BASE = {1: 10.2, 8: 24.0, 16: 23.2}
A = {1: 10.7, 8: 22.6, 16: 23.2}
B = {1: 15.7, 8: 23.2, 16: 23.6}


def law_of(a: Arm) -> ScalingLaw:
    (ladder,) = ladders(a)
    return scaling_law(ladder)


@pytest.mark.parametrize(
    ("table", "a_ms", "b_ms", "ceiling"),
    [(BASE, 44.0, 39.6, 25.3), (A, 47.4, 39.8, 25.1), (B, 20.8, 41.0, 24.4)],
)
def test_the_published_table_by_ordinary_least_squares(
    table: dict[int, float], a_ms: float, b_ms: float, ceiling: float
) -> None:
    line = fit_line(list(table), [c / x for c, x in table.items()], relative=False)
    assert line.a_s * 1e3 == pytest.approx(a_ms, abs=0.05)
    assert line.b_s * 1e3 == pytest.approx(b_ms, abs=0.05)
    assert 1 / line.b_s == pytest.approx(ceiling, abs=0.05)


def test_the_published_table_by_relative_error() -> None:
    law = law_of(arm(published(A)))
    assert law.a_s is not None and law.b_s is not None and law.ceiling_tok_s is not None and law.knee is not None
    assert law.a_s * 1e3 == pytest.approx(54.5, abs=0.05)
    assert law.b_s * 1e3 == pytest.approx(38.6, abs=0.05)
    assert law.ceiling_tok_s == pytest.approx(25.9, abs=0.05)
    assert law.knee == pytest.approx(1.41, abs=0.005)
    assert law.holds is True
    assert max(map(abs, law.residuals_frac.values())) == pytest.approx(0.0271, abs=1e-4)
    assert law.ceiling_ci_tok_s is None and law.knee_ci is None
    assert "one launch: no interval" in law.notes


def test_the_published_baseline_rejects_the_law() -> None:
    law = law_of(arm(changed(published(BASE), 8, approximate=["output_tok_s"])))
    assert law.holds is False
    assert law.residuals_frac["8"] == pytest.approx(0.0625, abs=1e-4)
    assert any("does not hold: +6.3% at C=8" in n and "no findings" in n for n in law.notes)
    assert any("takes 6 levels, there are 3" in n for n in law.notes)
    assert any("C=8 is only approximate" in n for n in law.notes)


def test_relative_error_weighs_levels_equally() -> None:
    """+5 % at the lowest level and at the highest pull the line to the same relative residuals."""
    levels = [1.0, 2.0, 4.0]
    times = [1.05, 2.0, 4.0]
    relative, plain = (fit_line(levels, times, relative=r) for r in (True, False))
    assert abs(plain.step_s(1) / 1.05 - 1) > abs(relative.step_s(1) / 1.05 - 1)


def test_a_planted_line_is_found_from_tpot() -> None:
    (ladder,) = ladders(arm(Server().cells()))
    assert ladder.source is StepSource.TPOT
    law = scaling_law(ladder)
    assert [law.a_s, law.b_s] == pytest.approx([0.0475, 0.0398])
    assert law.ceiling_tok_s == pytest.approx(1 / 0.0398)
    assert law.holds is True


def test_tokens_per_step_turn_tpot_into_step_time() -> None:
    law = law_of(arm(Server(accept_length=2.5).cells()))
    assert [law.a_s, law.b_s] == pytest.approx([0.0475, 0.0398])
    assert law.ceiling_tok_s == pytest.approx(2.5 / 0.0398)


def test_sources_are_not_mixed() -> None:
    (ladder,) = ladders(arm(changed(Server().cells(), 8, tpot_mean_s=None)))
    assert ladder.source is StepSource.THROUGHPUT
    assert ladder.at(4)[0].step_s == pytest.approx(4 / (ladder.at(4)[0].output_tok_s or 0))
    assert any("prefill and ramps are inside" in n for n in ladder.notes)


def test_steady_throughput_wins_only_where_every_level_has_it() -> None:
    cells = [msgspec.structs.replace(c, output_tok_s_steady=1.02 * (c.output_tok_s or 0)) for c in Server().cells()]
    (all_steady,), (one_less,) = ladders(arm(cells)), ladders(arm(changed(cells, 4, output_tok_s_steady=None)))
    assert all_steady.measured_tok_s(8) == pytest.approx(1.02 * (one_less.measured_tok_s(8) or 0))


def test_a_steady_window_that_cuts_through_a_round_serves_no_level() -> None:
    cells = [msgspec.structs.replace(c, output_tok_s_steady=1.02 * (c.output_tok_s or 0)) for c in Server().cells()]
    worst = cells[-1].concurrency or 0
    (ladder,) = ladders(arm(changed(cells, worst, output_tok_s_steady=0.91 * (cells[-1].output_tok_s or 0))))
    assert [r.output_tok_s for r in ladder.rungs] == [pytest.approx(c.output_tok_s) for c in cells]
    (note,) = ladder.notes
    assert f"C={worst}" in note and "9.0%" in note and "run longer levels" in note


def test_full_load_is_the_source_of_both_where_every_level_has_it() -> None:
    cells = [
        msgspec.structs.replace(
            c,
            output_tok_s_steady=0.5 * (c.output_tok_s or 0),
            full_load_tok_s=1.1 * (c.output_tok_s or 0),
            full_load_tpot_mean_s=1.2 * (c.tpot_mean_s or 0),
        )
        for c in Server().cells()
    ]
    (full,), (one_less,) = ladders(arm(cells)), ladders(arm(changed(cells, 4, full_load_tpot_mean_s=None)))
    (none,) = ladders(arm(Server().cells()))
    assert [r.output_tok_s for r in full.rungs] == [pytest.approx(1.1 * (r.output_tok_s or 0)) for r in none.rungs]
    assert [r.step_s for r in full.rungs] == [pytest.approx(1.2 * r.step_s) for r in none.rungs]
    assert [r.step_s for r in one_less.rungs] == [r.step_s for r in none.rungs]  # never mixed
    assert not full.notes


def test_repeats_are_averaged_within_a_launch() -> None:
    first = Server().cells()
    second = [msgspec.structs.replace(c, repeat=1, tpot_mean_s=1.1 * (c.tpot_mean_s or 0)) for c in first]
    law = law_of(arm([*first, *second]))
    assert law.n_launches == 1
    assert law.b_s == pytest.approx(1.05 * 0.0398)


def test_one_law_an_isl() -> None:
    longer = [msgspec.structs.replace(c, isl=8192) for c in Server(b_s=0.08).cells()]
    laws = [scaling_law(ladder) for ladder in ladders(arm([*Server().cells(), *longer]))]
    assert [law.isl for law in laws] == [1024, 8192]
    assert [law.b_s for law in laws] == [pytest.approx(0.0398), pytest.approx(0.08)]


def test_intervals_over_launches_cover_the_truth() -> None:
    """95 % intervals of the ceiling: four launches, six levels, a launch's own effect and noise of 1 % each."""
    true, trials, hits = 1 / 0.0398, 300, 0
    for seed in range(trials):
        law = law_of(arm(Server(prefill_s=0).cells(launches=4, sd=0.01, seed=seed)))
        assert law.ceiling_ci_tok_s is not None and law.n_launches == 4
        hits += law.ceiling_ci_tok_s[0] <= true <= law.ceiling_ci_tok_s[1]
    # binomial sd at 95 % is 1.3 %: the band is three of them
    assert 0.912 <= hits / trials <= 0.988


def test_launches_are_averaged_and_not_pooled() -> None:
    fast, slow = (Server(b_s=b).cells() for b in (0.04, 0.09))
    law = law_of(arm([*fast, *(msgspec.structs.replace(c, launch="L1") for c in slow)]))
    assert law.n_launches == 2 and law.holds is True
    assert law.b_s == pytest.approx(0.06)  # the geometric mean
    assert law.a_s == pytest.approx(0.0475)
    assert law.ceiling_ci_tok_s is not None


def test_the_knee_has_an_interval_also_where_a_launch_has_none() -> None:
    law = law_of(arm(Server(a_s=0.001).cells(launches=4, sd=0.01)))
    assert law.a_s is not None and law.knee_ci is not None
    assert law.knee_ci[0] < 0.001 / 0.0398 < law.knee_ci[1]


def test_equal_launches_claim_no_certainty() -> None:
    low, high = interval([1.0, 1.0, 1.0]) or (0, 0)
    assert low < 1.0 < high
    assert interval([1.0]) is None and log_interval([1.0, -1.0]) is None


def test_fewer_than_three_levels_give_no_law() -> None:
    law = law_of(arm(Server().cells([1, 8])))
    assert (law.a_s, law.b_s, law.ceiling_tok_s, law.holds) == (None, None, None, None)
    assert law.notes[0] == "no law: 2 usable levels of concurrency (1, 8), a line needs 3"


def test_levels_of_different_launches_make_no_line() -> None:
    cells = [Server().cell(c, launch=f"L{i}") for i, c in enumerate((1, 4, 16))]
    assert law_of(arm(cells)).notes[0].startswith("no law: no launch has 3 levels of its own")


def test_a_launch_with_too_few_levels_is_left_out_and_named() -> None:
    law = law_of(arm([*Server().cells(), *Server(b_s=0.5).cells([1, 2])[:2]]))
    assert law.n_launches == 1  # same launch: repeats
    extra = [msgspec.structs.replace(c, launch="L9") for c in Server(b_s=0.5).cells([1, 2])]
    law = law_of(arm([*Server().cells(), *extra]))
    assert law.n_launches == 1 and law.b_s == pytest.approx(0.0398)
    assert any(n.startswith("1 launches with fewer than 3 levels") for n in law.notes)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"invalid": Invalid.CLIENT_SATURATED, "invalid_why": "lag 40 ms"}, "client_saturated (lag 40 ms)"),
        ({"invalid": Invalid.SHORT_OUTPUT}, "short_output"),
        ({"token_source": TokenSource.CHUNKS}, "counted by chunks"),
        ({"tpot_mean_s": None, "output_tok_s": None}, "neither TPOT nor throughput"),
        ({"tpot_mean_s": math.nan, "output_tok_s": 0.0}, "neither TPOT nor throughput"),
        ({"output_tok_s": None, "tpot_mean_s": 0.0}, "neither TPOT nor throughput"),
    ],
)
def test_levels_that_cannot_be_used_are_left_out_and_named(fields: dict[str, object], why: str) -> None:
    law = law_of(arm(changed(Server().cells(), 8, **fields)))
    assert 8 not in law.levels
    assert any(n.startswith("C=8 left out") and why in n for n in law.notes)


def test_a_level_without_throughput_leaves_a_ladder_of_throughput() -> None:
    cells = changed(changed(Server().cells(), 8, tpot_mean_s=None), 4, output_tok_s=None)
    law = law_of(arm(cells))
    assert law.levels == [1, 2, 8, 16, 32]
    assert any("C=4 left out: no throughput, and other levels have no TPOT" in n for n in law.notes)


def test_an_open_loop_has_no_law() -> None:
    cells = [msgspec.structs.replace(c, concurrency=None, rate_req_s=2.0) for c in Server().cells([1, 2, 4])]
    law = law_of(arm(cells))
    assert law.a_s is None and any("open loop" in n for n in law.notes)


def test_step_time_that_does_not_grow_has_no_ceiling() -> None:
    law = law_of(arm(Server(b_s=0.0).cells()))
    assert law.holds is True and law.ceiling_tok_s is None and law.knee is None


def test_the_usl_waits_for_six_levels() -> None:
    """A step time quadratic in C: rejected either way, described by the USL with six levels, not with five."""
    usl = {c: 0.05 * (1 + 0.3 * (c - 1) + 0.02 * c * (c - 1)) for c in (1, 2, 4, 8, 16, 32)}
    cells = [Server().cell(c) for c in usl]
    cells = [msgspec.structs.replace(c, tpot_mean_s=usl[c.concurrency or 0]) for c in cells]
    six = law_of(arm(cells))
    five = law_of(arm(cells[:-1]))
    assert six.holds is False and five.holds is False
    assert any("sigma 0.3, kappa 0.02" in n for n in six.notes)
    assert any("no retrograde throughput is claimed" in n for n in six.notes)
    assert not any("sigma" in n for n in five.notes)
    assert any("takes 6 levels, there are 5" in n for n in five.notes)


def test_retrograde_throughput_is_claimed_only_over_launches() -> None:
    rng = random.Random(3)
    cells = []
    for i in range(4):
        for c in (1, 2, 4, 8, 16, 32):
            t = 0.05 * (1 + 0.3 * (c - 1) + 0.02 * c * (c - 1)) * rng.gauss(1, 0.005)
            cells.append(msgspec.structs.replace(Server().cell(c, launch=f"L{i}"), tpot_mean_s=t))
    assert any("retrograde: kappa's interval over 4 launches lies above 0" in n for n in law_of(arm(cells)).notes)


def test_the_usl_is_not_preferred_where_a_step_breaks_the_line() -> None:
    cells = changed(Server().cells(), 4, tpot_mean_s=1.3 * (0.0475 + 4 * 0.0398))
    law = law_of(arm(cells))
    assert law.holds is False
    assert any("describes it no better" in n for n in law.notes)


def test_usl_is_the_same_function_forwards_and_back() -> None:
    levels = [1.0, 2.0, 4.0, 8.0]
    usl = fit_usl(levels, [(1 + 0.2 * (c - 1) + 0.01 * c * (c - 1)) / 20 for c in levels])
    assert [usl.rate, usl.sigma, usl.kappa] == pytest.approx([20, 0.2, 0.01])
    assert usl_step_s(usl, 16) == pytest.approx((1 + 0.2 * 15 + 0.01 * 16 * 15) / 20)


def test_aicc_refuses_a_sample_smaller_than_its_parameters() -> None:
    assert math.isinf(aicc([0.0, 0.0, 0.0], 3))
    assert aicc([0.01] * 8, 2) < aicc([0.01] * 8, 3)


def test_throughput_alone_without_tpot_gives_the_same_law_where_prefill_is_free() -> None:
    tpot = law_of(arm(Server(prefill_s=0).cells()))
    rate = law_of(arm(without(Server(prefill_s=0).cells(), "tpot_mean_s")))
    assert rate.b_s == pytest.approx(tpot.b_s) and rate.a_s == pytest.approx(tpot.a_s)
