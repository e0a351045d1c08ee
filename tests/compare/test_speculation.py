"""Speculation: tokens a step against the longer step, at each concurrency of the published campaign."""

from __future__ import annotations

import pytest
from arms_made import make_arm, make_cell

from dsv4bench.compare.speculation import speculates, speculation
from dsv4bench.records.arm import Arm
from dsv4bench.records.verdict import SpecState


def arm(name: str, figures: tuple[float, float, float], accept: float | None = None, **more: object) -> Arm:
    cells = [make_cell(x, c, accept_length=accept) for x, c in zip(figures, (1, 8, 16), strict=True)]
    return make_arm(name, cells, **more)


A = arm("A", (10.7, 22.6, 23.2))


def test_step_inflation_of_the_campaign() -> None:
    """Acceptance 1.92: the step grows x1.31 at C=1, x1.87 at C=8, x1.89 at C=16; 0.95 x 1.92 is 1.824."""
    found = speculation(A, arm("B", (15.7, 23.2, 23.6), 1.92, levers=["mtp"]))
    assert [v.step_time_ratio for v in found] == [pytest.approx(x, abs=0.005) for x in (1.31, 1.87, 1.89)]
    assert [v.state for v in found] == [SpecState.PAYS, SpecState.SATURATED, SpecState.SATURATED]
    assert found[0].reason == (
        "tokens/step 1.00->1.92, step with prefill x1.31, throughput x1.47; A shows no speculation: 1 token a step"
    )


@pytest.mark.parametrize(
    ("tpot_ms", "by_tpot", "taker"),
    [(20.1, 1.93, "the longer step takes"), (15.0, 1.44, "prefill and waiting, not the longer step alone, take")],
)
def test_the_step_by_tpot_stands_beside_that_of_throughput(tpot_ms: float, by_tpot: float, taker: str) -> None:
    base = make_arm("A", [make_cell(100.0, 8, tpot_p50_s=0.020)])
    new = make_arm("B", [make_cell(92.0, 8, tpot_p50_s=tpot_ms / 1e3, accept_length=1.92)], levers=["mtp"])
    (v,) = speculation(base, new)
    assert v.step_time_ratio == pytest.approx(1.92 / 0.92) and v.step_by_tpot_ratio == pytest.approx(
        by_tpot, abs=0.005
    )
    assert v.state is SpecState.SATURATED
    assert f"step with prefill x2.09 (by TPOT x{by_tpot:.2f}), throughput x0.92: {taker} back" in v.reason


def test_no_acceptance_length_no_cause() -> None:
    found = speculation(A, arm("B", (15.7, 23.2, 23.6), levers=["mtp"]))
    assert {v.state for v in found} == {SpecState.NOT_MEASURED}
    assert found[0].reason == "B recorded no acceptance length"
    assert found[0].throughput_ratio == pytest.approx(1.467, abs=1e-3)
    assert found[0].step_time_ratio is None


def test_few_accepted_tokens() -> None:
    found = speculation(A, arm("B", (11.0, 20.0, 20.0), 1.15))
    assert {v.state for v in found} == {SpecState.ACCEPT_LIMITED}


def test_against_a_base_that_speculates_too() -> None:
    (v, *_) = speculation(arm("mtp1", (15.0, 22.0, 23.0), 1.92), arm("mtp2", (16.5, 22.0, 23.0), 2.61))
    assert v.step_time_ratio == pytest.approx(2.61 / 1.92 / 1.1)
    assert v.tokens_per_step_base == 1.92
    silent = make_arm("mtp1", A.cells, server={"args.speculative_algorithm": "EAGLE"})
    (v, *_) = speculation(silent, arm("mtp2", (16.5, 22.0, 23.0), 2.61))
    assert v.state is SpecState.NOT_MEASURED
    assert v.reason.startswith("mtp1 recorded no acceptance length")


def test_a_rounded_figure_and_unlike_lengths_give_no_cause() -> None:
    rough = make_arm("base", [make_cell(24.0, 8, approximate=["output_tok_s"])])
    (v,) = speculation(rough, make_arm("B", [make_cell(23.2, 8, accept_length=1.92)]))
    assert (v.state, v.reason) == (SpecState.NOT_MEASURED, "'~24' enters no verdict")
    long = make_arm("A", [make_cell(20.0, 8, osl_mean=256.0)])
    (v,) = speculation(long, make_arm("B", [make_cell(23.2, 8, osl_mean=128.0, accept_length=1.92)]))
    assert (v.state, v.reason) == (SpecState.NOT_MEASURED, "osl_mean: 256.0 vs 128.0")


def test_nothing_is_said_of_arms_that_do_not_speculate() -> None:
    assert speculation(A, arm("C", (11.0, 23.0, 23.0))) == []


@pytest.mark.parametrize(
    ("server", "on"),
    [
        ({"speculative_algorithm": "EAGLE"}, True),
        ({"args.speculative_algorithm": None, "args.speculative_num_steps": 0}, False),
        ({"args.num_nextn_predict_layers.mtp": "none"}, False),
        ({"args.special_tokens": "x"}, False),
    ],
)
def test_settings_that_show_speculation(server: dict[str, object], on: bool) -> None:
    assert speculates(make_arm("x", [], server=server)) is on
