"""Is a lever live? Every source, every way of matching, and how launches are joined; a dead lever has no verdict."""

from __future__ import annotations

from typing import Any

import pytest
from arms_made import launches, make_arm

from dsv4bench.compare.levers import lever_verdict
from dsv4bench.compare.live import lever_live, merge, why_not
from dsv4bench.compare.verdicts import compare_arms
from dsv4bench.records.campaign import LeverLive, Live
from dsv4bench.records.verdict import CellVerdict, LeverStatus, Verdict
from dsv4bench.report.compare import lever_lines
from dsv4bench.report.findings.tables import lever_notes
from dsv4bench.scenario.launched import LiveSpec

NOTHING: dict[str, Any] = {"args": None, "env": None, "log": None, "kernels": None}
ARGS = {
    "tp_size": 8,
    "moe-runner-backend": "marlin",
    "enable_mtp": True,
    "quantization": None,
    "dtype": "torch.bfloat16",
    "speculative_config": '{"method": "mtp", "num_speculative_tokens": 2}',
    "parallel_config": {"tensor_parallel_size": 4, "seed": 1},
    "cache_config": {"seed": 2},
    "env": {"NCCL_PROTO": "LL"},
}


def looked(spec: LiveSpec, **sources: Any) -> LeverLive:
    return lever_live("B", "mtp", spec, **(NOTHING | sources), kernels_note="no profile of this launch")


def state(spec: LiveSpec, **sources: Any) -> Live:
    return looked(spec, **sources).state


@pytest.mark.parametrize(
    ("name", "wanted", "found"),
    [
        ("tp_size", 8, Live.LIVE),
        ("--tp-size", "8", Live.LIVE),
        ("tp_size", 8.0, Live.LIVE),
        ("tp_size", 4, Live.NOT_LIVE),
        ("moe_runner_backend", "marlin", Live.LIVE),
        ("moe_runner_backend", "Marlin", Live.NOT_LIVE),  # a server's names are as it writes them
        ("enable_mtp", "true", Live.LIVE),
        ("enable-mtp", True, Live.LIVE),
        ("enable_mtp", False, Live.NOT_LIVE),
        ("enable_mtp", 1, Live.NOT_LIVE),
        ("quantization", None, Live.LIVE),
        ("quantization", "fp8", Live.NOT_LIVE),
        ("dtype", "bfloat16", Live.LIVE),
        ("dtype", "float16", Live.NOT_LIVE),
        ("never_heard_of", None, Live.LIVE),
        ("never_heard_of", "x", Live.UNKNOWN),
        ("speculative_config.method", "mtp", Live.LIVE),
        ("speculative-config.num-speculative-tokens", "2", Live.LIVE),
        ("num_speculative_tokens", 3, Live.NOT_LIVE),
        ("speculative_config", '{"num_speculative_tokens": 2, "method": "mtp"}', Live.LIVE),
        ("tensor_parallel_size", 4, Live.LIVE),  # the last part of a dotted key
        ("parallel_config.seed", 1, Live.LIVE),
        ("seed", 1, Live.UNKNOWN),  # one of two
        ("seed", 3, Live.NOT_LIVE),  # neither
        ("env.NCCL_PROTO", "LL", Live.LIVE),
    ],
)
def test_arguments(name: str, wanted: Any, found: Live) -> None:
    assert state(LiveSpec(args={name: wanted}), args=ARGS) is found


def test_what_was_seen_is_said() -> None:
    (check,) = looked(LiveSpec(args={"tp_size": 4}), args=ARGS).checks
    assert (check.where, check.wanted, check.seen) == ("args", "tp_size=4", "tp_size=8")
    (several,) = looked(LiveSpec(args={"seed": 1}), args=ARGS).checks
    assert several.seen == "parallel_config.seed=1, cache_config.seed=2"
    assert several.note is not None and "whole dotted key" in several.note


def test_the_environment() -> None:
    spec = LiveSpec(env={"NCCL_PROTO": "LL"})
    assert state(spec, env={"NCCL_PROTO": "LL"}) is Live.LIVE
    assert state(spec, env={"NCCL_PROTO": "Simple"}) is Live.NOT_LIVE
    unset = looked(spec, env={})
    assert (unset.state, unset.checks[0].seen) == (Live.NOT_LIVE, "NCCL_PROTO is not set")
    for env in (None, {"NCCL_PROTO": None}):
        hidden = looked(spec, env=env)
        assert (hidden.state, hidden.checks[0].seen) == (Live.UNKNOWN, None)
        assert hidden.checks[0].note is not None and "cannot be read" in hidden.checks[0].note


def test_the_log() -> None:
    spec = LiveSpec(log=[r"Using .*\bMARLIN\b"], log_absent=["Falling back"])
    log = "start\n INFO Using the MARLIN backend \nready\n"
    good = looked(spec, log=log)
    assert (good.state, good.checks[0].seen) == (Live.LIVE, "INFO Using the MARLIN backend")
    assert state(spec, log="start\nready") is Live.NOT_LIVE
    fell = looked(spec, log=log + "WARN Falling back to Triton\n")
    assert (fell.state, fell.checks[1].wanted, fell.checks[1].seen) == (
        Live.NOT_LIVE,
        "no Falling back",
        "WARN Falling back to Triton",
    )
    assert state(spec, log=" \n") is Live.UNKNOWN, "an empty log proves no absence"
    assert state(spec) is Live.UNKNOWN


