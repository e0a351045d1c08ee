"""From two arms to an outcome: which mode, which cells, and what is made of a drop of throughput."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from dsv4bench.compare.injection import again, capped, changed, paired_from, sample_arm, slowed, with_few_requests
from dsv4bench.compare.judgement import Rules, judge
from dsv4bench.compare.noise import ASSUMED, Noise, noise_of, smallest_limit_frac
from dsv4bench.errors import UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.calibration import Calibration, NoiseFloor
from dsv4bench.records.cell import Cell
from dsv4bench.records.gate import GateCell, GateDocument, Outcome

STORED = sample_arm("base", seed=1)
STORED_AGAIN = again(STORED)
BASE = sample_arm("base", seed=1, blocks=6)
NEW = sample_arm("new", seed=2, blocks=6, late_min=20)


def cell(d: GateDocument, metric: str, concurrency: int = 16) -> GateCell:
    return next(c for c in d.cells if c.metric == metric and c.concurrency == concurrency)


def test_pairs_of_launches_are_judged_as_pairs() -> None:
    found = judge(BASE, NEW)
    assert (found.mode, found.outcome, found.looks) == ("paired", Outcome.PASS, 3)
    assert found.alpha == pytest.approx(0.05 / 3)
    assert found.n_compared == found.n_expected == len(found.cells) == 9
    assert {c.n for c in found.cells} == {6}
    assert found.sigma_launch_frac is None
    assert {c.metric: c.limit_frac for c in found.cells} == {
        "output_tok_s": 0.05,
        "tpot_p50_s": 0.05,
        "ttft_p50_s": 0.1,
    }


def test_single_launches_are_judged_in_the_stored_mode() -> None:
    found = judge(STORED, STORED_AGAIN)
    assert (found.mode, found.outcome, found.looks) == ("stored", Outcome.PASS, 1)
    assert (found.sigma_launch_frac, found.sigma_day_frac, found.sigma_source) == (0.015, 0.02, "assumed")
    assert {c.limit_frac for c in found.cells} == {0.1}
    ci = cell(found, "output_tok_s").ci_frac
    assert ci is not None and ci[1] - ci[0] == pytest.approx(2 * 0.0693, rel=0.03)  # ±6.9 %, and the runs
    assert all(c.could_see_frac is not None and c.could_see_frac > 0.1 for c in found.cells)


def test_a_change_is_the_ratio_of_the_figures_beside_it() -> None:
    rng = random.Random(5)
    noisy = changed(STORED_AGAIN, lambda c: slowed(rng.uniform(0.7, 1.4))(c))
    for c in judge(STORED, noisy).cells:
        assert c.base and c.new and c.delta_frac == pytest.approx(c.new / c.base - 1)


def test_three_pairs_are_too_few_and_it_is_said() -> None:
    base, new = sample_arm("base", 1, blocks=3), sample_arm("new", 2, blocks=3, late_min=20)
    found = judge(base, new)
    assert found.mode == "stored" and found.outcome is Outcome.INCONCLUSIVE
    assert "3 pairs of launches, the paired mode needs 4" in found.notes
    assert {c.reason.split(":")[0] for c in found.cells} == {"3 runs in the baseline"}


def test_blocks_that_were_not_measured_in_turn_are_no_pairs() -> None:
    """AAAA BBBB under the names of pairs: drift would pass for a change."""
    late = sample_arm("new", seed=2, blocks=6, late_min=60 * 6)
    found = judge(BASE, late)
    assert found.mode == "stored"
    assert any("not measured in turn" in n for n in found.notes)


def test_seven_percent_slower_fails_and_says_where_it_shows() -> None:
    found = judge(BASE, changed(NEW, slowed(1.075)))
    assert found.outcome is Outcome.FAIL
    slow = cell(found, "output_tok_s")
    assert slow.outcome is Outcome.FAIL and slow.reason == "slower: throughput -6.9% with TPOT +7.5%, TTFT +7.5%"
    assert slow.delta_frac is not None and slow.delta_frac < -0.05
    tpot = cell(found, "tpot_p50_s")
    assert tpot.outcome is Outcome.FAIL and tpot.delta_frac is not None and tpot.delta_frac > 0.05


def test_a_capacity_loss_that_improves_tpot_is_caught_and_named() -> None:
    """A capped batch: throughput falls, TPOT improves, the wait is in TTFT; a gate on TPOT alone would praise it."""
    fields = {"server_running_mean": 6.0, "server_waiting_mean": 10.0}
    new = changed(NEW, lambda c: msgspec.structs.replace(capped(c), **fields))
    found = judge(BASE, new)
    assert found.outcome is Outcome.FAIL
    assert cell(found, "tpot_p50_s").outcome is Outcome.PASS
    reason = cell(found, "output_tok_s").reason
    assert reason.startswith("capacity lost: throughput -28") and "the server ran 6 of 16" in reason


def test_a_drop_that_no_latency_shows_is_no_regression_of_speed() -> None:
    def lost_between_requests(c: Cell) -> Cell:
        rate = {"output_tok_s": 0.97 * (c.output_tok_s or 0), "request_s": 0.97 * (c.request_s or 0)}
        return msgspec.structs.replace(c, duration_s=(c.duration_s or 0) / 0.97, **rate)

    limits = Rules(
        limits_frac={"output_tok_s": 0.015},
        noise=Noise(launch_frac={"output_tok_s": 0.001}, run_frac={"output_tok_s": 0.001}),
    )
    found = judge(BASE, changed(again_in_blocks(BASE), lost_between_requests), limits)
    drop = cell(found, "output_tok_s")
    assert drop.outcome is Outcome.INCONCLUSIVE and "lost between requests" in drop.reason
    assert found.outcome is Outcome.INCONCLUSIVE  # and never a pass


def again_in_blocks(arm: Arm) -> Arm:
    """The same figures with a trace of noise, twenty minutes later in each block."""
    rng = random.Random(9)
    cells = [slowed(rng.gauss(1, 1e-4))(c) for c in arm.cells]
    later = [
        msgspec.structs.replace(c, launch=f"new {c.launch}", started_utc=c.started_utc.replace(":00:00+", ":20:00+"))
        for c in cells
    ]
    return msgspec.structs.replace(arm, name="new", ids=["new"], cells=later)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (changed(STORED_AGAIN, with_few_requests), "2 requests in a cell of the candidate, 10 are needed"),
        (again(sample_arm("new", 3, repeats=2)), "2 runs in the candidate: their spread needs sweep --repeat 5"),
    ],
)
def test_too_little_is_inconclusive(new: Arm, why: str) -> None:
    """Neither silently skipped nor passed."""
    found = judge(STORED, new)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert (found.n_compared, found.n_expected) == (0, 9)
    assert {c.reason for c in found.cells} == {why}


def test_one_cell_too_small_spoils_a_pass() -> None:
    cells = [with_few_requests(c) if c.concurrency == 16 else c for c in STORED_AGAIN.cells]
    found = judge(STORED, msgspec.structs.replace(STORED_AGAIN, cells=cells))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.n_compared == 6 and cell(found, "output_tok_s", 8).outcome is Outcome.PASS


def test_a_metric_that_no_cell_has_is_not_gated_by() -> None:
    bare = changed(STORED, lambda c: msgspec.structs.replace(c, tpot_p50_s=None))
    found = judge(bare, again(bare))
    assert found.n_expected == 6 and {c.metric for c in found.cells} == {"output_tok_s", "ttft_p50_s"}


def test_a_limit_below_the_noise_is_refused() -> None:
    with pytest.raises(UsageError, match="below what single launches can tell"):
        judge(STORED, STORED_AGAIN, Rules(limits_frac={"output_tok_s": 0.03}))
    found = judge(STORED, STORED_AGAIN, Rules(limits_frac={"output_tok_s": 0.12}))
    assert cell(found, "output_tok_s").limit_frac == 0.12


def test_the_smallest_limit_is_the_half_width_of_two_equal_servers() -> None:
    single = smallest_limit_frac("tpot_p50_s", ASSUMED, paired=False)
    assert single == pytest.approx(0.073, abs=0.002)
    assert smallest_limit_frac("tpot_p50_s", ASSUMED, paired=True) < single
    quiet = Noise(launch_frac={"tpot_p50_s": 0.003}, run_frac={"tpot_p50_s": 0.002}, sigma_day_frac=0.0)
    assert smallest_limit_frac("tpot_p50_s", quiet, paired=False) < 0.01


def calibration(**fields: Any) -> Calibration:
    floors = [
        NoiseFloor(
            metric=m, concurrency=c, isl=1024, sigma_run_frac=0.004, sigma_launch_frac=s, n_launches=4, n_repeats=5
        )
        for m, c, s in (("output_tok_s", 1, 0.004), ("output_tok_s", 8, 0.006), ("ttft_p50_s", 1, 0.03))
    ]
    known: dict[str, Any] = {"created_utc": "", "config": "a", "ids": [], "floors": floors}
    return Calibration(**{**known, "sigma_launch_frac": 0.03, "sigma_run_frac": 0.004, **fields})


def test_calibrated_noise_is_used_metric_by_metric() -> None:
    noise = noise_of(calibration())
    assert (noise.launch("output_tok_s"), noise.launch("ttft_p50_s")) == (0.006, 0.03)
    assert noise.launch("tpot_p50_s") == 0.015 and noise.source == "calibrated"
    narrow, wide = judge(STORED, STORED_AGAIN, Rules(noise=noise)), judge(STORED, STORED_AGAIN)
    seen = [cell(d, "output_tok_s").could_see_frac for d in (narrow, wide)]
    assert seen[0] is not None and seen[1] is not None and seen[0] < seen[1]
    assert narrow.sigma_source == "calibrated"


def test_a_calibration_over_several_days_holds_their_drift() -> None:
    assert noise_of(calibration()).sigma_day_frac == 0.02
    assert noise_of(calibration(n_days=4)).sigma_day_frac == 0.0
    assert noise_of(None) == ASSUMED


def test_an_odd_launch_is_named() -> None:
    cells = [slowed(1.5)(c) if c.block == 3 and c.concurrency == 8 else c for c in NEW.cells]
    found = judge(BASE, msgspec.structs.replace(NEW, cells=cells))
    assert any("C=8" in n and "block 3 is far from the others" in n for n in found.notes)
    assert found.outcome is not Outcome.PASS


def test_losses_that_all_levels_share_are_named() -> None:
    """(35) Each level passes by itself, and all are worse."""

    def at_more_levels(arm: Arm) -> Arm:
        more = [msgspec.structs.replace(c, isl=2048, isl_mean=2048.0, cell=f"{c.cell}b") for c in arm.cells]
        return msgspec.structs.replace(arm, cells=[*arm.cells, *more])

    found = judge(at_more_levels(BASE), changed(at_more_levels(NEW), slowed(1.02)))
    assert found.outcome is Outcome.PASS
    assert any("throughput is lower at all 6 levels" in n for n in found.notes)


def test_an_aa_from_the_runs_of_one_launch_passes() -> None:
    base, new = paired_from(STORED)
    found = judge(base, new)
    assert (found.mode, found.outcome) == ("paired", Outcome.PASS)
