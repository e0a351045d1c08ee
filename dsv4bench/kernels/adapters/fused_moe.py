"""The grouped MXFP4 MoE as engines call a fused MoE: hidden states, expert weights, top-k weights and ids.

    layer = FusedMoe(w13, s13, w2, s2, limit=10.0)        once, when weights are loaded
    y = layer(x, topk_weights, topk_ids)                  each step; may be captured in a CUDA graph

`fused_moe` does both in one call and keeps what it repacked for as long as the weights live.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.gpu.grouped_moe import GroupedMoe
from dsv4bench.kernels.sets import Experts


class FusedMoe:
    """The experts of one layer (or one GPU's part of them), repacked. The tensors given are not kept."""

    def __init__(
        self, w13: Tensor, s13: Tensor, w2: Tensor, s2: Tensor, *, limit: float = 10.0, route_scale: float = 1.0
    ) -> None:
        """w13 [E, 2I, D/2], gate's rows first, and w2 [E, D, I/2]: E2M1 pairs, the even k in the low nibble, as
        uint8, int8 or float4_e2m1fn_x2. s13 [E, 2I, D/32], s2 [E, D, I/32]: E8M0 as uint8 or float8_e8m0fnu, or
        powers of two as float32. D a multiple of 128, I of 32.

        `route_scale` multiplies the result; 1.0 where top-k weights contain it already. Raises UsageError.
        """
        if limit is None or not limit > 0:
            raise UsageError(f"fused_moe: limit is {limit}; supported: a number above 0, infinity for no clamp")
        self._runner = GroupedMoe()
        experts = Experts(
            _packed("w13", w13), _scales("s13", s13), _packed("w2", w2), _scales("s2", s2), limit, route_scale
        )
        self._prepared = self._runner.prepare(experts)

    def __call__(self, x: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
        """x bf16 [M, D], topk_weights [M, K], topk_ids int [M, K] (-1: none) -> bf16 [M, D]. No host synchronisation.

        Ids and weights of another type cost a conversion each.
        """
        return self._runner(
            x.contiguous(), topk_ids.to(torch.int32).contiguous(), topk_weights.float().contiguous(), self._prepared
        )


def fused_moe(
    x: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    *,
    limit: float = 10.0,
    route_scale: float = 1.0,
) -> Tensor:
    """route_scale * sum_k topk_weights[:, k] * expert(topk_ids[:, k])(x) -> bf16 [M, D]; types as `FusedMoe` says.

    expert(x) = W2 (silu(min(W1 x, limit)) * clamp(W3 x, -limit, limit)). The first call for a w13 repacks, which
    waits for the device and needs as much memory again: call it once before a graph is captured. A weight that is
    changed in place afterwards is not noticed.
    """
    return _layer_of(_Weights(w13, s13, w2, s2), limit, route_scale)(x, topk_weights, topk_ids)


class _Weights(NamedTuple):
    w13: Tensor
    s13: Tensor
    w2: Tensor
    s2: Tensor


# id(w13) -> the weights it was made of and the layer; an entry goes when its w13 does.
_layers: dict[int, tuple[tuple[int, ...], float, float, FusedMoe]] = {}


def _layer_of(weights: _Weights, limit: float, route_scale: float) -> FusedMoe:
    key, parts = id(weights.w13), tuple(id(t) for t in weights)
    known = _layers.get(key)
    if known is not None and known[:3] == (parts, limit, route_scale):
        return known[3]
    layer = FusedMoe(*weights, limit=limit, route_scale=route_scale)
    if known is None:
        weakref.finalize(weights.w13, _layers.pop, key, None)
    _layers[key] = (parts, limit, route_scale, layer)
    return layer


def _packed(name: str, t: Tensor) -> Tensor:
    if t.element_size() != 1:
        raise UsageError(f"fused_moe: {name} is {t.dtype}; supported: two E2M1 codes in a byte")
    return t.detach().view(torch.uint8).contiguous()


def _scales(name: str, t: Tensor) -> Tensor:
    """E8M0 bytes; a float32 power of two has its byte as its exponent."""
    t = t.detach()
    if t.dtype == torch.float32:
        bits = t.contiguous().view(torch.int32)
        if bool(((bits & 0x807FFFFF) != 0).any()) or not bool(t.isfinite().all()):
            raise UsageError(f"fused_moe: {name} holds float32 scales that are not powers of two of at least 2**-126")
        return (bits >> 23).to(torch.uint8)
    if t.element_size() != 1:
        raise UsageError(f"fused_moe: {name} is {t.dtype}; supported: E8M0 bytes, or float32 powers of two")
    return t.view(torch.uint8).contiguous()
