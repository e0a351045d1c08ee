"""The attention sublayer on the GPU, as `engine.attention`: projections, cache writes, the hot kernel, and back.

Rows that need no choosing (the window; every entry of ratio 128) are the same in all layers and found once a pass.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.cuda.cache import CudaCache
from dsv4bench.engine.cuda.fused import compressor, indexer, rows
from dsv4bench.engine.cuda.fused.addressing import Where, fixed_rows
from dsv4bench.engine.cuda.limits import PAGE_SIZE
from dsv4bench.engine.cuda.products import grouped, product
from dsv4bench.engine.cuda.sets import CudaKernels
from dsv4bench.engine.cuda.weights import CudaLayer
from dsv4bench.engine.spans import Spans
from dsv4bench.kernels.calls import AttentionCall, PagedRows

_PAD = 64  # the index of a dense layer is a multiple of this wide, as kernels expect


class FixedRows:
    """(index, length) of the window, and of all entries of ratio 128 up to `most_dense`."""

    def __init__(self, where: Where, dims: ModelDims, most_dense: int) -> None:
        self.window = fixed_rows(where, dims.window, 0, PAGE_SIZE)
        width = -(-max(1, most_dense) // _PAD) * _PAD
        self.dense = fixed_rows(where, width, 128, PAGE_SIZE) if 128 in dims.ratios else None


class Compressed(NamedTuple):
    """What a layer needs to know of its entries."""

    angles: rows.Angles
    most: int  # entries of ratio 4 that a request can have


def attend(
    x: Tensor,
    w: CudaLayer,
    cache: CudaCache,
    where: Where,
    fixed: FixedRows,
    compressed: Compressed,
    dims: ModelDims,
    kernels: CudaKernels,
    spans: Spans,
) -> Tensor:
    """x bf16 [T, D], normalised -> bf16 [T, D]; writes the new rows of `cache`."""
    tokens, angles, eps = len(x), compressed.angles, dims.norm_eps
    with spans("dense"):
        projected = product(x, w.w_in)
    with spans("kv_write"):
        latent = rows.q_and_kv(projected, w.q_norm, w.kv_norm, cache.window, PAGE_SIZE, angles, where, eps)
    with spans("dense"):
        q = product(latent, w.wq_b).view(tokens, dims.heads, dims.head_dim)
    with spans("glue"):
        q = rows.turn_heads(q, angles, where, eps)
    extra = _extra(x, latent, w, cache, where, fixed, compressed, dims, spans)
    with spans("attention"):
        window = PagedRows(cache.window, PAGE_SIZE, *fixed.window)
        out = kernels.sparse_decode(AttentionCall(q, window, extra, w.sink, dims.head_dim**-0.5))
    with spans("glue"):
        rows.turn_back_(out, angles, where)
    with spans("dense"):
        return product(grouped(out.view(tokens, dims.o_groups, -1), w.wo_a), w.wo_b)


def _extra(
    x: Tensor,
    latent: Tensor,
    w: CudaLayer,
    cache: CudaCache,
    where: Where,
    fixed: FixedRows,
    compressed: Compressed,
    dims: ModelDims,
    spans: Spans,
) -> PagedRows | None:
    """Stores what the new tokens compress to -> the entries to attend beside the window; None without any."""
    if w.pooling is None or w.w_compress is None or cache.raw is None or cache.entries is None:
        return None
    own = w.pooling.columns
    common = (PAGE_SIZE, compressed.angles, where, dims.norm_eps)
    with spans("compressor"):
        projected = product(x, w.w_compress)
        compressor.compress(projected[:, :own], cache.raw, w.pooling.bias, w.pooling.norm, cache.entries, *common)
    if w.index_pooling is None or w.w_index_query is None or cache.index_raw is None or cache.index_keys is None:
        assert fixed.dense is not None
        return PagedRows(cache.entries, PAGE_SIZE // w.ratio, *fixed.dense)
    index_end = own + w.index_pooling.columns
    with spans("compressor"):
        pooling = w.index_pooling
        part = projected[:, own:index_end]
        compressor.compress(part, cache.index_raw, pooling.bias, pooling.norm, cache.index_keys, *common)
    with spans("indexer"):
        query = product(latent, w.w_index_query).view(len(x), dims.index_heads, dims.index_head_dim)
        head_weight = projected[:, index_end:]
        keys, topk = cache.index_keys, dims.index_topk
        index, length = indexer.best_entries(query, head_weight, keys, compressed.most, topk, PAGE_SIZE, where)
        return PagedRows(cache.entries, PAGE_SIZE // w.ratio, index, length)
