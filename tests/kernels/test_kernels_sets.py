"""Both kernel sets against plain float64 mathematics, and the work that each does as the batch grows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dsv4bench.kernels.cpu import optimized
from dsv4bench.kernels.mxfp4 import dequantize, quantize
from dsv4bench.kernels.sets import KERNEL_NAMES, CacheRows, Experts, KernelName, kernel_set

WIDTH, INNER, EXPERTS = 64, 32, 5
both = pytest.mark.parametrize("name", KERNEL_NAMES)


def _experts(rng: torch.Generator, size: float = 1.0) -> Experts:
    w13 = quantize(torch.randn(EXPERTS, 2 * INNER, WIDTH, generator=rng) * size)
    w2 = quantize(torch.randn(EXPERTS, WIDTH, INNER, generator=rng))
    return Experts(*w13, *w2, swiglu_limit=10.0, route_scale=1.5)


def _moe_truth(x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    w13 = dequantize(experts.w13, experts.s13).double()
    w2 = dequantize(experts.w2, experts.s2).double()
    out = torch.zeros(x.shape, dtype=torch.float64)
    for t in range(len(x)):
        for expert, weight in zip(ids[t].tolist(), weights[t].tolist(), strict=True):
            if expert < 0:
                continue
            gate, up = (w13[expert] @ x[t].double()).chunk(2)
            gate, up = gate.clamp(max=10.0), up.clamp(-10.0, 10.0)
            out[t] += 1.5 * weight * (w2[expert] @ (gate * torch.sigmoid(gate) * up))
    return out


@both
@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("size", [0.1, 3.0])  # 3.0 drives gate and up into their clamps
def test_moe(name: KernelName, tokens: int, size: float) -> None:
    rng = torch.Generator().manual_seed(tokens)
    experts = _experts(rng, size)
    x = torch.randn(tokens, WIDTH, generator=rng)
    ids = torch.stack([torch.randperm(EXPERTS, generator=rng)[:3] for _ in range(tokens)])
    ids[0, 1] = -1
    weights = torch.rand(tokens, 3, generator=rng)
    truth = _moe_truth(x, ids, weights, experts)
    got = kernel_set(name).moe(x, ids, weights, experts)
    assert torch.allclose(got.double(), truth, rtol=1e-4, atol=1e-4 * float(truth.abs().max())), name


@both
def test_moe_of_tokens_without_experts_is_zero(name: KernelName) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, WIDTH, generator=rng)
    out = kernel_set(name).moe(x, torch.full((2, 3), -1), torch.ones(2, 3), _experts(rng))
    assert out.shape == x.shape
    assert out.abs().sum().item() == 0.0


def test_moe_in_parts_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(3)
    experts, x = _experts(rng), torch.randn(6, WIDTH, generator=rng)
    ids, weights = torch.randint(0, EXPERTS, (6, 2), generator=rng), torch.rand(6, 2, generator=rng)
    whole = kernel_set("optimized").moe(x, ids, weights, experts)
    monkeypatch.setattr(optimized, "DECODED_BUDGET_BYTES", 1)  # one expert at a time
    assert torch.allclose(kernel_set("optimized").moe(x, ids, weights, experts), whole, atol=1e-5)


def _cache(rng: torch.Generator, lengths: list[int], topk: int, page_size: int = 4) -> CacheRows:
    pool = torch.randn(16, page_size, 32, generator=rng)
    index = torch.full((len(lengths), topk), -1)
    for row, length in enumerate(lengths):
        index[row, :length] = torch.randperm(16 * page_size, generator=rng)[:length]
    return CacheRows(pool, index, torch.tensor(lengths), max(lengths))


def _attention_truth(q: Tensor, caches: list[CacheRows], sink: Tensor, scale: float) -> Tensor:
    out = torch.zeros(q.shape, dtype=torch.float64)
    for t in range(len(q)):
        rows = torch.cat([c.pool.flatten(0, 1)[c.index[t, : int(c.length[t])]] for c in caches]).double()
        for h in range(q.shape[1]):
            weight = (rows @ q[t, h].double() * scale).exp()
            out[t, h] = (weight @ rows) / (weight.sum() + sink[h].double().exp())
    return out


@both
@pytest.mark.parametrize("lengths", [[1], [40, 3, 17], [0, 5]])
@pytest.mark.parametrize("extra_lengths", [None, [0, 0, 0], [1, 33, 8]])
def test_sparse_decode(name: KernelName, lengths: list[int], extra_lengths: list[int] | None) -> None:
    rng = torch.Generator().manual_seed(len(lengths))
    q, sink = torch.randn(len(lengths), 3, 32, generator=rng), torch.randn(3, generator=rng)
    caches = [_cache(rng, lengths, 48)]
    if extra_lengths is not None:
        caches.append(_cache(rng, extra_lengths[: len(lengths)], 40))
    got = kernel_set(name).sparse_decode(q, caches[0], caches[1] if len(caches) > 1 else None, sink, 0.2)
    truth = _attention_truth(q, caches, sink, 0.2)
    assert torch.allclose(got.double(), truth, rtol=1e-5, atol=1e-6), (name, lengths, extra_lengths)


class _Counter(TorchDispatchMode):
    """Counts operators: the launches that a GPU would see."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


def _operators(name: KernelName, tokens: int) -> tuple[int, int]:
    rng = torch.Generator().manual_seed(5)
    experts, x = _experts(rng), torch.randn(tokens, WIDTH, generator=rng)
    ids = torch.tensor([[0, 1, 2]]).expand(tokens, 3)
    rows = _cache(rng, [10] * tokens, 48)
    q, sink = torch.randn(tokens, 3, 32, generator=rng), torch.zeros(3)
    with _Counter() as moe:
        kernel_set(name).moe(x, ids, torch.ones(tokens, 3), experts)
    with _Counter() as attention:
        kernel_set(name).sparse_decode(q, rows, None, sink, 0.2)
    return moe.operators, attention.operators


def test_only_the_fallback_repeats_its_work_for_every_token() -> None:
    slow_moe, slow_attention = _operators("fallback", 1)
    many_moe, many_attention = _operators("fallback", 8)
    assert many_moe > 6 * slow_moe
    assert many_attention > 6 * slow_attention
    few, many = _operators("optimized", 1), _operators("optimized", 8)
    assert all(b <= 1.1 * a for a, b in zip(few, many, strict=True))
