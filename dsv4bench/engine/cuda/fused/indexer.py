"""The indexer: score every visible ratio-4 entry for a query, keep the best `topk`; two launches at any context.

    score_j = sum_h w_h relu(q_h . k_j) / sqrt(heads * dim)

Programs beyond what is visible end at once, so a graph captured for the longest context costs little at a short one.
The choice is exact: the topk-th largest score is found bit by bit, ties go to the oldest entries. Chosen rows come
out in the order of their age, which softmax does not care about.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import Where, row_of

_RATIO = 4
_BLOCK_S = 64


@triton.jit(do_not_specialize=["stride", "new", "pages"])
def _indexer_scores_kernel(
    query,  # bf16 [T, HEADS, DIM]
    head_weight,  # bf16 [T, HEADS] with a row stride
    keys,  # bf16 [entries of the cache, DIM]
    scores,  # float32 [T, columns], out; left alone beyond what is visible
    start,
    active,
    tables,
    stride,
    new,
    pages,
    columns,
    scale,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PER_PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Grid (T, columns / BLOCK_S)."""
    token = tl.program_id(0)
    request = token // new
    visible = (tl.load(start + request) + token % new + 1) // 4
    visible = tl.where(request < tl.load(active), visible, 0)
    if tl.program_id(1) * BLOCK_S < visible:
        j = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
        h = tl.arange(0, BLOCK_H)
        lane = tl.arange(0, DIM)
        seen = j < visible
        row = row_of(tables, request, pages, j, seen, PER_PAGE).to(tl.int64)
        key = tl.load(keys + row[:, None] * DIM + lane[None, :], mask=seen[:, None], other=0.0)
        at = (token.to(tl.int64) * HEADS + h)[:, None] * DIM + lane[None, :]
        q = tl.load(query + at, mask=(h < HEADS)[:, None], other=0.0)
        match = tl.maximum(tl.dot(q, tl.trans(key)), 0.0)
        weight = tl.load(head_weight + token.to(tl.int64) * stride + h, mask=h < HEADS, other=0.0).to(tl.float32)
        score = tl.sum(match * weight[:, None], axis=0) * scale
        tl.store(scores + token.to(tl.int64) * columns + j, score, mask=seen)


@triton.jit(do_not_specialize=["new", "pages"])
def _indexer_topk_kernel(
    scores,  # float32 [T, columns]
    index,  # int32 [T, TOPK], out: rows, -1 after the last
    length,  # int32 [T], out
    start,
    active,
    tables,
    new,
    pages,
    columns,
    TOPK: tl.constexpr,
    PER_PAGE: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Grid (T,)."""
    token = tl.program_id(0)
    request = token // new
    visible = (tl.load(start + request) + token % new + 1) // 4
    visible = tl.where(request < tl.load(active), visible, 0)
    count = tl.minimum(visible, TOPK)
    j = tl.arange(0, BLOCK_S)
    exists = j < visible
    kept = exists.to(tl.int32)
    if visible > TOPK:
        bits = tl.load(scores + token.to(tl.int64) * columns + j, mask=exists, other=0.0).to(tl.int32, bitcast=True)
        order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) + 2147483648  # grows with the score, from 0
        order = tl.where(exists, order, -1)
        least = tl.full((), 0, tl.int64)
        for step in range(32):
            tried = least | (tl.full((), 1, tl.int64) << (31 - step))
            enough = tl.sum((order >= tried).to(tl.int32), axis=0) >= TOPK
            least = tl.where(enough, tried, least)
        above = (order > least).to(tl.int32)
        equal = (order == least).to(tl.int32)
        room = TOPK - tl.sum(above, axis=0)
        kept = above + equal * (tl.cumsum(equal, axis=0) <= room).to(tl.int32)
    out = index + token.to(tl.int64) * TOPK
    is_kept = kept > 0
    row = row_of(tables, request, pages, j, is_kept, PER_PAGE)
    tl.store(out + tl.cumsum(kept, axis=0) - 1, row, mask=is_kept)
    k = tl.arange(0, BLOCK_K)
    tl.store(out + k, tl.full((BLOCK_K,), -1, tl.int32), mask=(k >= count) & (k < TOPK))
    tl.store(length + token, count)


def best_entries(
    query: Tensor, head_weight: Tensor, keys: Tensor, columns: int, topk: int, page_size: int, where: Where
) -> tuple[Tensor, Tensor]:
    """The rows of the best entries: (index int32 [T, topk], length int32 [T]).

    query bf16 [T, heads, dim], head_weight bf16 [T, heads], keys bf16 [rows, dim]; `columns` is the
    largest number of entries that the graph can meet.
    """
    tokens, heads, dim = query.shape
    device, per_page, pages = query.device, page_size // _RATIO, where.tables.shape[1]
    scores = torch.empty(tokens, columns, dtype=torch.float32, device=device)
    index = torch.empty(tokens, topk, dtype=torch.int32, device=device)
    length = torch.empty(tokens, dtype=torch.int32, device=device)
    common = (where.start, where.active, where.tables)
    _indexer_scores_kernel[(tokens, triton.cdiv(columns, _BLOCK_S))](
        query,
        head_weight,
        keys,
        scores,
        *common,
        head_weight.stride(0),
        where.new,
        pages,
        columns,
        (heads * dim) ** -0.5,
        HEADS=heads,
        DIM=dim,
        PER_PAGE=per_page,
        BLOCK_H=max(16, triton.next_power_of_2(heads)),
        BLOCK_S=_BLOCK_S,
    )
    block = triton.next_power_of_2(columns)
    _indexer_topk_kernel[(tokens,)](
        scores,
        index,
        length,
        *common,
        where.new,
        pages,
        columns,
        TOPK=topk,
        PER_PAGE=per_page,
        BLOCK_S=block,
        BLOCK_K=triton.next_power_of_2(topk),
        num_warps=4 if block <= 2048 else 16,
    )
    return index, length
