"""Random weights of a DeepSeek-V4-shaped decoder, seeded, in the storage each part is computed from.

Routed experts are drawn as packed MXFP4 bytes with E8M0 scales (see `kernels.mxfp4`), never as floats, so that a
layer of the real size needs no more memory than its checkpoint would. Everything else is plain float here; the
FP8 storage of the dense linears is not modelled. Linears are [out, in], scaled to keep activations near unit RMS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.kernels.mxfp4 import BLOCK, E8M0_BIAS, MAGNITUDES
from dsv4bench.kernels.sets import Experts


@dataclass(frozen=True, slots=True)
class HyperWeights:
    """Coefficients of one hyper-connection: n copies -> n pre, n post and n*n comb (the head has pre only)."""

    mix: Tensor  # [coefficients, n * hidden]
    base: Tensor  # [coefficients]


@dataclass(frozen=True, slots=True)
class CompressorWeights:
    """Gated pooling of `ratio` tokens; `overlap` doubles the width, a token feeding two entries."""

    ratio: int
    overlap: bool
    value: Tensor  # [width, hidden], width = entry (1 + overlap)
    gate: Tensor  # [width, hidden]
    position: Tensor  # [ratio, width], added to the gates
    norm: Tensor  # [entry]


@dataclass(frozen=True, slots=True)
class IndexerWeights:
    compressor: CompressorWeights
    query: Tensor  # [index_heads * index_head_dim, q_lora]
    head_weight: Tensor  # [index_heads, hidden]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    ratio: int
    attn_norm: Tensor
    ffn_norm: Tensor
    wq_a: Tensor
    q_norm: Tensor
    wq_b: Tensor
    wkv: Tensor
    kv_norm: Tensor
    wo_a: Tensor  # [o_groups, o_lora, heads / o_groups * head_dim]
    wo_b: Tensor
    sink: Tensor  # [heads]
    compressor: CompressorWeights | None
    indexer: IndexerWeights | None
    router: Tensor  # [experts, hidden]
    router_bias: Tensor | None  # of selection only; None in layers that choose by token id
    expert_of_token: Tensor | None  # int [vocab, experts_per_token]
    experts: Experts
    shared_w13: Tensor
    shared_w2: Tensor
    hc_attn: HyperWeights
    hc_ffn: HyperWeights


@dataclass(frozen=True, slots=True)
class OuterWeights:
    """What stands around the layers."""

    embed: Tensor
    head: Tensor
    norm: Tensor
    hc_head: HyperWeights


@dataclass(frozen=True, slots=True)
class ModelWeights(OuterWeights):
    layers: tuple[LayerWeights, ...]


class RandomWeights:
    """Draws a model's weights from one seeded generator; equal seeds give equal weights.

    `draw` does it all; who cannot hold a whole model twice takes `outer` and then each of `layers`, in this order.
    """

    def __init__(self, dims: ModelDims, seed: int, device: str = "cpu") -> None:
        self._dims = dims
        self._device = device
        self._rng = torch.Generator(device).manual_seed(seed)

    def draw(self) -> ModelWeights:
        around = self.outer()
        return ModelWeights(around.embed, around.head, around.norm, around.hc_head, layers=tuple(self.layers()))

    def outer(self) -> OuterWeights:
        d = self._dims
        return OuterWeights(
            embed=self._normal(d.vocab_size, d.hidden, std=1.0),
            head=self._linear(d.vocab_size, d.hidden),
            norm=self._norm(d.hidden),
            hc_head=self._hyper(d.hc_mult),
        )

    def layers(self) -> Iterator[LayerWeights]:
        return (self._layer(layer) for layer in range(self._dims.layers))

    def _layer(self, layer: int) -> LayerWeights:
        d, ratio = self._dims, self._dims.layer_ratio(layer)
        hashed = layer < d.hash_layers
        shared = d.expert_hidden * d.shared_experts
        mixes = d.hc_mult * (2 + d.hc_mult)
        per_group = d.heads // d.o_groups * d.head_dim
        return LayerWeights(
            ratio=ratio,
            attn_norm=self._norm(d.hidden),
            ffn_norm=self._norm(d.hidden),
            wq_a=self._linear(d.q_lora, d.hidden),
            q_norm=self._norm(d.q_lora),
            wq_b=self._linear(d.heads * d.head_dim, d.q_lora),
            wkv=self._linear(d.head_dim, d.hidden),
            kv_norm=self._norm(d.head_dim),
            wo_a=self._linear(d.o_groups, d.o_lora, per_group),
            wo_b=self._linear(d.hidden, d.o_groups * d.o_lora),
            sink=self._normal(d.heads, std=1.0),
            compressor=self._compressor(ratio, d.head_dim) if ratio else None,
            indexer=self._indexer(ratio) if ratio == 4 else None,
            router=self._linear(d.experts, d.hidden),
            router_bias=None if hashed else self._normal(d.experts, std=0.05),
            expert_of_token=self._expert_table() if hashed else None,
            experts=self._experts(),
            shared_w13=self._linear(2 * shared, d.hidden),
            shared_w2=self._linear(d.hidden, shared),
            hc_attn=self._hyper(mixes),
            hc_ffn=self._hyper(mixes),
        )

    def _compressor(self, ratio: int, entry: int) -> CompressorWeights:
        overlap = ratio == 4
        width = entry * (1 + overlap)
        return CompressorWeights(
            ratio=ratio,
            overlap=overlap,
            value=self._linear(width, self._dims.hidden),
            gate=self._linear(width, self._dims.hidden),
            position=self._normal(ratio, width, std=0.5),
            norm=self._norm(entry),
        )

    def _indexer(self, ratio: int) -> IndexerWeights:
        d = self._dims
        return IndexerWeights(
            compressor=self._compressor(ratio, d.index_head_dim),
            query=self._linear(d.index_heads * d.index_head_dim, d.q_lora),
            head_weight=self._linear(d.index_heads, d.hidden),
        )

    def _experts(self) -> Experts:
        d = self._dims
        w13, s13 = self._mxfp4(d.experts, 2 * d.expert_hidden, d.hidden)
        w2, s2 = self._mxfp4(d.experts, d.hidden, d.expert_hidden)
        return Experts(w13, s13, w2, s2, swiglu_limit=d.swiglu_limit, route_scale=d.route_scale)

    def _mxfp4(self, experts: int, rows: int, cols: int) -> tuple[Tensor, Tensor]:
        """Uniform codes; scales within a factor of two of what gives the product unit RMS."""
        rms = math.sqrt(sum(m * m for m in MAGNITUDES) / len(MAGNITUDES))
        centre = E8M0_BIAS + round(math.log2(1.0 / (rms * math.sqrt(cols))))
        packed = self._randint(0, 256, (experts, rows, cols // 2))
        scales = self._randint(centre - 1, centre + 1, (experts, rows, cols // BLOCK))
        return packed, scales

    def _randint(self, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(low, high, shape, dtype=torch.uint8, generator=self._rng, device=self._device)

    def _expert_table(self) -> Tensor:
        d = self._dims
        draw = torch.rand(d.vocab_size, d.experts, generator=self._rng, device=self._device)
        return draw.topk(d.experts_per_token, dim=1).indices.int()

    def _hyper(self, coefficients: int) -> HyperWeights:
        d = self._dims
        return HyperWeights(
            mix=self._linear(coefficients, d.hc_mult * d.hidden),
            base=self._normal(coefficients, std=0.5),
        )

    def _linear(self, *shape: int) -> Tensor:
        return self._normal(*shape, std=shape[-1] ** -0.5)

    def _norm(self, size: int) -> Tensor:
        return 1.0 + self._normal(size, std=0.1)

    def _normal(self, *shape: int, std: float) -> Tensor:
        return torch.randn(shape, generator=self._rng, device=self._device).mul_(std)
