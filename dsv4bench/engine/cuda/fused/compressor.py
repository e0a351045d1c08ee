"""Gated pooling of tokens into compressed entries: one launch stores projections and whatever entries they complete.

    entry_j = norm(sum_t softmax_t(gate_t + bias_t) * value_t), lane by lane, over the last `span` tokens

as `engine.compress` says. Most positions complete nothing: their program stores its own projection and ends, so the
launch is the same at every step. Tokens of the same launch are read from the projections, older ones from the ring of
the request's slot. A prefill that would overwrite what it still reads stores in a launch of its own.
Main entries get RoPE and go into the FP8 cache; the indexer's keys stay bf16, without Hadamard rotation and FP4.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import Where, row_of
from dsv4bench.engine.cuda.fused.cache_row import normed, turned, write_row
from dsv4bench.engine.cuda.fused.rows import Angles

_MAX_ROWS = 8  # tokens pooled at a time


@triton.jit(do_not_specialize=["stride", "new", "pages"])
def _kv_compress_norm_rope_insert_kernel(
    projected,  # bf16 [T, 2 * WIDTH] with a row stride: value, gate
    raw,  # bf16 [slots, RING, 2 * WIDTH]: token p of a slot at p % RING
    bias,  # float32 [RATIO, WIDTH]
    norm,  # float32 [ENTRY]
    entries,  # uint8 [pages, page_bytes] or bf16 [entries of the cache, ENTRY]
    rope_view,
    cos,
    sin,
    slots,
    start,
    active,
    tables,
    stride,
    new,
    pages,
    page_bytes,
    eps,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
    ENTRY: tl.constexpr,
    PAGE: tl.constexpr,  # tokens a page
    FP8: tl.constexpr,
    RING: tl.constexpr,
    STORE: tl.constexpr,
    POOL: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Grid (T,)."""
    WIDTH: tl.constexpr = ENTRY * (1 + OVERLAP)
    SPAN: tl.constexpr = RATIO * (1 + OVERLAP)
    token = tl.program_id(0)
    request = token // new
    first_new = tl.load(start + request)
    position = first_new + token % new
    lane = tl.arange(0, ENTRY)
    ring = raw + tl.load(slots + request).to(tl.int64) * (RING * 2 * WIDTH)
    if STORE:
        both = tl.arange(0, 2 * WIDTH)
        own = tl.load(projected + token.to(tl.int64) * stride + both)
        if token % new + RING >= new:  # else a later token of this launch has its place
            tl.store(ring + (position % RING) * (2 * WIDTH) + both, own)
    if POOL & ((position + 1) % RATIO == 0) & (request < tl.load(active)):
        top = tl.full((ENTRY,), float("-inf"), tl.float32)
        total = tl.zeros((ENTRY,), tl.float32)
        acc = tl.zeros((ENTRY,), tl.float32)
        for begin in range(0, SPAN, ROWS):
            r = begin + tl.arange(0, ROWS)
            source = position - SPAN + 1 + r
            exists = source >= 0
            fresh = source >= first_new
            half = tl.where(r >= RATIO, ENTRY, 0) if OVERLAP else r * 0
            at_new = (token - position + source).to(tl.int64) * stride + half
            cached = exists & ~fresh
            at_old = (source % RING) * (2 * WIDTH) + half
            from_new = (exists & fresh)[:, None]
            from_old = cached[:, None]
            new_at = projected + at_new[:, None] + lane[None, :]
            old_at = ring + at_old[:, None] + lane[None, :]
            value = tl.load(new_at, mask=from_new, other=0.0) + tl.load(old_at, mask=from_old, other=0.0)
            gate = tl.load(new_at + WIDTH, mask=from_new, other=0.0) + tl.load(
                old_at + WIDTH, mask=from_old, other=0.0
            )
            learned = tl.load(bias + ((r % RATIO) * WIDTH + half)[:, None] + lane[None, :])
            logit = tl.where(exists[:, None], gate.to(tl.float32) + learned, float("-inf"))
            # The last row always exists; an empty block before it must not make NaN of -inf minus -inf.
            new_top = tl.maximum(top, tl.max(logit, axis=0))
            base = tl.where(new_top == float("-inf"), 0.0, new_top)
            p = tl.exp(logit - base[None, :])
            decay = tl.exp(top - base)
            total = total * decay + tl.sum(p, axis=0)
            acc = acc * decay + tl.sum(p * value.to(tl.float32), axis=0)
            top = new_top
        entry = position // RATIO
        pooled = normed(acc / total, tl.load(norm + lane), eps)
        at = row_of(tables, request, pages, entry, True, PAGE // RATIO)
        if FP8:
            write_row(entries, rope_view, turned(pooled, cos, sin, entry * RATIO), at, page_bytes, PAGE // RATIO)
        else:
            tl.store(entries + at.to(tl.int64) * ENTRY + lane, pooled.to(tl.bfloat16))


def compress(
    projected: Tensor,
    raw: Tensor,
    bias: Tensor,
    norm: Tensor,
    entries: Tensor,
    page_size: int,
    angles: Angles,
    where: Where,
    eps: float,
) -> None:
    """Stores projected bf16 [T, 2 * width] in `raw`, and completed entries in `entries` (uint8: FP8; else bf16)."""
    ratio, width = bias.shape
    fp8 = entries.dtype == torch.uint8
    span, ring = ratio * (width // len(norm)), raw.shape[1]
    together = ring >= span - 1 + where.new
    for store, pool in ((True, True),) if together else ((False, True), (True, False)):
        _kv_compress_norm_rope_insert_kernel[(len(projected),)](
            projected,
            raw,
            bias,
            norm,
            entries,
            entries.view(torch.bfloat16),
            *angles,
            where.slots,
            where.start,
            where.active,
            where.tables,
            projected.stride(0),
            where.new,
            where.tables.shape[1],
            entries.shape[1] if fp8 else 0,
            eps,
            RATIO=ratio,
            OVERLAP=width // len(norm) - 1,
            ENTRY=len(norm),
            PAGE=page_size,
            FP8=fp8,
            RING=ring,
            STORE=store,
            POOL=pool,
            ROWS=min(_MAX_ROWS, span),
            num_warps=8 if fp8 else 4,
        )
