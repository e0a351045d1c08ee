"""The weights of one layer as the GPU reads them: bf16 matrices merged where they share an input, experts prepared.

Drawn by `engine.weights.RandomWeights` layer by layer and converted at once, so that float32 copies never pile up.
The dense linears are bf16 and not FP8 as in the checkpoint: they go through torch's matmul, and no verdict of a
kernel set rests on them. Experts are MXFP4 bytes; what each MoE kernel makes of them is all that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.cuda.fused.mhc import COEFFICIENTS
from dsv4bench.engine.weights import CompressorWeights, HyperWeights, LayerWeights, OuterWeights, RandomWeights
from dsv4bench.kernels.calls import MoeRunner
from dsv4bench.kernels.sets import Experts


@dataclass(frozen=True, slots=True)
class Mix:
    """One hyper-connection: mix bf16 [32, 4 * hidden], rows beyond its coefficients zero; base float32."""

    mix: Tensor
    base: Tensor


@dataclass(frozen=True, slots=True)
class Pooling:
    """A compressor's small tensors; its projections are in `CudaLayer.w_compress`."""

    bias: Tensor  # float32 [ratio, width]
    norm: Tensor  # float32 [entry]

    @property
    def columns(self) -> int:
        """Of its projection: value and gate."""
        return 2 * self.bias.shape[1]


@dataclass(frozen=True, slots=True)
class CudaLayer:
    """bf16 matrices [out, in]; norms, biases and the sink float32."""

    ratio: int
    attn_norm: Tensor
    ffn_norm: Tensor
    w_in: Tensor  # wq_a, wkv
    q_norm: Tensor
    kv_norm: Tensor
    wq_b: Tensor
    wo_a: Tensor  # [o_groups, o_lora, heads / o_groups * 512]
    wo_b: Tensor
    sink: Tensor
    w_compress: Tensor | None  # value and gate; with an indexer its own value and gate, and its head weights
    pooling: Pooling | None
    index_pooling: Pooling | None
    w_index_query: Tensor | None
    router: Tensor
    router_bias: Tensor | None
    expert_of_token: Tensor | None  # int32 [vocab, experts_per_token]
    experts: dict[str, Any]  # name of a MoE kernel -> what it prepared
    shared_w13: Tensor | None
    shared_w2: Tensor | None
    hc_attn: Mix
    hc_ffn: Mix


@dataclass(frozen=True, slots=True)
class CudaOuter:
    """What stands around the layers."""

    embed: Tensor  # bf16 [vocab, hidden]
    head: Tensor  # bf16 [vocab, hidden]
    norm: Tensor
    hc_head: Mix


def draw(
    dims: ModelDims, seed: int, device: torch.device, moe_kernels: Mapping[str, MoeRunner]
) -> tuple[CudaOuter, list[CudaLayer]]:
    """A whole model on `device`; equal seeds give equal weights there."""
    source = RandomWeights(dims, seed, str(device))
    around = outer(source.outer(), device)
    return around, [layer(w, device, moe_kernels) for w in source.layers()]


def outer(w: OuterWeights, device: torch.device) -> CudaOuter:
    return CudaOuter(
        embed=_half(w.embed, device),
        head=_half(w.head, device),
        norm=w.norm.to(device),
        hc_head=_mix(w.hc_head, device),
    )


def layer(w: LayerWeights, device: torch.device, moe_kernels: Mapping[str, MoeRunner]) -> CudaLayer:
    """`moe_kernels` by name; each prepares the layer's experts."""
    compress: list[Tensor] = []
    if w.compressor is not None:
        compress += [w.compressor.value, w.compressor.gate]
    if w.indexer is not None:
        compress += [w.indexer.compressor.value, w.indexer.compressor.gate, w.indexer.head_weight]
    experts = Experts(
        w13=w.experts.w13.to(device),
        s13=w.experts.s13.to(device),
        w2=w.experts.w2.to(device),
        s2=w.experts.s2.to(device),
        swiglu_limit=w.experts.swiglu_limit,
        route_scale=w.experts.route_scale,
    )
    shared = w.shared_w2.shape[1] > 0
    return CudaLayer(
        ratio=w.ratio,
        attn_norm=w.attn_norm.to(device),
        ffn_norm=w.ffn_norm.to(device),
        w_in=_half(torch.cat((w.wq_a, w.wkv)), device),
        q_norm=w.q_norm.to(device),
        kv_norm=w.kv_norm.to(device),
        wq_b=_half(w.wq_b, device),
        wo_a=_half(w.wo_a, device),
        wo_b=_half(w.wo_b, device),
        sink=w.sink.to(device),
        w_compress=_half(torch.cat(compress), device) if compress else None,
        pooling=_pooling(w.compressor, device),
        index_pooling=_pooling(w.indexer.compressor, device) if w.indexer else None,
        w_index_query=_half(w.indexer.query, device) if w.indexer else None,
        router=_half(w.router, device),
        router_bias=None if w.router_bias is None else w.router_bias.to(device),
        expert_of_token=None if w.expert_of_token is None else w.expert_of_token.to(device),
        experts={name: kernel.prepare(experts) for name, kernel in moe_kernels.items()},
        shared_w13=_half(w.shared_w13, device) if shared else None,
        shared_w2=_half(w.shared_w2, device) if shared else None,
        hc_attn=_mix(w.hc_attn, device),
        hc_ffn=_mix(w.hc_ffn, device),
    )


def _half(weight: Tensor, device: torch.device) -> Tensor:
    return weight.to(device, torch.bfloat16)


def _mix(w: HyperWeights, device: torch.device) -> Mix:
    padding = COEFFICIENTS - len(w.mix)
    return Mix(mix=_half(torch.nn.functional.pad(w.mix, (0, 0, 0, padding)), device), base=w.base.to(device))


def _pooling(w: CompressorWeights | None, device: torch.device) -> Pooling | None:
    return None if w is None else Pooling(bias=w.position.to(device), norm=w.norm.to(device))
