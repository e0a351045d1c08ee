"""Integrity comes first: each way in which nothing (or something else) was measured, and that the gate then says so.

The numbers in brackets are those of the public complaints of gates that passed all the same, as docs/gate.md lists
them.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from dsv4bench.compare.injection import again, changed, changed_one, sample_arm, slowed, with_nan, without_a_level
from dsv4bench.compare.integrity import check, notes
from dsv4bench.compare.judgement import judge
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.gate import Outcome
from dsv4bench.records.request import TokenSource

BASE = sample_arm("base", seed=1)
COPY = again(BASE)


def codes(base: Arm, new: Arm) -> set[str]:
    return {b.code for b in check(base, new)}


def with_(**fields: Any) -> Arm:
    """The copy, its last cell changed."""
    return changed_one(COPY, lambda c: msgspec.structs.replace(c, **fields))


def everywhere(arm: Arm, **fields: Any) -> Arm:
    return changed(arm, lambda c: msgspec.structs.replace(c, **fields))


def test_sound_and_alike_arms_have_no_breach() -> None:
    assert check(BASE, COPY) == []


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (msgspec.structs.replace(COPY, cells=[]), "no_cells"),  # (1, 5)
        (without_a_level(COPY), "missing_cell"),  # (6, 13)
        (msgspec.structs.replace(COPY, complete=False), "incomplete"),
        (with_(n_ok=0, n_err=48), "no_requests"),  # (2)
        (with_(n_err=1, errors={"http_503": 1}), "errors"),  # (47)
        (with_(invalid=Invalid.CLIENT_SATURATED, invalid_why="lag"), "invalid"),
        (with_nan(COPY), "not_finite"),  # (15, 17)
        (with_(output_tok_s=math.inf, output_tokens=None), "not_finite"),
        (with_(output_tok_s=0.0, output_tokens=None), "not_positive"),  # (12, 16)
        (with_(ttft_p50_s=-0.1), "not_positive"),
        (with_(output_tok_s=None), "missing_value"),  # (10)
        (with_(tpot_p50_s=None), "missing_value"),
        (with_(token_source=TokenSource.CHUNKS), "token_source"),  # (9, 48)
        (with_(approximate=["output_tok_s"]), "approximate"),
        (with_(duration_s=0.0), "duration"),
        (with_(output_tok_s=400.0), "arithmetic"),  # (21): another quantity under this name
        (with_(e2e_mean_s=2.0, e2e_p99_s=2.0), "littles_law"),
        (with_(e2e_mean_s=60.0, e2e_p99_s=60.0), "littles_law"),
        (with_(steady_s=20.0, achieved_batch=12.0), "littles_law"),
        (everywhere(COPY, osl_mean=200.0), "token_parity"),  # (50)
        (everywhere(COPY, isl_mean=900.0), "prompt_parity"),  # (57)
        (everywhere(COPY, accept_length=1.9), "accept_length"),
        (with_(gpu_throttle=["hw_thermal"]), "throttled"),  # (41)
        (msgspec.structs.replace(COPY, workload={"model": "other"}), "not_alike"),
        (msgspec.structs.replace(COPY, hardware={"gpus": "H200"}), "hardware"),
    ],
)
def test_each_breach_is_seen_and_ends_the_gate(new: Arm, code: str) -> None:
    assert code in codes(BASE, new)
    found = judge(BASE, new)
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert found.cells == [] and found.n_compared == 0
    assert any(text.startswith(f"{code}: ") for text in found.integrity)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ({"prefix_hit_frac": 0.0}, {"prefix_hit_frac": 0.3}, "prefix_hit"),  # (45)
        ({"accept_length": 2.0}, {"accept_length": 1.9}, "accept_length"),
        ({"gpu_sm_clock_mean_mhz": 1900.0}, {"gpu_sm_clock_mean_mhz": 1800.0}, "clock"),  # (41)
        (
            {"server_running_mean": 8.0, "server_waiting_mean": 0.0, "achieved_batch": 8.0},
            {"server_running_mean": 4.0, "server_waiting_mean": 0.0, "achieved_batch": 8.0},
            "gauges",  # (51): half of what the client held never reached this server
        ),
    ],
)
def test_what_must_be_equal_on_both_sides(before: dict[str, float], after: dict[str, float], code: str) -> None:
    base = everywhere(BASE, **before)
    assert codes(base, everywhere(COPY, **before)) == set()
    assert codes(base, everywhere(COPY, **after)) == {code}


def test_a_level_too_many_is_a_breach_in_the_other_direction() -> None:
    assert "missing_cell" in codes(without_a_level(BASE), COPY)


def test_a_launch_that_lacks_a_level_is_a_breach() -> None:
    paired = sample_arm("new", seed=2, blocks=4, late_min=20)
    gone = msgspec.structs.replace(paired, cells=paired.cells[:-1])
    assert codes(sample_arm("base", seed=1, blocks=4), gone) == {"missing_cell"}


def test_the_baseline_is_no_candidate_for_itself() -> None:
    assert codes(BASE, BASE) == {"same_measurement"}
    renamed = msgspec.structs.replace(BASE, ids=["copied"])
    assert codes(BASE, renamed) == {"same_measurement"}


def test_two_arms_without_any_cell_do_not_pass() -> None:
    empty = msgspec.structs.replace(BASE, cells=[])
    found = judge(empty, msgspec.structs.replace(empty, ids=["other"]))
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert found.n_expected == 0


def test_other_hardware_is_named_key_by_key() -> None:
    """(32, 33, 34): neither another GPU nor another power limit shares a baseline."""
    base = msgspec.structs.replace(BASE, hardware={"gpus": "H100 NVL", "power_limit_w": 400.0, "driver": "570.1"})
    same = msgspec.structs.replace(COPY, hardware={"gpus": "H100 NVL", "power_limit_w": 400.0, "driver": "570.9"})
    other = msgspec.structs.replace(COPY, hardware={"gpus": "H100 PCIe", "power_limit_w": 350.0, "driver": "570.1"})
    assert codes(base, same) == set()
    text = str(check(base, other)[0])
    assert "H100 NVL" in text and "H100 PCIe" in text and "power_limit_w" in text


def test_declared_errors_are_allowed() -> None:
    new = with_(n_err=1, errors={"http_503": 1})
    assert check(BASE, new, max_error_frac=0.05) == []


def test_the_drain_of_few_long_requests_is_no_breach() -> None:
    """The last of C requests run alone for up to one E2E; that much of the level may be less than full."""

    def with_drain(c: Cell) -> Cell:
        assert c.duration_s is not None and c.e2e_mean_s is not None and c.request_s is not None
        longer = 1 + 0.8 * c.e2e_mean_s / c.duration_s
        return msgspec.structs.replace(
            c, duration_s=c.duration_s * longer, request_s=c.request_s / longer, output_tok_s=None, output_tokens=None
        )

    assert "littles_law" not in codes(BASE, changed(COPY, with_drain))


def test_an_admission_cap_is_a_finding_and_no_breach() -> None:
    fields = {"achieved_batch": 16.0, "server_waiting_mean": 0.0, "server_running_mean": 16.0}
    capped = {"achieved_batch": 16.0, "server_waiting_mean": 8.0, "server_running_mean": 8.0}
    assert codes(everywhere(BASE, **fields), everywhere(COPY, **capped)) == set()


def test_a_declared_lever_may_change_the_acceptance_length() -> None:
    mtp = msgspec.structs.replace(everywhere(COPY, accept_length=1.9), levers=["mtp"])
    assert codes(BASE, mtp) == set()


def test_an_improvement_is_checked_as_hard_as_a_loss() -> None:
    """(7, 38): twice as fast with nothing declared is a fault of the measurement until a lever is named."""
    faster = changed(COPY, slowed(0.5))
    found = judge(BASE, faster)
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert {c.outcome for c in found.cells if c.metric != "ttft_p50_s"} == {Outcome.NOT_COMPARABLE}
    assert any(text.startswith("implausible: ") and "+100.0%" in text for text in found.integrity)
    assert judge(BASE, msgspec.structs.replace(faster, levers=["mtp"])).outcome is Outcome.PASS


def test_what_is_not_told_is_said() -> None:
    notes = judge(BASE, COPY).notes
    assert any("hardware not told" in n for n in notes)
    assert any("does not tell its arguments" in n for n in notes)
    assert any("one launch of one server" in n for n in notes)


def test_changed_arguments_are_named() -> None:
    base = msgspec.structs.replace(BASE, server={"version": "1", "tp": 4})
    new = msgspec.structs.replace(COPY, server={"version": "2", "tp": 4, "mtp": True})
    said = next(n for n in judge(base, new).notes if n.startswith("the servers differ"))
    assert "version: 1 -> 2" in said and "mtp: not told -> True" in said and "tp:" not in said.replace("mtp:", "")


@pytest.mark.parametrize(("mhz", "said"), [(1970.0, False), (1700.0, True)])
def test_a_power_cap_is_noted_where_the_clock_fell(mhz: float, said: bool) -> None:
    def capped(c: Cell) -> Cell:
        clock = mhz if c.concurrency == 16 else 1980.0
        return msgspec.structs.replace(c, gpu_throttle=["sw_power_cap"], gpu_sm_clock_mean_mhz=clock)

    found = notes(BASE, changed(COPY, capped))
    assert any("power limit" in line and "candidate" in line for line in found) is said
