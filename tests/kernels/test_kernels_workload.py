"""The data of a benchmark: sets that differ, costs from the routings themselves, and a check that sees a fault."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsv4bench.dsv4.step import attention_call
from dsv4bench.kernels import reference
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.cases import AttentionShape, MoeShape, bench_attention, bench_moe, make_experts, make_pools
from dsv4bench.kernels.sets import Experts
from dsv4bench.kernels.workload import (
    FLASH,
    Workload,
    attention_workload,
    calls_of,
    check,
    moe_workload,
    pool_rows,
    truth_of,
    with_router_scale,
)

MOE = MoeShape(tokens=3, experts=8, top_k=2, hidden=64, inner=32)
ATTENTION = AttentionShape(batch=2, heads=8, window=4, extra=8, lengths="absent")


def moe() -> Workload:
    return moe_workload(MOE, make_experts(MOE, 0), 1 << 12, 7, "cpu")


def attention() -> Workload:
    return attention_workload(ATTENTION, make_pools(ATTENTION, 0), 1 << 12, 7, "cpu")


class PlainMoe:
    """The reference in bf16, with a fault where asked."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def prepare(self, experts: Experts) -> Experts:
        return experts

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Experts) -> Tensor:
        found = reference.moe(MoeCall(x, ids, weights, prepared)).bfloat16()
        if self.fault == "unwritten":
            out = torch.empty_like(found)
            out[:-1] = found[:-1]
            return out
        return found * torch.nan if self.fault == "nan" else found


class PlainAttention:
    def __init__(self, lse: str) -> None:
        self.lse = lse

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        out, lse = reference.sparse_decode(call)
        told = reference.with_sink(lse, call.sink) if self.lse == "with_sink" else lse
        return out.bfloat16(), None if self.lse == "none" else told.float()


def test_sets_share_the_weights_and_differ_in_everything_else() -> None:
    load = moe()
    assert len(load.sets) == load.rotation.sets == 12
    first, second = load.sets[:2]
    assert isinstance(first, MoeCall) and isinstance(second, MoeCall)
    assert first.experts is second.experts
    assert not torch.equal(first.x, second.x) and not torch.equal(first.weights, second.weights)
    assert len({tuple(s.ids.flatten().tolist()) for s in load.sets if isinstance(s, MoeCall)}) > 6


def test_the_floor_counts_the_experts_that_these_routings_touch() -> None:
    load = moe()
    touched = [len(set(s.ids.flatten().tolist())) for s in load.sets if isinstance(s, MoeCall)]
    expert = 3 * 64 * 32 // 2 + 3 * 64 * 32 // 32
    activations = 2 * 3 * 64 * 2  # bf16 in and out
    assert load.floor_bytes == round(sum(touched) / len(touched) * expert + activations)
    assert load.cost.flops == 2 * (3 * 2) * 3 * 64 * 32


def test_attention_sets_read_the_same_caches_at_other_rows() -> None:
    load = attention()
    first, second = load.sets[:2]
    assert isinstance(first, AttentionCall) and isinstance(second, AttentionCall)
    assert first.window.data is second.window.data and first.extra is not None and second.extra is not None
    assert not torch.equal(first.extra.index, second.extra.index)
    assert first.window.length is None
    assert load.cost == attention_call(FLASH, 2, heads=8, window=4, extra=8)


def test_caches_are_three_l2_large() -> None:
    l2 = 60 * 2**20
    assert pool_rows(bench_attention(1), l2) * 584 >= 3 * l2
    assert pool_rows(bench_attention(1), 0) == 4 * 512


def test_the_real_shapes_cost_what_the_model_says() -> None:
    assert bench_moe(1).shape == "E256 top6 D4096 I2048"
    assert bench_attention(1).shape == "H64 window128 extra512 page64 sink"


def test_the_routing_factor_can_stand_in_the_weights() -> None:
    load = moe()
    given, scaled = load.sets[0], with_router_scale(load).sets[0]
    assert isinstance(given, MoeCall) and isinstance(scaled, MoeCall)
    assert scaled.experts.route_scale == 1.0 and torch.allclose(scaled.weights, 1.5 * given.weights)
    assert torch.allclose(reference.moe(scaled), reference.moe(given))
    other = attention()
    assert with_router_scale(other) is other


@pytest.mark.parametrize(
    ("fault", "why"),
    [("", None), ("nan", "NaN"), ("unwritten", "never written")],
)
def test_a_check_finds_what_is_wrong(fault: str, why: str | None) -> None:
    load, runner = moe(), PlainMoe(fault)
    (found,) = check(load, runner, runner.prepare(make_experts(MOE, 0)), truth_of(load), (1e-2,))
    assert found.why is None if why is None else why in (found.why or "")


@pytest.mark.parametrize("lse", ["plain", "with_sink", "none"])
def test_a_check_knows_both_conventions_of_the_sink(lse: str) -> None:
    load = attention()
    runner = PlainAttention(lse)
    (found,) = check(load, runner, None, truth_of(load), (1e-2,))
    assert found.why is None
    if lse != "none":
        claimed = "plain" if lse == "with_sink" else "with_sink"
        (found,) = check(load, _Mislabelled(lse, claimed), None, truth_of(load), (1e-2,))
        assert "lse is off" in (found.why or "")


class _Mislabelled(PlainAttention):
    """Computes one convention and claims the other."""

    def __init__(self, computes: str, claims: str) -> None:
        super().__init__(claims)
        self._plain = PlainAttention(computes)

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        return self._plain(call)


def test_one_call_a_set() -> None:
    load, runner = moe(), PlainMoe()
    calls = calls_of(load, runner, make_experts(MOE, 0))
    outs = [call() for call in calls]
    assert len(calls) == 12 and isinstance(outs[0], Tensor)
    assert not torch.equal(outs[0], outs[1])
