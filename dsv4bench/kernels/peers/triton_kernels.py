"""OpenAI's triton_kernels as vLLM drives them for DeepSeek-V4: routing, GEMM, clamped SwiGLU, GEMM, masked sum.

The unfused sequence of vLLM's `UnfusedOAITritonExperts`, with vLLM's CUDA operator for the activation: DeepSeek-V4's
clamp is not the one that the fused epilogue knows. Written against the sources of vLLM 0.25.1; the same sequence was
run on an H200 with its files loaded one by one, the import of the whole package was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsv4bench.kernels.peers.libraries import need, take
from dsv4bench.kernels.sets import Experts

if TYPE_CHECKING:
    from torch import Tensor

PEER, PACKAGE = "triton_kernels", "vllm 0.25 or newer with its triton_kernels, on CUDA"
_MOE = "vllm.model_executor.layers.fused_moe.experts.gpt_oss_triton_kernels_moe"
_SWIZZLE = "vllm.model_executor.layers.quantization.utils.mxfp4_utils"


class Prepared(NamedTuple):
    """Swizzled weights, and the scales inside of what triton_kernels calls a precision config."""

    w13: Any
    w2: Any
    precision13: Any
    precision2: Any
    experts: int
    inner: int
    limit: float
    route_scale: float


class TritonKernels:
    """A `MoeRunner`. Slots without an expert (-1) are skipped and left out of the sum."""

    def __init__(self, moe: Any, swizzle: Any, ogs: Any) -> None:
        self._moe, self._swizzle, self._ogs = moe, swizzle, ogs

    def prepare(self, experts: Experts) -> Prepared:
        w13, flex13, s13 = self._swizzle(experts.w13, experts.s13)
        w2, flex2, s2 = self._swizzle(experts.w2, experts.s2)
        config, flex = self._ogs.PrecisionConfig, self._ogs.FlexCtx
        return Prepared(
            w13=w13,
            w2=w2,
            precision13=config(weight_scale=s13, flex_ctx=flex(rhs_data=flex13)),
            precision2=config(weight_scale=s2, flex_ctx=flex(rhs_data=flex2)),
            experts=experts.w13.shape[0],
            inner=experts.w13.shape[1] // 2,
            limit=experts.swiglu_limit,
            route_scale=experts.route_scale,
        )

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        import torch

        p, gemm = prepared, self._ogs.matmul_ogs
        scaled = weights if p.route_scale == 1 else weights * p.route_scale
        (tokens, k), width = ids.shape, x.shape[1]
        routing, gather, scatter = self._moe.make_routing_data(ids, scaled, p.experts)
        gammas = routing.gate_scal
        hidden = x.new_empty(1, tokens * k, 2 * p.inner)
        gemm(x, p.w13, None, routing, gather_indx=gather, precision_config=p.precision13, y=hidden)
        act = x.new_empty(tokens * k, p.inner)
        ordered = hidden.view(-1, 2 * p.inner)[gather.dst_indx]
        torch.ops._C.silu_and_mul_with_clamp(act, ordered, p.limit, 1.0, 0.0)
        routing.n_expts_act = 1  # the sum over k follows by itself, so that absent slots can be left out
        parts = x.new_empty(1, tokens * k, width)
        gemm(
            act[gather.src_indx],
            p.w2,
            None,
            routing,
            scatter_indx=scatter,
            precision_config=p.precision2,
            gammas=gammas,
            y=parts,
        )
        out = torch.empty_like(x)
        self._moe.masked_moe_sum(parts.view(-1, k, width), ids, out)
        return out


def runner() -> TritonKernels:
    """Raises UsageError naming what of vLLM or triton_kernels is missing."""
    need("vllm._custom_ops", PEER, PACKAGE)
    moe = need(_MOE, PEER, PACKAGE)
    for name in ("make_routing_data", "masked_moe_sum"):
        take(moe, name, PEER, PACKAGE)
    swizzle = take(need(_SWIZZLE, PEER, PACKAGE), "_swizzle_mxfp4", PEER, PACKAGE)
    return TritonKernels(moe, swizzle, need("triton_kernels.matmul_ogs", PEER, PACKAGE))
