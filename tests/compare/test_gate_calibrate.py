"""The noise of a rig: what relaunches and repeats tell, and what they cannot."""

from __future__ import annotations

import random

import msgspec
import pytest

from dsv4bench.compare.calibrate import calibrate, components, upper_bound
from dsv4bench.compare.injection import SIGMA_LAUNCH, SIGMA_RUN, sample_arm
from dsv4bench.errors import Unanswerable
from dsv4bench.records.arm import Arm

NOW = "2026-12-01T00:00:00Z"


def relaunches(n: int, repeats: int = 5) -> list[Arm]:
    return [sample_arm(f"L{i}", seed=i, repeats=repeats) for i in range(n)]


def test_components_recover_what_was_put_in() -> None:
    rng = random.Random(1)
    launches = [[m + rng.gauss(0, 0.006) for _ in range(5)] for m in (rng.gauss(0, 0.02) for _ in range(400))]
    run, launch = components(launches)
    assert run == pytest.approx(0.006, rel=0.05)
    assert launch == pytest.approx(0.02, rel=0.08)


def test_components_of_unequal_launches_are_unbiased() -> None:
    rng = random.Random(2)
    launches = [
        [m + rng.gauss(0, 0.01) for _ in range(1 + i % 5)]
        for i, m in enumerate(rng.gauss(0, 0.02) for _ in range(600))
    ]
    assert components(launches)[1] == pytest.approx(0.02, rel=0.08)


def test_no_spread_of_launches_is_zero_and_not_negative() -> None:
    assert components([[0.0, 0.02], [0.02, 0.0]])[1] == 0.0


def test_what_cannot_be_told_is_none() -> None:
    assert components([[0.0, 0.01]])[1] is None
    assert components([[0.0], [0.01]])[0] is None


def test_relaunches_with_repeats_tell_both() -> None:
    found = calibrate(relaunches(12), NOW)
    assert found.sigma_run_frac == pytest.approx(SIGMA_RUN, rel=0.35)
    assert found.sigma_launch_frac == pytest.approx(SIGMA_LAUNCH, rel=0.6)
    assert {f.n_launches for f in found.floors} == {12} and {f.n_repeats for f in found.floors} == {5}
    assert len(found.floors) == 9
    assert any("may be up to" in n for n in found.notes) and any("drift between days" in n for n in found.notes)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_launches_do_not_tell_their_spread(n: int) -> None:
    """Two launches may be equal by chance; a σ of zero would then pass everything."""
    found = calibrate(relaunches(n), NOW)
    assert found.sigma_launch_frac is None and found.sigma_run_frac is not None
    assert any("cannot be told from so few" in note for note in found.notes)


def test_single_runs_put_the_spread_of_runs_into_that_of_launches() -> None:
    found = calibrate(relaunches(6, repeats=1), NOW)
    assert found.sigma_run_frac is None and found.sigma_launch_frac is not None
    assert any("sweep --repeat 5 parts them" in n for n in found.notes)


def test_nothing_repeated_is_refused() -> None:
    with pytest.raises(Unanswerable, match="nothing was measured twice"):
        calibrate(relaunches(1, repeats=1), NOW)


def test_another_workload_is_no_relaunch() -> None:
    one, two = relaunches(2)
    with pytest.raises(Unanswerable, match="model: sample vs other"):
        calibrate([one, msgspec.structs.replace(two, workload={"model": "other"})], NOW)


def test_other_arguments_are_no_relaunch() -> None:
    one, two = (msgspec.structs.replace(a, server={"tp": i}) for i, a in enumerate(relaunches(2)))
    with pytest.raises(Unanswerable, match="served differently: tp"):
        calibrate([one, two], NOW)


def test_unsound_cells_are_refused() -> None:
    one = relaunches(1)[0]
    broken = msgspec.structs.replace(one, cells=[msgspec.structs.replace(one.cells[0], n_ok=0), *one.cells[1:]])
    with pytest.raises(Unanswerable, match="no request succeeded"):
        calibrate([broken], NOW)


def test_the_upper_bound_covers() -> None:
    """Of 1000 sets of four launches, the bound lies above the truth in about 95 %."""
    rng = random.Random(4)
    covered = 0
    for _ in range(1000):
        seen = components([[rng.gauss(0, 0.01)] for _ in range(4)])[1]
        assert seen is not None
        covered += upper_bound(seen, 4) >= 0.01
    assert 0.93 <= covered / 1000 <= 0.97
