"""The cured set, in torch: each chosen expert is decoded once for all its tokens, all heads share one gather.

MoE: slots are sorted by expert and padded to [experts, most tokens, D]; decode once, then two batched matmuls.
The padding costs arithmetic, never another read of the weights. Experts go in groups whose decoded weights
fit a memory budget. Attention: the rows of both caches are gathered once for a token, up to the longest valid
length of the batch, and every head multiplies against them; the sink is one more column of the softmax.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsv4bench.kernels import mxfp4
from dsv4bench.kernels.sets import CacheRows, Experts, KernelName

DECODED_BUDGET_BYTES = 256 * 2**20


class OptimizedKernels:
    """Grouped by expert, batched over heads."""

    name: KernelName = "optimized"

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
        tokens, top_k = ids.shape
        order = torch.argsort(ids.reshape(-1), stable=True)
        slots = order[ids.reshape(-1)[order] >= 0]  # slots without an expert drop out here
        out = torch.zeros(tokens, x.shape[1], dtype=x.dtype, device=x.device)
        if len(slots) == 0:
            return out
        token_of = slots // top_k
        chosen, group, counts = torch.unique_consecutive(
            ids.reshape(-1)[slots], return_inverse=True, return_counts=True
        )
        rank = torch.arange(len(slots), device=x.device) - (counts.cumsum(0) - counts)[group]
        padded = torch.zeros(len(chosen), int(counts.max()), x.shape[1], dtype=x.dtype, device=x.device)
        padded[group, rank] = x.index_select(0, token_of)
        result = torch.cat([_run(padded[part], chosen[part], experts) for part in _parts(chosen, experts)])
        scaled = result[group, rank] * (weights.reshape(-1)[slots] * experts.route_scale).unsqueeze(1)
        return out.index_add_(0, token_of, scaled.to(out.dtype))

    def sparse_decode(
        self, q: Tensor, window: CacheRows, extra: CacheRows | None, sink: Tensor, scale: float
    ) -> Tensor:
        kv, valid = _gather(window)
        if extra is not None and extra.max_length > 0:
            extra_kv, extra_valid = _gather(extra)
            kv, valid = torch.cat((kv, extra_kv), 1), torch.cat((valid, extra_valid), 1)
        score = torch.bmm(q, kv.transpose(1, 2)) * scale
        score.masked_fill_(~valid.unsqueeze(1), -math.inf)
        column = sink.to(score.dtype).view(1, -1, 1).expand(len(q), -1, 1)
        probability = torch.softmax(torch.cat((score, column), -1), dim=-1)[..., :-1]
        return torch.bmm(probability, kv)


def _parts(chosen: Tensor, experts: Experts) -> list[slice]:
    """Slices over the chosen experts whose decoded weights stay within the budget."""
    decoded_bytes = (experts.w13[0].numel() + experts.w2[0].numel()) * 2 * 4
    step = max(1, DECODED_BUDGET_BYTES // decoded_bytes)
    return [slice(start, start + step) for start in range(0, len(chosen), step)]


def _run(x: Tensor, chosen: Tensor, experts: Experts) -> Tensor:
    """x [n, rows, D] -> [n, rows, D]: the n chosen experts, each on its own rows."""
    w13 = mxfp4.dequantize(experts.w13.index_select(0, chosen), experts.s13.index_select(0, chosen), x.dtype)
    gate, up = torch.bmm(x, w13.transpose(1, 2)).chunk(2, dim=-1)
    limit = experts.swiglu_limit
    activated = torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
    w2 = mxfp4.dequantize(experts.w2.index_select(0, chosen), experts.s2.index_select(0, chosen), x.dtype)
    return torch.bmm(activated, w2.transpose(1, 2))


def _gather(rows: CacheRows) -> tuple[Tensor, Tensor]:
    """-> (kv [T, n, d], valid bool [T, n]) with n the longest valid length of the batch."""
    index = rows.index[:, : rows.max_length]
    flat = rows.pool.reshape(-1, rows.pool.shape[-1])
    rows_of = flat.index_select(0, index.clamp(min=0).reshape(-1))
    return rows_of.view(*index.shape, -1), index >= 0
