"""What is checked before anything is sent, the order of levels, arrivals, and the estimate of time."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import msgspec
import pytest

from dsv4bench.errors import UsageError
from dsv4bench.records.workload import Plan
from dsv4bench.runs.options import MAX_VOCAB, SweepOptions, levels
from dsv4bench.runs.probe import Probed, estimate_s, requests_of
from dsv4bench.runs.sending import arrivals_ns


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": []}, "--concurrency"),
        ({"concurrency": [1, -1]}, "--concurrency 1,-1"),
        ({"concurrency": [8, 1, 8]}, "a value stands twice"),
        ({"isl": [0]}, "--isl 0"),
        ({"rates_req_s": [1.0, 0.0]}, "--rate 1,0"),
        ({"rates_req_s": [float("nan")]}, "--rate nan"),
        ({"rates_req_s": [float("inf")]}, "--rate inf"),
        ({"osl": 0}, "--osl 0"),
        ({"requests": 1, "duration_s": 1.0}, "--requests and --duration"),
        ({"requests": 0}, "--requests 0"),
        ({"repeat": 0}, "--repeat 0"),
        ({"timeout_s": 0.0}, "--timeout"),
        ({"duration_s": 0.0}, "--duration"),
        ({"arrivals": "bursty"}, "--arrivals bursty"),
        ({"vocab": 1}, "--vocab 1"),
        ({"vocab": MAX_VOCAB + 1}, "--vocab"),
    ],
)
def test_values_that_no_level_can_have(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        SweepOptions(**options).plan()
    assert said in refused.value.message


def test_the_defaults_are_the_designs() -> None:
    plan = SweepOptions().plan()
    assert (plan.concurrency, plan.isl, plan.repeat, plan.requests) == ([1, 8, 16], [1024], 1, None)
    assert SweepOptions().osl == 256 and SweepOptions().endpoint == "completions"
    assert [plan.requests_at(c) for c in (1, 5, 6, 16)] == [16, 16, 18, 48]
    assert SweepOptions(vocab=MAX_VOCAB).plan() == plan


def test_levels_are_in_order_with_repeats_outermost() -> None:
    plan = Plan(concurrency=[1, 8], isl=[16, 32], repeat=2)
    cells = [at.cell for at in levels(plan)]
    assert cells == [f"r{r}-c{c}-i{isl}" for r in (0, 1) for isl in (16, 32) for c in (1, 8)]
    assert len(set(cells)) == len(cells)
    assert levels(plan)[-1].label == "C=8 ISL 32 repeat 2"


def test_rates_take_the_place_of_concurrency() -> None:
    plan = SweepOptions(rates_req_s=[0.5, 2.0], isl=[16]).plan()
    assert [(at.cell, at.label) for at in levels(plan)] == [
        ("r0-q0.5-i16", "0.5 req/s ISL 16"),
        ("r0-q2-i16", "2 req/s ISL 16"),
    ]
    assert plan.concurrency == []


def test_constant_arrivals_do_not_drift() -> None:
    times = arrivals_ns(1001, 3.0, "constant", "seed")
    assert times[0] == 0 and times[3] == 1_000_000_000 and times[300] == 100 * 1_000_000_000
    assert len(times) == 1001


def test_poisson_arrivals_follow_their_seed_and_their_rate() -> None:
    times = arrivals_ns(4000, 50.0, "poisson", "a")
    assert times == arrivals_ns(4000, 50.0, "poisson", "a") != arrivals_ns(4000, 50.0, "poisson", "b")
    assert times == sorted(times) and times[0] == 0
    gaps = [(b - a) / 1e9 for a, b in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.08)  # exponential: deviation equals the mean


def test_arrivals_fill_a_duration_on_the_average() -> None:
    """A fixed number of arrivals cut at the end would fall short: about 8 % at twenty."""
    counts = [len(arrivals_ns(20, 2.0, "poisson", f"s{i}", 10.0)) for i in range(400)]
    assert statistics.fmean(counts) == pytest.approx(21, rel=0.03)  # the first is sent at 0
    assert max(counts) > 21 and min(counts) < 21
    assert all(t < 10e9 for i in range(20) for t in arrivals_ns(20, 2.0, "poisson", f"s{i}", 10.0))
    assert len(arrivals_ns(1, 2.0, "constant", "s", 10.0)) == 20


def test_requests_of_an_open_loop() -> None:
    def at(rate: float, **fields: Any) -> int:
        return requests_of(rate, Plan(concurrency=[], isl=[1], **fields))

    assert at(2.0, requests=7) == 7
    assert at(2.0, duration_s=10.0) == 20 and at(0.01, duration_s=10.0) == 1
    assert at(2.0) == 60 and at(0.1) == 16  # half a minute, at least 16


def test_the_estimate_is_between_free_batching_and_none() -> None:
    probed = msgspec.structs.replace(_probed(), ttft_s=1.0, tpot_s=0.1)
    plan = Plan(concurrency=[1, 4], isl=[100], requests=8)
    one = 1.0 + 0.1 * 20
    low, high = estimate_s(probed, plan, 20)
    assert low == pytest.approx((8 + 2) * one) and high == pytest.approx(16 * one)
    low, high = estimate_s(probed, Plan(concurrency=[4], isl=[100, 200], requests=4), 20)
    assert low == pytest.approx(one + 1.0 + one)  # a prompt twice as long takes twice the prefill
    low, high = estimate_s(probed, Plan(concurrency=[4], isl=[100], duration_s=60.0), 20)
    assert (low, high) == (pytest.approx(60 + one), pytest.approx(60 + 4 * one))  # the drain comes on top


def _probed() -> Probed:
    return Probed(
        sender=None,  # type: ignore[arg-type]
        source=None,  # type: ignore[arg-type]
        make_source=None,  # type: ignore[arg-type]
        dataset="random",
        vocab_size=None,
        vocab_source=None,
        ttft_s=0.0,
        tpot_s=0.0,
        notes=[],
    )
