"""FlashInfer's CUTLASS fused MoE on MXFP4 experts: bf16 activations on Hopper, MXFP8 activations on Blackwell.

On sm_90 (W4A16) weights and scales are interleaved for the mixed-input GEMM; from sm_100 on, sm_120 included (W4A8),
activations are quantised to MXFP8 in the call, which changes the numbers: the registry gives it a wider limit. It
wants the rows of `up` before those of `gate`. Written against the sources and documentation of flashinfer 0.6.13 and
0.7.2; it was not run, on any GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsv4bench.kernels.peers.libraries import need, take
from dsv4bench.kernels.sets import Experts

if TYPE_CHECKING:
    from torch import Tensor

PEER, PACKAGE = "flashinfer_moe", "flashinfer-python 0.6 or newer, and a CUDA compiler for its first call"


class Prepared(NamedTuple):
    """Weights, scales, and the three per-expert constants of the clamped SwiGLU."""

    w13: Tensor
    w2: Tensor
    scales: list[Tensor]
    alpha: Tensor
    beta: Tensor
    limit: Tensor
    route_scale: float


class FlashInferMoe:
    """A `MoeRunner`."""

    def __init__(self, package: Any, moe: Any, w4a16: bool) -> None:
        self._package, self._moe, self._w4a16 = package, moe, w4a16

    def prepare(self, experts: Experts) -> Prepared:
        import torch

        w13, s13 = (torch.cat(t.chunk(2, dim=1)[::-1], dim=1).contiguous() for t in (experts.w13, experts.s13))
        w2, s2 = experts.w2, experts.s2
        count = w13.shape[0]
        if self._w4a16:
            weights, scales = self._moe.interleave_moe_weights_for_sm90_mixed_gemm, self._scales
            w13, w2, kept = weights(w13, "fp4"), weights(w2, "fp4"), [scales(s13), scales(s2)]
        else:
            interleave, one = self._package.block_scale_interleave, torch.ones(count, device=w13.device)
            s13, s2 = (interleave(s).reshape(s.shape).view(torch.int32) for s in (s13, s2))
            w13, w2, kept = w13.view(torch.long), w2.view(torch.long), [s13, one, s2, one]
        alpha, beta, limit = (torch.full((count,), v, device=w13.device) for v in (1.0, 0.0, experts.swiglu_limit))
        return Prepared(w13, w2, kept, alpha, beta, limit, experts.route_scale)

    def _scales(self, scales: Tensor) -> Tensor:
        found: Tensor = self._moe.interleave_moe_scales_for_sm90_mixed_gemm(scales)
        return found

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        import torch

        p, out = prepared, torch.empty_like(x)
        scaled = weights if p.route_scale == 1 else weights * p.route_scale
        given, factors = (x, None) if self._w4a16 else self._package.mxfp8_quantize(x)
        self._moe.cutlass_fused_moe(
            input=given,
            token_selected_experts=ids,
            token_final_scales=scaled,
            fc1_expert_weights=p.w13,
            fc2_expert_weights=p.w2,
            output_dtype=torch.bfloat16,
            quant_scales=p.scales,
            input_sf=factors,
            swiglu_alpha=p.alpha,
            swiglu_beta=p.beta,
            swiglu_limit=p.limit,
            output=out,
            use_w4_group_scaling=self._w4a16,
            use_mxfp8_act_scaling=not self._w4a16,
        )
        return out


def runner() -> FlashInferMoe:
    """Raises UsageError naming what of FlashInfer is missing for this GPU."""
    import torch

    package = need("flashinfer", PEER, PACKAGE)
    moe = need("flashinfer.fused_moe", PEER, PACKAGE)
    take(moe, "cutlass_fused_moe", PEER, PACKAGE)
    w4a16 = torch.cuda.get_device_capability() < (10, 0)
    if w4a16:
        for name in ("interleave_moe_weights_for_sm90_mixed_gemm", "interleave_moe_scales_for_sm90_mixed_gemm"):
            take(moe, name, PEER, PACKAGE)
    else:
        for name in ("mxfp8_quantize", "block_scale_interleave"):
            take(package, name, PEER, PACKAGE)
    return FlashInferMoe(package, moe, w4a16)
