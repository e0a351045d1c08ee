"""Compressed attention entries: gated pooling of tokens, and the indexer that picks the best of them.

    entry_j = norm(sum_t softmax_t(gate_t + position_t) * value_t)      over the last `span` tokens, lane by lane

span = ratio, or 2 * ratio where entries overlap: then a token feeds the entry it closes with the second half of
its lanes and the next one with the first. Position i sees entry j once i >= ratio * j + ratio - 1. The indexer
scores entry j for a query by sum_h w_h relu(q_h . k_j) and keeps the best `topk`; its Hadamard rotation and FP4
rounding are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.batch import Entries, ForwardBatch
from dsv4bench.engine.cache import CompressorCache
from dsv4bench.engine.ops import Rope, rms_norm
from dsv4bench.engine.weights import CompressorWeights, IndexerWeights
from dsv4bench.kernels.sets import CacheRows

_PAD = 64  # the topk of a gathered list is padded to a multiple of this, as a paged kernel's index tensor is


def compress(
    x: Tensor, weights: CompressorWeights, cache: CompressorCache, batch: ForwardBatch, rope: Rope | None, eps: float
) -> Entries:
    """Stores the projections of x [T, D], and every entry that these positions complete."""
    entries = batch.entries(weights.ratio, weights.overlap)
    projected = torch.cat((x @ weights.value.t(), x @ weights.gate.t()), dim=-1)
    cache.raw.flatten(0, 1)[batch.token_rows] = projected
    if len(entries.done_target):
        raw = cache.raw.flatten(0, 1)[entries.done_source]
        pooled = rms_norm(_pool(raw, weights, entries.done_exists), weights.norm, eps)
        if rope is not None:
            rope.turn_(pooled, entries.done_position)
        cache.entries.flatten(0, 1)[entries.done_target] = pooled
    return entries


def _pool(raw: Tensor, weights: CompressorWeights, exists: Tensor) -> Tensor:
    """raw [n, span, 2 * width] -> [n, entry]."""
    value, gate = raw.chunk(2, dim=-1)
    if weights.overlap:
        older, newer = slice(None, weights.ratio), slice(weights.ratio, None)
        half = value.shape[-1] // 2
        gate = torch.cat(
            (
                gate[:, older, :half] + weights.position[:, :half],
                gate[:, newer, half:] + weights.position[:, half:],
            ),
            dim=1,
        )
        value = torch.cat((value[:, older, :half], value[:, newer, half:]), dim=1)
    else:
        gate = gate + weights.position
    gate = gate.masked_fill(~exists.unsqueeze(-1), -torch.inf)
    return (torch.softmax(gate, dim=1) * value).sum(dim=1)


def every_entry(entries: Entries, cache: CompressorCache, new: int) -> CacheRows:
    """All visible entries, for layers without an indexer; `new` positions a request."""
    width = -(-max(entries.max_visible, 1) // _PAD) * _PAD
    index = entries.index.repeat_interleave(new, dim=0)
    column = torch.arange(entries.max_visible, device=index.device)
    index = torch.where(column < entries.visible.unsqueeze(1), index, -1)
    index = torch.nn.functional.pad(index, (0, width - entries.max_visible), value=-1)
    return CacheRows(cache.entries, index, entries.visible, entries.max_visible)


def best_entries(
    x: Tensor,
    q_latent: Tensor,
    weights: IndexerWeights,
    entries: Entries,
    cache: CompressorCache,
    main: CompressorCache,
    batch: ForwardBatch,
    dims: ModelDims,
) -> CacheRows:
    """The indexer: rows of the `index_topk` best visible entries of the main cache."""
    requests, new = batch.tokens.shape
    heads, topk, seen = dims.index_heads, dims.index_topk, entries.max_visible
    length = entries.visible.clamp(max=topk)
    index = torch.full((requests * new, topk), -1, device=x.device)
    if seen:
        keys = cache.entries.flatten(0, 1).index_select(0, entries.index.reshape(-1))
        keys = keys.view(requests, seen, -1)
        query = (q_latent @ weights.query.t()).view(requests, new * heads, -1)
        match = torch.bmm(query, keys.transpose(1, 2)).relu_().view(-1, heads, seen)
        head_weight = (x @ weights.head_weight.t()) * (dims.index_head_dim * heads) ** -0.5
        score = torch.bmm(head_weight.unsqueeze(1), match).squeeze(1)
        column = torch.arange(seen, device=x.device)
        score.masked_fill_(column >= entries.visible.unsqueeze(1), -torch.inf)
        kept = min(topk, seen)
        # Stable, so that entries of equal score (no head matches: 0) are taken oldest first, whatever the batch;
        # what is not visible comes last.
        best = score.sort(dim=1, descending=True, stable=True).indices[:, :kept]
        rows = entries.index.repeat_interleave(new, dim=0).gather(1, best)
        index[:, :kept] = torch.where(column[:kept] < length.unsqueeze(1), rows, -1)
    return CacheRows(main.entries, index, length, min(topk, seen))
