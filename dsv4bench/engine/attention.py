"""The attention sublayer: low-rank query, one shared KV head, sliding window plus compressed entries.

    q = rope(norm(wq_b norm(wq_a x)))        kv = rope(norm(wkv x)), K = V
    o = inverse_rope(sparse_decode(q, window rows, entry rows, sink))        y = wo_b [wo_a_g o_g]

Because V carries RoPE, the output is turned back before the grouped projection. The kernel set does the middle.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import LayerCache
from dsv4bench.engine.compress import best_entries, compress, every_entry
from dsv4bench.engine.ops import Rope, rms_norm
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import LayerWeights
from dsv4bench.kernels.sets import CacheRows, KernelSet


def attend(
    x: Tensor,
    w: LayerWeights,
    cache: LayerCache,
    batch: ForwardBatch,
    dims: ModelDims,
    rope: Rope,
    kernels: KernelSet,
    spans: Spans,
) -> Tensor:
    """x [T, D], normalised -> [T, D]; writes the new rows of `cache`."""
    position, eps = batch.flat_positions, dims.norm_eps
    with spans("dense"):
        q_latent = rms_norm(x @ w.wq_a.t(), w.q_norm, eps)
        q = rms_norm((q_latent @ w.wq_b.t()).view(len(x), dims.heads, dims.head_dim), None, eps)
        kv = rms_norm(x @ w.wkv.t(), w.kv_norm, eps)
        rope.turn_(q, position)
    with spans("kv_write"):
        cache.kv.flatten(0, 1)[batch.token_rows] = rope.turn_(kv, position)
    extra = _compressed(x, q_latent, w, cache, batch, dims, rope, spans)
    with spans("attention"):
        window = CacheRows(cache.kv, *batch.window(dims.window))
        out = kernels.sparse_decode(q, window, extra, w.sink, dims.head_dim**-0.5)
    with spans("dense"):
        rope.turn_(out, position, inverse=True)
        grouped = out.view(len(x), dims.o_groups, -1).transpose(0, 1)
        low = torch.bmm(grouped, w.wo_a.transpose(1, 2)).transpose(0, 1).reshape(len(x), -1)
        return low @ w.wo_b.t()


def _compressed(
    x: Tensor,
    q_latent: Tensor,
    w: LayerWeights,
    cache: LayerCache,
    batch: ForwardBatch,
    dims: ModelDims,
    rope: Rope,
    spans: Spans,
) -> CacheRows | None:
    """The entry rows this layer attends beside its window; None in a window-only layer."""
    if w.compressor is None or cache.compressor is None:
        return None
    with spans("compressor"):
        entries = compress(x, w.compressor, cache.compressor, batch, rope, dims.norm_eps)
        if w.indexer is None or cache.indexer is None:
            return every_entry(entries, cache.compressor, batch.tokens.shape[1])
        compress(x, w.indexer.compressor, cache.indexer, batch, None, dims.norm_eps)
    with spans("indexer"):
        return best_entries(x, q_latent, w.indexer, entries, cache.indexer, cache.compressor, batch, dims)
