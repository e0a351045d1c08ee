"""The gate's rules on numbers, and their operating characteristic by simulation.

Stated for every simulation: α = 0.05 over three looks (4, 6, 8 pairs), δ = 5 %, σ_launch 1 %, σ_run 0.6 %, a fixed
seed.
"""

from __future__ import annotations

import math
import random

import pytest

from dsv4bench.compare import gate
from dsv4bench.compare.gate import decide, log_limit, overall, to_frac
from dsv4bench.compare.statistics import Estimate, paired
from dsv4bench.records.gate import Outcome

SIGMA_LAUNCH, SIGMA_RUN = 0.010, 0.006
LIMIT = log_limit("output_tok_s", 0.05)
TRIALS = 600


def one_cell(d: list[float], alpha: float = 0.05) -> Outcome:
    return decide({"c": paired(d)}, {"c": LIMIT}, alpha)["c"]


def sequential(rng: random.Random, true_frac: float, cells: int = 1) -> tuple[Outcome, int]:
    """Pairs are added at 4, 6 and 8 until the gate decides; a launch's noise is shared by nothing."""
    sd = math.sqrt(2 * (SIGMA_LAUNCH**2 + SIGMA_RUN**2))
    d: list[list[float]] = [[] for _ in range(cells)]
    for n in gate.LOOKS:
        for one in d:
            one += [rng.gauss(math.log1p(true_frac), sd) for _ in range(n - len(one))]
        alpha, looks = gate.alpha_at(n)
        assert looks == 3
        found = overall(
            list(decide({i: paired(x) for i, x in enumerate(d)}, dict.fromkeys(range(cells), LIMIT), alpha).values())
        )
        if found is not Outcome.INCONCLUSIVE:
            return found, n
    return Outcome.INCONCLUSIVE, gate.LOOKS[-1]


def shares(true_frac: float, cells: int = 1, trials: int = TRIALS) -> dict[Outcome, float]:
    rng = random.Random(20261129)
    found = [sequential(rng, true_frac, cells)[0] for _ in range(trials)]
    return {o: found.count(o) / trials for o in Outcome}


def test_no_change_passes() -> None:
    assert shares(0.0)[Outcome.PASS] >= 0.99


def test_a_loss_of_exactly_the_limit_hardly_ever_passes() -> None:
    assert shares(-0.05)[Outcome.PASS] <= 0.05


def test_seven_percent_fails() -> None:
    found = shares(-0.07)
    assert found[Outcome.FAIL] >= 0.99
    assert found[Outcome.PASS] == 0.0


def test_a_loss_between_is_said_to_be_undecided_more_often_than_not_seen() -> None:
    found = shares(-0.04)
    assert found[Outcome.INCONCLUSIVE] > 0.3
    assert found[Outcome.FAIL] < 0.3


def test_fifteen_cells_are_no_lottery() -> None:
    """Fifteen tests at 5 % would raise a false alarm in half of all runs; Holm and the limit keep it off."""
    quiet, slow = shares(0.0, cells=15, trials=100), shares(-0.07, cells=15, trials=100)
    assert quiet[Outcome.PASS] >= 0.97 and quiet[Outcome.FAIL] == 0.0
    assert slow[Outcome.FAIL] >= 0.97


@pytest.mark.parametrize(
    ("true_frac", "outcome", "low", "high"),
    [
        (0.0, Outcome.PASS, 0.75, 0.95),
        (0.0, Outcome.FAIL, 0.0, 0.01),
        (-0.10, Outcome.PASS, 0.0, 0.05),
        (-0.20, Outcome.FAIL, 0.97, 1.0),
    ],
)
def test_stored_mode_by_simulation(true_frac: float, outcome: Outcome, low: float, high: float) -> None:
    """One launch of five runs each, σ_launch 1.5 %, σ_day 2 % (as assumed), δ 10 %, one look."""
    rng = random.Random(7)
    found = []
    for _ in range(TRIALS):
        sides = []
        for effect in (0.0, math.log1p(true_frac)):
            centre = effect + rng.gauss(0, 0.015) + rng.gauss(0, 0.02)
            sides.append([[centre + rng.gauss(0, SIGMA_RUN) for _ in range(5)]])
        e = gate.stored(sides[0], sides[1], sigma_launch=0.015, sigma_day=0.02)
        found.append(decide({"c": e}, {"c": log_limit("output_tok_s", 0.10)}, gate.ALPHA)["c"])
    assert low <= found.count(outcome) / TRIALS <= high


