"""The decoder on a GPU: one forward pass over R requests of S new positions, without a word to the host.

The same pass serves prefill (one request, many positions), decode and verification; shapes are fixed by R and S, and
positions, block tables, lengths and routing are read on the device, so it can be captured once and replayed. Beside
the two hot kernels there are torch's matrix products and the fused kernels of `fused`, the same for every kernel set.
Not thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.cuda.attention import Compressed, FixedRows, attend
from dsv4bench.engine.cuda.cache import CudaCache
from dsv4bench.engine.cuda.fused import mhc, router, rows
from dsv4bench.engine.cuda.fused.addressing import Where
from dsv4bench.engine.cuda.products import product, product_float
from dsv4bench.engine.cuda.sets import CudaKernels
from dsv4bench.engine.cuda.weights import CudaLayer, CudaOuter, Mix
from dsv4bench.engine.ops import Rope
from dsv4bench.engine.spans import Spans


@dataclass(slots=True)
class Routing:
    """Expert choices int32 [T, K], layer after layer: those to force where given, and those that were made."""

    forced: list[Tensor] | None = None
    made: list[Tensor] = field(default_factory=list)

    def next_forced(self) -> Tensor | None:
        return None if self.forced is None else self.forced[len(self.made)]


class CudaDecoder:
    """Weights, cache and the pass over them."""

    def __init__(
        self,
        dims: ModelDims,
        outer: CudaOuter,
        layers: list[CudaLayer],
        caches: list[CudaCache],
        *,
        positions: int,
        spans: Spans,
        device: torch.device,
    ) -> None:
        self.dims = dims
        self._outer, self._layers, self._caches = outer, layers, caches
        self._spans = spans
        self.positions = positions
        # A multiple of 16, as are all strides of a score.
        self._most_entries = max(16, -(-(positions // 4) // 16) * 16)
        self._most_dense = -(-positions // 128)
        self._angles = angles(positions, dims.rope_dim, dims.rope_theta, device)
        self._compress_angles = angles(positions, dims.rope_dim, dims.compress_rope_theta, device)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        where: Where,
        kernels: CudaKernels,
        *,
        last_only: bool = False,
        routing: Routing | None = None,
    ) -> Tensor:
        """Token ids int32 [R * S] -> logits float32 [R * S, vocab]; with `last_only` [1, vocab], of the last one."""
        dims, spans, around = self.dims, self._spans, self._outer
        streams = mhc.Streams(len(tokens), dims.hidden, tokens.device)
        with spans("glue"):
            fixed = FixedRows(where, dims, self._most_dense)
            streams.embed(around.embed, tokens, self._layers[0].hc_attn.mix)
        following = [mix.mix for w in self._layers for mix in (w.hc_attn, w.hc_ffn)] + [around.hc_head.mix]
        for layer, w in enumerate(self._layers):
            with spans(f"layer {layer}"):
                x = self._fold(streams, w.hc_attn, w.attn_norm)
                out = self._attend(layer, x, where, fixed, kernels)
                with spans("mhc"):
                    streams.spread(out, None, following[2 * layer + 1])
                x = self._fold(streams, w.hc_ffn, w.ffn_norm)
                routed, shared = self._feed_forward(x, tokens, w, where, kernels, routing)
                with spans("mhc"):
                    streams.spread(routed, shared, following[2 * layer + 2])
        with spans("mhc"):
            first = len(tokens) - 1 if last_only else 0
            x = streams.fold(around.hc_head.base, around.norm, dims.norm_eps, rounds=0, first=first)
        with spans("dense"):
            return product_float(x, around.head)

    def _fold(self, streams: mhc.Streams, mix: Mix, norm: Tensor) -> Tensor:
        with self._spans("mhc"):
            return streams.fold(mix.base, norm, self.dims.norm_eps, self.dims.hc_sinkhorn_iters)

    def _attend(self, layer: int, x: Tensor, where: Where, fixed: FixedRows, kernels: CudaKernels) -> Tensor:
        w = self._layers[layer]
        turn = self._compress_angles if w.ratio else self._angles
        compressed = Compressed(turn, self._most_entries)
        return attend(x, w, self._caches[layer], where, fixed, compressed, self.dims, kernels, self._spans)

    def _feed_forward(
        self, x: Tensor, tokens: Tensor, w: CudaLayer, where: Where, kernels: CudaKernels, routing: Routing | None
    ) -> tuple[Tensor, Tensor | None]:
        """x bf16 [T, D], normalised -> (the routed experts' output, the shared expert's)."""
        dims, spans = self.dims, self._spans
        with spans("router"):
            ids, share = router.choose(
                product_float(x, w.router),
                dims.experts_per_token,
                where,
                bias=w.router_bias,
                by_token=None if w.expert_of_token is None else (w.expert_of_token, tokens),
                forced=None if routing is None else routing.next_forced(),
            )
        if routing is not None:
            routing.made.append(ids)
        with spans("moe"):
            routed = kernels.moe(x, ids, share, w.experts)
        if w.shared_w13 is None or w.shared_w2 is None:
            return routed, None
        with spans("dense"):
            act = rows.swiglu(product(x, w.shared_w13), dims.swiglu_limit)
            return routed, product(act, w.shared_w2)


def angles(positions: int, rope_dim: int, theta: float, device: torch.device) -> rows.Angles:
    rope = Rope(positions, rope_dim, theta, str(device))
    return rows.Angles(*rope.tables)
