"""Ceilings and floors, against figures worked out by hand and against their own bounds."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.dsv4 import FLASH, ComponentCost, tiny
from dsv4bench.errors import UsageError
from dsv4bench.gpus import KNOWN, Gpu, Peaks, custom, find
from dsv4bench.limits import (
    Share,
    amdahl,
    ceiling_tok_s,
    output_tok_s,
    roofline,
    step_floor,
    step_s,
)

COPY_PEAK = custom("RTX PRO 6000, copy rate", 1460e9, kind="measured")

moe = Share(name="moe", share_frac=0.39, of="sum")
attention = Share(name="attention", share_frac=0.38, of="sum")
tail = Share(name="elementwise", share_frac=0.14, of="sum")


@st.composite
def share_sets(draw: st.DrawFn) -> list[Share]:
    parts = draw(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
    scale = draw(st.floats(0.0, 1.0)) / max(sum(parts), 1.0)
    speedups = st.one_of(st.just(math.inf), st.floats(1.0, 1e6))
    return [Share(name=str(i), share_frac=p * scale, of="busy", speedup=draw(speedups)) for i, p in enumerate(parts)]


def test_step_time_from_output() -> None:
    assert step_s(16, 23.2) * 1e3 == pytest.approx(690, abs=0.5)
    assert step_s(1, 10.2) * 1e3 == pytest.approx(98, abs=0.1)
    assert output_tok_s(16, step_s(16, 23.2, 2.5), 2.5) == pytest.approx(23.2)


@pytest.mark.parametrize(
    ("free", "tok_s"),
    [([moe], 38), ([attention], 37), ([moe, attention], 101), ([moe, attention, tail], 258)],
)
def test_ceilings_when_kernels_become_free(free: list[Share], tok_s: int) -> None:
    assert round(ceiling_tok_s(16, step_s(16, 23.2), free)) == tok_s


def test_amdahl_is_joint_and_not_a_product() -> None:
    twice = [msgspec.structs.replace(s, speedup=2.0) for s in (moe, attention)]
    assert amdahl(twice) == pytest.approx(1 / (1 - 0.77 / 2))
    assert amdahl(twice) > amdahl(twice[:1]) * amdahl(twice[1:])
    assert amdahl([]) == 1


def test_all_of_it_free_is_infinite() -> None:
    rest = Share(name="rest", share_frac=0.23, of="sum")
    assert amdahl([moe, attention, rest]) == math.inf
    # 0.7 + 0.2 + 0.1 is a hair below 1 in binary; what is left is rounding, not work.
    thirds = [Share(name=str(f), share_frac=f, of="sum") for f in (0.7, 0.2, 0.1)]
    assert sum(s.share_frac for s in thirds) < 1
    assert amdahl(thirds) == math.inf
    assert amdahl([Share(name="all", share_frac=1.0, of="span", speedup=1e12)]) == pytest.approx(1e12)


@given(shares=share_sets())
def test_amdahl_bounds(shares: list[Share]) -> None:
    touched = sum(s.share_frac for s in shares)
    joint = amdahl(shares)
    assert joint >= 1 - 1e-9
    assert joint <= max(s.speedup for s in shares) * (1 + 1e-6)
    if touched < 0.999:
        assert joint <= 1 / (1 - touched) * (1 + 1e-9)
    slower = [msgspec.structs.replace(s, speedup=max(1.0, s.speedup / 2)) for s in shares]
    assert amdahl(slower) <= joint * (1 + 1e-9)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([moe, msgspec.structs.replace(attention, of="busy")], "denominators"),
        ([moe, moe], "named twice"),
        ([moe, attention, tail, Share(name="x", share_frac=0.1, of="sum")], "sum to 1.01"),
        ([Share(name="x", share_frac=39.0, of="sum")], "share of x: 39"),
        ([Share(name="x", share_frac=-0.1, of="sum")], "share of x"),
        ([Share(name="x", share_frac=math.nan, of="sum")], "share of x"),
        ([Share(name="x", share_frac=0.1, of="sum", speedup=0.0)], "speed-up of x"),
        ([Share(name="x", share_frac=0.1, of="sum", speedup=math.nan)], "speed-up of x"),
    ],
)
def test_unsound_shares_are_refused(shares: list[Share], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        amdahl(shares)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_times_and_rates_must_be_numbers(bad: float) -> None:
    with pytest.raises(UsageError, match="output_tok_s"):
        step_s(16, bad)
    with pytest.raises(UsageError, match="step_s"):
        ceiling_tok_s(16, bad, [moe])


@pytest.mark.parametrize(
    ("batch", "tp4_ms", "tp4_tok_s", "tp8_ms", "tp8_tok_s"),
    [
        (1, 1.92, 521, 0.96, 1043),
        (2, 2.49, 802, 1.25, 1604),
        (4, 3.61, 1109, 1.80, 2217),
        (8, 5.68, 1408, 2.84, 2816),
        (16, 9.28, 1723, 4.64, 3447),
        (32, 14.7, 2173, 7.36, 4345),
        (64, 21.0, 3047, 10.5, 6094),
    ],
)
def test_step_floors_at_the_copy_peak(
    batch: int, tp4_ms: float, tp4_tok_s: float, tp8_ms: float, tp8_tok_s: float
) -> None:
    """The table ignores KV, indexer keys and logits, which the floor counts: up to 1 % more time here."""
    tp4, tp8 = (step_floor(FLASH, COPY_PEAK, batch, 8192, tp=tp) for tp in (4, 8))
    assert tp4.time_s * 1e3 == pytest.approx(tp4_ms, rel=0.015)
    assert tp4.output_tok_s == pytest.approx(tp4_tok_s, rel=0.015)
    assert tp8.time_s * 1e3 == pytest.approx(tp8_ms, rel=0.015)
    assert tp8.output_tok_s == pytest.approx(tp8_tok_s, rel=0.015)


def test_what_servers_replicate_costs_a_fifth_at_tp8() -> None:
    even = step_floor(FLASH, COPY_PEAK, 16, 8192, tp=8)
    real = step_floor(FLASH, COPY_PEAK, 16, 8192, tp=8, sharding="replicated")
    assert 1.1 < real.time_s / even.time_s < 1.3


def test_roofline_takes_the_slower_resource() -> None:
    gpu = custom("g", 100.0, peaks=Peaks(bf16=1000.0, fp8=2000.0))
    memory = ComponentCost(component="dense", bytes_read=60.0, bytes_kv=30.0, bytes_written=10.0, flops=999.0)
    assert (roofline(memory, gpu).time_s, roofline(memory, gpu).bound) == (1.0, "memory")
    compute = msgspec.structs.replace(memory, flops=4000.0)
    assert (roofline(compute, gpu).time_s, roofline(compute, gpu).bound) == (4.0, "compute")
    assert roofline(msgspec.structs.replace(compute, math="fp8"), gpu).time_s == 2.0
    assert roofline(compute, gpu, efficiency=0.5).time_s == 8.0


def test_roofline_leaves_out_what_it_does_not_know() -> None:
    cost = ComponentCost(component="comm", bytes_link=100.0, flops=1e30)
    bare = roofline(cost, custom("g", 100.0))
    assert (bare.compute_s, bare.link_s, bare.time_s, bare.bound) == (None, None, 0.0, "none")
    linked = roofline(cost, custom("g", 100.0), link_bytes_s=50.0)
    assert (linked.time_s, linked.bound) == (2.0, "link")


@pytest.mark.parametrize("efficiency", [0.0, 1.01, math.nan])
def test_efficiency_is_a_fraction(efficiency: float) -> None:
    with pytest.raises(UsageError, match="efficiency"):
        step_floor(FLASH, COPY_PEAK, 1, 1024, efficiency=efficiency)


def test_decode_of_flash_is_bound_by_memory_on_every_known_gpu() -> None:
    for gpu in KNOWN:
        bounds = {c.component: c.bound for c in step_floor(FLASH, gpu, 16, 8192, tp=8).components}
        assert bounds["moe"] == bounds["dense"] == "memory", gpu.name
        assert bounds["comm"] == "none"


def test_speculation_lifts_the_cap_by_less_than_what_it_accepts() -> None:
    h200 = find("NVIDIA H200")
    assert h200 is not None
    plain = step_floor(FLASH, h200, 16, 8192, tp=4)
    drafted = step_floor(FLASH, h200, 16, 8192, tp=4, verified=4, accept_length=2.8)
    assert plain.time_s < drafted.time_s
    assert 1 < drafted.output_tok_s / plain.output_tok_s < 2.8
    with pytest.raises(UsageError, match=r"acceptance length 4\.5"):
        step_floor(FLASH, h200, 16, 8192, verified=4, accept_length=4.5)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 256),
    context=st.integers(1, 100_000),
    gpu=st.sampled_from(KNOWN),
    efficiency=st.floats(0.05, 1.0),
)
def test_floor_grows_with_batch_and_output_does_not_fall(
    batch: int, context: int, gpu: Gpu, efficiency: float
) -> None:
    one = step_floor(tiny(), gpu, batch, context, efficiency=efficiency)
    two = step_floor(tiny(), gpu, batch + 1, context, efficiency=efficiency)
    assert two.time_s > one.time_s
    assert two.output_tok_s >= one.output_tok_s * (1 - 1e-9)
    assert one.time_s == pytest.approx(sum(c.time_s for c in one.components))
    full = step_floor(tiny(), gpu, batch, context)
    assert one.time_s * efficiency == pytest.approx(full.time_s)