def test_the_kernels() -> None:
    spec = LiveSpec(kernels=["marlin"], kernels_absent=["slot_gemv"])
    assert state(spec, kernels=["Marlin<256>", "void marlin::moe<1>"]) is Live.LIVE
    assert state(spec, kernels=["rmsnorm"]) is Live.NOT_LIVE
    assert state(spec, kernels=["marlin", "_mxfp4_slot_gemv_kernel"]) is Live.NOT_LIVE
    unseen = looked(spec, kernels=[])
    assert unseen.state is Live.UNKNOWN
    assert {c.note for c in unseen.checks} == {"no profile of this launch"}


def test_nothing_asked_is_unknown() -> None:
    found = looked(LiveSpec(), args=ARGS, env={}, log="x", kernels=["k"])
    assert (found.state, found.checks, why_not(found)) == (Live.UNKNOWN, [], None)


def test_one_contradiction_outweighs_what_could_not_be_looked_at() -> None:
    spec = LiveSpec(args={"tp_size": 4}, kernels=["marlin"], env={"A": "1"})
    found = looked(spec, args=ARGS, env={"A": "1"})
    assert [c.state for c in found.checks] == [Live.NOT_LIVE, Live.LIVE, Live.UNKNOWN]
    assert found.state is Live.NOT_LIVE
    assert why_not(found) == "args: tp_size=4 was wanted, tp_size=8 was seen"
    assert state(LiveSpec(args={"tp_size": 8}, kernels=["marlin"]), args=ARGS) is Live.UNKNOWN


def test_a_broken_pattern_is_a_check_that_could_not_be_made() -> None:
    found = looked(LiveSpec(log=["(unclosed"]), log="x")
    assert found.state is Live.UNKNOWN
    assert found.checks[0].note is not None and "not a regular expression" in found.checks[0].note


def test_long_lines_are_cut() -> None:
    (check,) = looked(LiveSpec(log=["needle"]), log="needle " + "x" * 5000).checks
    assert check.seen is not None and len(check.seen) < 200


def test_launches_are_joined_check_by_check() -> None:
    spec = LiveSpec(args={"tp_size": 8}, kernels=["marlin"])
    first = looked(spec, args=ARGS, kernels=["marlin"])
    later = looked(spec, args=ARGS)
    assert later.state is Live.UNKNOWN
    joined = merge([first, later, later])
    assert joined.state is Live.LIVE  # its kernels are recorded once
    assert [c.note for c in joined.checks] == [None, "seen in 1 of 3 launches"]
    assert merge([later, later]).state is Live.UNKNOWN
    assert merge([first]) == first


def test_not_live_in_one_launch_is_not_live_and_which_is_said() -> None:
    spec = LiveSpec(env={"A": "1"})
    good, bad = looked(spec, env={"A": "1"}), looked(spec, env={"A": "0"})
    joined = merge([good, bad, good])
    assert (joined.state, joined.checks[0].note) == (Live.NOT_LIVE, "in launch 2 of 3 launches")
    assert why_not(joined) == "env: A=1 was wanted, A=0 was seen (in launch 2 of 3 launches)"
    named = merge([good, bad], ["block 1", "block 2"])
    assert named.checks[0].note == "in block 2 of 2 launches"
    with pytest.raises(ValueError, match="no launch"):
        merge([])


# what comes of it in a comparison

WHY = "env: A=1 was wanted, A is not set was seen"
QUIET = [100.0, 100.4, 99.6, 100.2, 99.8]


def judged(base_dead: str | None, new_dead: str | None, versus: Any = "parent") -> tuple[CellVerdict, Any]:
    base = make_arm("A", launches(QUIET), server={"args.x": 1}, not_live=base_dead)
    faster = launches([2 * v for v in QUIET])
    new = make_arm("B", faster, server={"args.x": 2}, parent="A", levers=["x"], not_live=new_dead)
    lever = lever_verdict(base, new)
    (cell,) = compare_arms(base, new, versus=versus, metrics=["output_tok_s"], lever=lever)
    return cell, lever


def test_a_live_lever_has_its_verdict() -> None:
    cell, lever = judged(None, None)
    assert (cell.verdict, lever.status) == (Verdict.GAIN, LeverStatus.VERIFIED)


@pytest.mark.parametrize("versus", ["parent", "baseline"])
def test_a_lever_that_is_not_live_has_none(versus: str) -> None:
    cell, lever = judged(None, WHY, versus)
    assert (cell.verdict, cell.grade, cell.delta_frac) == (Verdict.NOT_COMPARABLE, None, None)
    assert cell.reason == f"lever not live in B: {WHY}"
    assert lever.status is LeverStatus.NOT_LIVE
    assert "lever x: not live" in lever_lines([lever])[0]
    assert lever_lines([lever])[-1] == f"  {WHY}"
    assert f"lever not live; {WHY}" in lever_notes(lever).replace("\\_", "_")


def test_nor_has_what_is_held_against_it() -> None:
    cell, lever = judged(WHY, None)
    assert (cell.verdict, cell.reason) == (Verdict.NOT_COMPARABLE, f"lever not live in A: {WHY}")
    assert lever.status is LeverStatus.VERIFIED
    assert any("A is not what it is named for" in note for note in lever.notes)
