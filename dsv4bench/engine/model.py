"""The decoder: one forward pass over a batch of new positions, against the paged cache.

The same pass serves prefill, decode and verification; only the kernel set differs. Prefill always takes the grouped
set, as servers do: the slow kernels are decode kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.attention import attend
from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import allocate
from dsv4bench.engine.moe import feed_forward
from dsv4bench.engine.ops import Rope, hc_head, hc_post, hc_pre, rms_norm
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import ModelWeights
from dsv4bench.kernels.sets import KernelSet


class Decoder:
    """Weights, cache and the pass over them. Not thread-safe: one thread calls `forward`."""

    def __init__(
        self, dims: ModelDims, weights: ModelWeights, *, pages: int, positions: int, spans: Spans, device: str = "cpu"
    ) -> None:
        self.dims = dims
        self._weights = weights
        self._spans = spans
        self._caches = allocate(dims, pages, device)
        self._rope = Rope(positions, dims.rope_dim, dims.rope_theta, device)
        self._compress_rope = Rope(positions, dims.rope_dim, dims.compress_rope_theta, device)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kernels: KernelSet, *, last_only: bool = False) -> Tensor:
        """Logits [R, S, vocab], or [R, 1, vocab] of each request's last position with `last_only`."""
        dims, spans, weights = self.dims, self._spans, self._weights
        tokens = batch.tokens.reshape(-1)
        with spans("glue"):
            streams = weights.embed.index_select(0, tokens).unsqueeze(1).repeat(1, dims.hc_mult, 1)
        for layer in range(dims.layers):
            with spans(f"layer {layer}"):
                streams = self._layer(layer, streams, tokens, batch, kernels)
        requests, new = batch.tokens.shape
        if last_only:
            streams = streams.view(requests, new, *streams.shape[1:])[:, -1]
            new = 1
        with spans("mhc"):
            x = hc_head(streams, weights.hc_head, dims.norm_eps)
        with spans("dense"):
            logits: Tensor = rms_norm(x, weights.norm, dims.norm_eps) @ weights.head.t()
        return logits.view(requests, new, -1)

    def _layer(self, layer: int, streams: Tensor, tokens: Tensor, batch: ForwardBatch, kernels: KernelSet) -> Tensor:
        dims, spans, w = self.dims, self._spans, self._weights.layers[layer]
        rope = self._compress_rope if w.ratio else self._rope
        eps, iterations = dims.norm_eps, dims.hc_sinkhorn_iters
        with spans("mhc"):
            x, post, comb = hc_pre(streams, w.hc_attn, iterations, eps)
        with spans("glue"):
            x = rms_norm(x, w.attn_norm, eps)
        out = attend(x, w, self._caches[layer], batch, dims, rope, kernels, spans)
        with spans("mhc"):
            streams = hc_post(streams, out, post, comb)
            x, post, comb = hc_pre(streams, w.hc_ffn, iterations, eps)
        with spans("glue"):
            x = rms_norm(x, w.ffn_norm, eps)
        out = feed_forward(x, tokens, w, dims, kernels, spans)
        with spans("mhc"):
            return hc_post(streams, out, post, comb)
