"""vLLM's Marlin MXFP4 MoE: FP4 weights, bf16 activations, bf16 MMA; vLLM's own choice for DeepSeek-V4 on Hopper.

Align, GEMM, clamped SwiGLU, GEMM, sum, all by vLLM's `fused_marlin_moe`. Written against the sources of vLLM 0.25.1;
the same sequence of its operators was run on an H200, the import of the whole package was not. Two traps: the wheel
has no sm_90 code and compiles PTX on the first call (tens of seconds), and slots without an expert (-1) are skipped,
which leaves their rows of the summed buffer unwritten.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from dsv4bench.kernels.peers.libraries import need, take
from dsv4bench.kernels.sets import Experts

if TYPE_CHECKING:
    from torch import Tensor

PEER, PACKAGE = "marlin", "vllm 0.25 or newer, on CUDA"
_MOE = "vllm.model_executor.layers.fused_moe.experts.marlin_moe"
_REPACK = "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4"


class Prepared(NamedTuple):
    """Repacked weights and permuted scales."""

    w13: Tensor
    w2: Tensor
    s13: Tensor
    s2: Tensor
    limit: float
    route_scale: float


class Marlin:
    """A `MoeRunner`."""

    def __init__(self, fused: Any, repack: Any, fp4: int) -> None:
        self._fused, self._repack, self._fp4 = fused, repack, fp4

    def prepare(self, experts: Experts) -> Prepared:
        import torch

        layer = SimpleNamespace(params_dtype=torch.bfloat16)
        w13, w2, s13, s2, *_ = self._repack(layer, experts.w13, experts.w2, experts.s13, experts.s2, None, None)
        return Prepared(w13, w2, s13, s2, experts.swiglu_limit, experts.route_scale)

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        p = prepared
        scaled = weights if p.route_scale == 1 else weights * p.route_scale
        out: Tensor = self._fused(
            hidden_states=x,
            w1=p.w13,
            w2=p.w2,
            bias1=None,
            bias2=None,
            w1_scale=p.s13,
            w2_scale=p.s2,
            topk_weights=scaled,
            topk_ids=ids,
            quant_type_id=self._fp4,
            clamp_limit=p.limit,
        )
        return out


def runner() -> Marlin:
    """Raises UsageError naming what of vLLM is missing."""
    need("vllm._custom_ops", PEER, PACKAGE)
    fused = take(need(_MOE, PEER, PACKAGE), "fused_marlin_moe", PEER, PACKAGE)
    repack = take(need(_REPACK, PEER, PACKAGE), "prepare_moe_mxfp4_layer_for_marlin", PEER, PACKAGE)
    types = take(need("vllm.scalar_type", PEER, PACKAGE), "scalar_types", PEER, PACKAGE)
    return Marlin(fused, repack, int(types.float4_e2m1f.id))