def test_the_stored_error_is_what_it_says() -> None:
    """se² = s_A²/R + s_B²/R + 2(σ_L² + σ_day²)."""
    base, new = [[0.00, 0.01, 0.02, 0.03, 0.04]], [[0.00, 0.02, 0.04, 0.06, 0.08]]
    e = gate.stored(base, new, sigma_launch=0.015, sigma_day=0.02)
    s2_a, s2_b = 0.00025, 0.001
    assert e.theta == pytest.approx(0.02)
    assert e.se == pytest.approx(math.sqrt((s2_a + s2_b) / 5 + 2 * (0.015**2 + 0.02**2)))


def test_a_base_of_many_launches_and_days_carries_less_noise() -> None:
    launches = [[0.0, 0.001, -0.001]] * 4
    one = gate.stored(launches[:1], launches[:1], sigma_launch=0.015, sigma_day=0.02)
    many = gate.stored(launches, launches[:1], sigma_launch=0.015, sigma_day=0.02, days=(4, 1))
    assert many.se**2 - 0.0 == pytest.approx(one.se**2 * 1.25 / 2, rel=0.02)


def test_not_a_number_never_passes_and_never_fails() -> None:
    broken = Estimate(theta=math.nan, se=0.01, nu=3, pair_sd=0.02)
    assert decide({"c": broken}, {"c": LIMIT}, 0.05)["c"] is Outcome.INCONCLUSIVE
    endless = Estimate(theta=0.0, se=math.nan, nu=3, pair_sd=0.02)
    assert decide({"c": endless}, {"c": LIMIT}, 0.05)["c"] is Outcome.INCONCLUSIVE


def test_nothing_compared_is_no_pass() -> None:
    assert overall([]) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Outcome.PASS, Outcome.PASS], Outcome.PASS),
        ([Outcome.PASS, Outcome.INCONCLUSIVE], Outcome.INCONCLUSIVE),
        ([Outcome.INCONCLUSIVE, Outcome.FAIL], Outcome.FAIL),
        ([Outcome.FAIL, Outcome.NOT_COMPARABLE], Outcome.NOT_COMPARABLE),
    ],
)
def test_the_worst_cell_speaks_for_all(outcomes: list[Outcome], expected: Outcome) -> None:
    assert overall(outcomes) is expected


def test_equal_values_do_not_claim_certainty() -> None:
    assert one_cell([-0.0505] * 4, 0.05 / 3) is Outcome.INCONCLUSIVE  # within the floor's error of the limit


def test_a_significant_loss_below_the_limit_is_no_failure() -> None:
    assert one_cell([-0.030, -0.031, -0.029, -0.030]) is Outcome.PASS


def test_holm_guards_the_failures() -> None:
    """p = 0.03 fails alone and not among five."""
    d = [-0.03, -0.10, -0.04, -0.09]
    alone = paired(d)
    assert 0.01 < alone.p_value() < 0.05
    calm = paired([0.0, 0.001, -0.001, 0.0])
    assert decide({0: alone}, {0: LIMIT}, 0.05)[0] is Outcome.FAIL
    among = decide({0: alone, **dict.fromkeys(range(1, 5), calm)}, dict.fromkeys(range(5), LIMIT), 0.05)
    assert among[0] is Outcome.INCONCLUSIVE and among[1] is Outcome.PASS


def test_alpha_is_split_over_every_look_that_may_be_taken() -> None:
    assert gate.alpha_at(4) == gate.alpha_at(8) == (pytest.approx(0.05 / 3), 3)
    assert gate.alpha_at(12)[1] == 5


def test_directions_and_limits_are_of_the_metric_itself() -> None:
    assert to_frac("output_tok_s", math.log(0.9)) == pytest.approx(-0.1)
    assert to_frac("tpot_p50_s", -math.log(1.25)) == pytest.approx(0.25)  # worse: longer
    assert -log_limit("output_tok_s", 0.05) == pytest.approx(math.log(0.95))
    assert -log_limit("tpot_p50_s", 0.05) == pytest.approx(-math.log(1.05))


def test_what_could_be_seen_is_seen_four_times_in_five() -> None:
    sd, n, rng = 0.03, 6, random.Random(3)
    e = Estimate(theta=0.0, se=sd / math.sqrt(n), nu=n - 1, pair_sd=sd)
    loss = gate.could_see(e, LIMIT, 0.05)
    hits = sum(one_cell([rng.gauss(-loss, sd) for _ in range(n)]) is Outcome.FAIL for _ in range(TRIALS))
    assert 0.72 <= hits / TRIALS <= 0.92
