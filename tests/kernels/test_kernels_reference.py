"""The references against values worked out by hand, and against loops over numbers that share no code with them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsv4bench.kernels import mla_cache, reference
from dsv4bench.kernels.calls import AttentionCall, MoeCall, PagedRows
from dsv4bench.kernels.cases import SMALL, AttentionShape, MoeShape, make_attention, make_moe
from dsv4bench.kernels.sets import Experts

ONE, TWO, THREE = 0x2, 0x4, 0x5  # E2M1 codes
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def _expert(gate: int, up: int, down: int, scale: int = 127) -> Experts:
    """D = I = 32, one weight each: gate[0, 0], up[0, 1], down[3, 0]."""
    w13, w2 = torch.zeros(1, 64, 16, dtype=torch.uint8), torch.zeros(1, 32, 16, dtype=torch.uint8)
    w13[0, 0, 0], w13[0, 32, 0], w2[0, 3, 0] = gate, up << 4, down
    ones = torch.full((1, 64, 1), scale, dtype=torch.uint8)
    return Experts(w13, ones, w2, torch.full((1, 32, 1), 127, dtype=torch.uint8), swiglu_limit=10.0, route_scale=1.5)


def _moe(experts: Experts, x0: float, x1: float, weight: float = 1.0) -> list[float]:
    x = torch.zeros(1, 32, dtype=torch.bfloat16)
    x[0, 0], x[0, 1] = x0, x1
    ids, weights = torch.tensor([[-1, 0]], dtype=torch.int32), torch.tensor([[9.0, weight]])
    out: list[float] = reference.moe(MoeCall(x, ids, weights, experts))[0].tolist()
    assert out[:3] + out[4:] == [0.0] * 31
    return out[3:4]


def test_an_expert_by_hand() -> None:
    # gate = 3 * 0.5, up = 2 * -2, down = 1, weight 0.25, factor 1.5; the slot of -1 and its weight 9 add nothing.
    assert _moe(_expert(THREE, TWO, ONE), 0.5, -2.0, 0.25) == pytest.approx([1.5 * 0.25 * _silu(1.5) * -4.0])


@pytest.mark.parametrize(
    ("x0", "x1", "result"),
    [
        (20.0, 1.0, 1.5 * _silu(10.0)),  # the gate is bounded above
        (-20.0, 1.0, 1.5 * _silu(-20.0)),  # and not below
        (1.0, 50.0, 1.5 * _silu(1.0) * 10),
        (1.0, -50.0, 1.5 * _silu(1.0) * -10),
    ],
)
def test_the_clamps_by_hand(x0: float, x1: float, result: float) -> None:
    assert _moe(_expert(ONE, ONE, ONE), x0, x1) == pytest.approx([result], rel=1e-12)


@pytest.mark.parametrize(("scale", "x"), [(0, 2.0**127), (254, 2.0**-127)])
def test_the_outermost_scales_by_hand(scale: int, x: float) -> None:
    assert _moe(_expert(ONE, ONE, ONE, scale), x, x) == pytest.approx([1.5 * _silu(1.0)], rel=1e-12)


def _naive_moe(call: MoeCall) -> Tensor:
    """Loops over tokens, slots and weights; the format from its definition."""
    e = call.experts

    def matrix(packed: Tensor, scales: Tensor) -> Tensor:
        rows = []
        for row, row_scales in zip(packed.tolist(), scales.tolist(), strict=True):
            codes = [code for byte in row for code in (byte & 15, byte >> 4)]
            signed = [-MAGNITUDES[code - 8] if code & 8 else MAGNITUDES[code] for code in codes]
            rows.append([value * 2.0 ** (row_scales[k // 32] - 127) for k, value in enumerate(signed)])
        return torch.tensor(rows, dtype=torch.float64)

    out = torch.zeros(call.x.shape, dtype=torch.float64)
    for token, (ids, weights) in enumerate(zip(call.ids.tolist(), call.weights.tolist(), strict=True)):
        for expert, weight in zip(ids, weights, strict=True):
            if expert == -1:
                continue
            both = (matrix(e.w13[expert], e.s13[expert]) * call.x[token].double()).sum(1).tolist()
            half = len(both) // 2
            hidden = [
                _silu(min(both[i], 10.0)) * max(-10.0, min(10.0, both[half + i])) if both[i] > -700 else 0.0
                for i in range(half)
            ]
            out[token] += (
                1.5 * weight * (matrix(e.w2[expert], e.s2[expert]) * torch.tensor(hidden, dtype=torch.float64)).sum(1)
            )
    return out


_FEW = [c for c in SMALL if isinstance(c, MoeShape) and c.tokens <= 5]


@pytest.mark.parametrize("case", _FEW, ids=lambda c: c.label)
def test_moe_against_loops(case: MoeShape) -> None:
    call = make_moe(replace(case, hidden=64, inner=64), seed=5)
    found = reference.moe(call)
    assert found.dtype == torch.float64
    assert torch.allclose(found, _naive_moe(call), rtol=1e-10, atol=1e-12)


def _pool(rows: Tensor, page_size: int) -> Tensor:
    cache = mla_cache.empty(-(-len(rows) // page_size), page_size)
    mla_cache.write(cache, page_size, torch.arange(len(rows)), rows)
    return cache


def _paged(rows: Tensor, index: list[int], length: int | None = None, page_size: int = 2) -> PagedRows:
    lengths = None if length is None else torch.tensor([length], dtype=torch.int32)
    return PagedRows(_pool(rows, page_size), page_size, torch.tensor([index], dtype=torch.int32), lengths)


def _unit_rows() -> Tensor:
    """Row i is i + 1 in lane 0 (nope) and 1 in lane 500 (rope)."""
    rows = torch.zeros(4, 512)
    rows[:, 0], rows[:, 500] = torch.arange(1.0, 5.0), 1.0
    return rows


def _query(size: float) -> Tensor:
    q = torch.zeros(1, 1, 512, dtype=torch.bfloat16)
    q[0, 0, 0] = size
    return q


def test_two_rows_by_hand() -> None:
    call = AttentionCall(_query(1.0), _paged(_unit_rows(), [0, 2]), None, None, scale=0.5)
    out, lse = reference.sparse_decode(call)
    a, b = math.exp(0.5), math.exp(1.5)
    assert lse.item() == pytest.approx(math.log(a + b), rel=1e-12)
    assert out[0, 0, 0].item() == pytest.approx((1 * a + 3 * b) / (a + b), rel=1e-12)
    assert out[0, 0, 500].item() == pytest.approx(1.0, rel=1e-12)
    assert out[0, 0].count_nonzero() == 2


def test_both_caches_are_one_softmax_and_the_sink_takes_a_share_of_it() -> None:
    rows = _unit_rows()
    call = AttentionCall(
        _query(1.0), _paged(rows, [0]), _paged(rows, [-5, 1, 3], length=2, page_size=64), torch.tensor([2.0]), 1.0
    )
    out, lse = reference.sparse_decode(call)
    a, b = math.exp(1.0), math.exp(2.0)  # row 3 lies beyond the length, -5 is no row
    assert lse.item() == pytest.approx(math.log(a + b), rel=1e-12)
    assert out[0, 0, 0].item() == pytest.approx((a + 2 * b) / (a + b + math.exp(2.0)), rel=1e-12)
    total = reference.with_sink(lse, call.sink)
    assert total.item() == pytest.approx(math.log(a + b + math.exp(2.0)), rel=1e-12)
    assert reference.with_sink(lse, None) is lse


@pytest.mark.parametrize(("index", "length"), [([-1, -1], 2), ([0, 1], 0), ([-7, 1], 1)])
def test_no_row_at_all(index: list[int], length: int) -> None:
    call = AttentionCall(_query(1.0), _paged(_unit_rows(), index, length), None, torch.tensor([0.5]), 1.0)
    out, lse = reference.sparse_decode(call)
    assert out.count_nonzero() == 0
    assert lse.item() == -math.inf
    assert reference.with_sink(lse, call.sink).item() == 0.5


def _naive_attention(call: AttentionCall) -> tuple[list[list[list[float]]], list[list[float]]]:
    """Loops over requests, heads and entries; exp as it is, without a maximum."""
    outs, lses = [], []
    for b in range(len(call.q)):
        rows: list[Tensor] = []
        for cache in (call.window, call.extra):
            if cache is None:
                continue
            for at, index in enumerate(cache.index[b].tolist()):
                if index >= 0 and (cache.length is None or at < int(cache.length[b])):
                    page, offset = divmod(index, cache.page_size)
                    line, footer = cache.data[page], cache.page_size * 576 + offset * 8
                    data, scales = line[offset * 576 : (offset + 1) * 576], line[footer : footer + 8]
                    rows.append(mla_cache.dequantize(data, scales, torch.float64))
        outs.append([])
        lses.append([])
        for h in range(call.q.shape[1]):
            terms = [math.exp(call.scale * float(call.q[b, h].double() @ row)) for row in rows]
            sink = 0.0 if call.sink is None else math.exp(float(call.sink[h]))
            out = sum((t * row for t, row in zip(terms, rows, strict=True)), torch.zeros(512, dtype=torch.float64))
            outs[-1].append((out / (sum(terms) + sink)).tolist() if rows else [0.0] * 512)
            lses[-1].append(math.log(sum(terms)) if rows else -math.inf)
    return outs, lses


@pytest.mark.parametrize("case", [c for c in SMALL if isinstance(c, AttentionShape)], ids=lambda c: c.label)
def test_attention_against_loops(case: AttentionShape) -> None:
    call = make_attention(replace(case, heads=2), seed=6)
    out, lse = reference.sparse_decode(call)
    naive_out, naive_lse = _naive_attention(call)
    assert torch.allclose(out, torch.tensor(naive_out, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    assert torch.allclose(lse, torch.tensor(naive_lse, dtype=torch.float64), rtol=1e-12)
