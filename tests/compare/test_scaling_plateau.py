"""Plateaus: provisional, proven by equivalence, not shown; growth, dips and cliffs; the operating characteristic."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest
from queueing import arm, changed, published

from dsv4bench.compare.ladder import ladders, sources
from dsv4bench.compare.plateau import find_plateau, growths
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import Plateau

FLAT = {1: 10.2, 8: 23.0, 16: 23.1, 32: 23.2}


def launches(curve: Mapping[int, float], n: int, sd: float = 0.005, seed: int = 1) -> list[Cell]:
    rng = random.Random(seed)
    found: list[Cell] = []
    for i in range(n):
        found += published({c: x * rng.gauss(1, sd) for c, x in curve.items()}, launch=f"L{i}")
    return found


def plateau_of(a: Arm) -> tuple[Plateau | None, list[str]]:
    (ladder,) = ladders(a)
    return find_plateau(ladder)


@pytest.mark.parametrize(
    ("table", "growth"),
    [({1: 10.7, 8: 22.6, 16: 23.2}, "1.027"), ({1: 15.7, 8: 23.2, 16: 23.6}, "1.017")],
)
def test_one_doubling_is_provisional(table: dict[int, float], growth: str) -> None:
    plateau, notes = plateau_of(arm(published(table)))
    assert plateau is not None and notes == []
    assert (plateau.from_concurrency, plateau.doublings, plateau.proven) == (8, 1.0, False)
    assert plateau.ci_tok_s is None
    assert plateau.text.startswith("provisional (1 doubling): ")
    assert f"X(16)/X(8) = {growth}" in plateau.text
    assert plateau.text.endswith("run C=32,64")


def test_printed_digits_widen_a_ratio() -> None:
    """~24 may be 23.5: then 24 -> 23.2 is a fall of 1.3 %, and flat is not excluded."""
    exact = published({1: 10.2, 8: 24.0, 16: 23.2})
    rounded = changed(exact, 8, rounding={"output_tok_s": 0.5}, approximate=["output_tok_s"])
    plateau, notes = plateau_of(arm(rounded))
    assert plateau is not None and plateau.text.startswith("provisional (1 doubling)")
    assert "falls by 3.3% from C=8 to C=16 (not proven: 1 launch)" in notes[0]
    plateau, notes = plateau_of(arm(exact))
    assert plateau is None and "no plateau: throughput falls at the highest level" in notes[0]


def test_one_doubling_stays_provisional_with_many_launches() -> None:
    plateau, _ = plateau_of(arm(launches({1: 10.2, 8: 23.0, 16: 23.1}, 6)))
    assert plateau is not None and not plateau.proven
    assert plateau.text.startswith("provisional (1 doubling)")
    assert plateau.ci_tok_s is not None


def test_two_doublings_are_proven_by_equivalence() -> None:
    plateau, notes = plateau_of(arm(launches(FLAT, 4)))
    assert plateau is not None and plateau.proven and notes == []
    assert (plateau.from_concurrency, plateau.doublings) == (8, 2.0)
    assert plateau.ci_tok_s is not None
    assert plateau.ci_tok_s[0] < 23.1 < plateau.ci_tok_s[1]
    assert "each later growth within ±3% (TOST) over 2 doublings" in plateau.text
    assert "hard" not in plateau.text


def test_two_doublings_of_one_launch_are_not_shown_to_be_flat() -> None:
    plateau, _ = plateau_of(arm(published(FLAT)))
    assert plateau is not None and not plateau.proven
    assert plateau.text.startswith("not shown to be flat (2 doublings)")
    assert "needs 4 launches at each level, there are 1" in plateau.text


def test_noise_is_no_flatness() -> None:
    plateau, _ = plateau_of(arm(launches(FLAT, 4, sd=0.05)))
    assert plateau is not None and not plateau.proven
    assert "could lie anywhere in [" in plateau.text


def test_an_approximate_figure_proves_nothing() -> None:
    cells = changed(launches(FLAT, 4), 16, approximate=["output_tok_s"])
    plateau, _ = plateau_of(arm(cells))
    assert plateau is not None and not plateau.proven
    assert "rests on an approximate figure" in plateau.text


def test_growth_at_the_end_is_no_plateau() -> None:
    plateau, notes = plateau_of(arm(launches({1: 10.0, 2: 19.0, 4: 35.0, 8: 60.0}, 4)))
    assert plateau is None
    assert notes == [n for n in notes if n.startswith("no plateau: throughput still grows at the highest level")]


def test_many_small_steps_do_not_hide_growth() -> None:
    """2.5 % a step, six steps from 8 to 16: each within δ, the doubling is +16 %."""
    levels = [8, 9, 10, 11, 13, 14, 16]
    plateau, _ = plateau_of(arm(launches({c: 20 * 1.025**i for i, c in enumerate(levels)}, 6, sd=0.001)))
    assert plateau is None or plateau.from_concurrency > 8
    assert plateau is None or not plateau.proven


def test_levels_need_not_be_doublings() -> None:
    plateau, _ = plateau_of(arm(launches({2: 12.0, 5: 20.0, 11: 20.1, 21: 20.0}, 5, sd=0.003)))
    assert plateau is not None and plateau.proven
    assert plateau.from_concurrency == 5 and plateau.doublings == pytest.approx(2.07, abs=0.01)
    plateau, _ = plateau_of(arm(launches({2: 12.0, 5: 20.0, 11: 20.1, 19: 20.0}, 5, sd=0.003)))
    assert plateau is not None and not plateau.proven and plateau.text.startswith("provisional (1.9 doublings)")


def test_a_proven_cliff_is_named_and_ends_a_plateau() -> None:
    plateau, notes = plateau_of(arm(launches({8: 23.0, 16: 23.1, 32: 23.0, 64: 12.0}, 4)))
    assert plateau is None
    assert any(n.startswith("cliff: throughput falls by 4") and "from C=32 to C=64" in n for n in notes)
    assert "no plateau: throughput falls at the highest level" in notes[0]


def test_a_level_of_two_rounds_of_requests_proves_neither_flatness_nor_a_fall() -> None:
    plateau, notes = plateau_of(arm(changed(launches(FLAT, 4), 32, n_ok=64)))
    assert plateau is not None and not plateau.proven and plateau.from_concurrency == 8
    assert "C=32 holds 2.0 rounds of requests, fewer than 3: run longer levels" in plateau.text
    plateau, notes = plateau_of(arm(changed(launches({8: 20.0, 16: 23.1, 32: 23.2}, 4), 32, n_ok=64)))
    assert plateau is not None and plateau.text.startswith("provisional (1 doubling)")
    assert plateau.text.endswith("; C=32 holds 2.0 rounds of requests, fewer than 3")
    fallen = changed(launches({8: 23.0, 16: 23.1, 32: 21.0}, 4), 32, n_ok=64)
    _, notes = plateau_of(arm(fallen))
    assert not any(n.startswith("cliff") for n in notes)
    assert any("falls by 9" in n and "not proven: C=32 holds 2.0 rounds" in n for n in notes)


def test_a_short_level_of_one_launch_that_fell_does_not_look_flat() -> None:
    plateau, _ = plateau_of(arm(changed(published({1: 10.2, 8: 23.0, 16: 20.0}), 16, n_ok=16)))
    assert plateau is None or plateau.text.startswith("not shown to be flat (1 doubling)")


def test_growth_to_a_short_level_is_growth() -> None:
    curve = {8: 23.0, 16: 30.0, 32: 45.0}
    (high,) = ladders(arm(changed(launches(curve, 4), 32, n_ok=64)))
    assert [g.trend for g in growths(high)] == ["grows", "grows"]  # its edges make it less, not more
    (low,) = ladders(arm(changed(launches(curve, 4), 8, n_ok=16)))
    assert [g.trend for g in growths(low)] == ["open", "grows"]


def test_of_several_configurations_none_is_of_another_source() -> None:
    full = [msgspec.structs.replace(c, full_load_tok_s=1.1 * (c.output_tok_s or 0)) for c in launches(FLAT, 4)]
    full = [msgspec.structs.replace(c, full_load_tpot_mean_s=0.1) for c in full]
    one = msgspec.structs.replace(arm(full), name="one")
    other = msgspec.structs.replace(arm(changed(full, 32, full_load_tok_s=None)), name="other")
    (alone,), (beside,) = ladders(one), ladders(one, sources([one, other]))
    assert (alone.measured_tok_s(8) or 0) == pytest.approx(1.1 * (beside.measured_tok_s(8) or 0))
    assert any("too few requests under full load at C=32" in n for n in beside.notes) and not alone.notes


def test_a_fall_of_one_launch_is_no_cliff() -> None:
    _, notes = plateau_of(arm(published({8: 23.0, 16: 23.1, 32: 18.0})))
    assert not any(n.startswith("cliff") for n in notes)
    assert any("falls by 22.1% from C=16 to C=32 (not proven: 1 launch)" in n for n in notes)


def test_a_dip_is_named() -> None:
    plateau, notes = plateau_of(arm(launches({1: 10.0, 8: 23.0, 16: 15.0, 32: 23.0, 64: 23.0}, 4)))
    assert any("not monotone: throughput dips at C=16 and grows again" in n for n in notes)
    assert any(n.startswith("cliff: throughput falls by 3") for n in notes)
    assert plateau is not None and plateau.from_concurrency == 32
    assert plateau.text.startswith("provisional (1 doubling)")


def test_one_level_has_no_growth() -> None:
    plateau, notes = plateau_of(arm(published({8: 23.0})))
    assert plateau is None and notes == ["no growth ratio: no launch has throughput at two levels"]


def test_growth_is_taken_within_a_launch() -> None:
    """A fast and a slow launch: their ratio is the same, and only levels of one launch meet."""
    cells = [*published({8: 20.0, 16: 20.0}, launch="L0"), *published({8: 30.0, 16: 30.0}, launch="L1")]
    (ladder,) = ladders(arm(cells))
    (g,) = growths(ladder)
    assert g.ratio == pytest.approx(1.0) and g.n_launches == 2
    cells = [*published({8: 20.0}, launch="L0"), *published({16: 30.0}, launch="L1")]
    (ladder,) = ladders(arm(cells))
    assert growths(ladder) == []


@pytest.mark.parametrize(("growth", "least", "most"), [(1.0, 0.85, 1.0), (1.03, 0.0, 0.08)])
def test_how_often_flatness_is_proven(growth: float, least: float, most: float) -> None:
    """σ 0.8 % a level: nearly always at a true 0 %, 5 % of the time (and its sampling error) at a true +δ."""
    curve = {8: 20.0, 16: 20.0 * growth, 32: 20.0 * growth}
    trials = 300
    found = [plateau_of(arm(launches(curve, 6, sd=0.008, seed=s)))[0] for s in range(trials)]
    share = sum(p is not None and p.proven for p in found) / trials
    assert least <= share <= most


def test_cliffs_are_rarely_seen_where_there_is_none() -> None:
    curve = {8: 20.0, 16: 20.0 * 0.97, 32: 20.0 * 0.97**2}  # each fall is exactly δ
    trials = 300
    notes = [plateau_of(arm(launches(curve, 4, sd=0.01, seed=s)))[1] for s in range(trials)]
    assert sum(any(n.startswith("cliff") for n in found) for found in notes) / trials <= 0.06
