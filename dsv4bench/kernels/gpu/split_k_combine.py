"""Joins the partial softmaxes of a split sparse decode and applies the sink: one launch, a program a head.

    out = sum_s 2**(lse_s - top) o_s / (sum_s 2**(lse_s - top) + exp(sink - top))

`lse_s` are base-2, as the split kernel leaves them. How many splits hold anything follows from the lengths on the
device, so nothing has to be initialised. From sm_90 on the launch may overlap the end of the split kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def valid_entries(
    window_length, extra_length, b, W, E, HAS_W: tl.constexpr, HAS_E: tl.constexpr, EXTRA: tl.constexpr
):
    """(entries of the window, entries of both) of request b."""
    window = W
    if HAS_W:
        window = tl.minimum(tl.maximum(tl.load(window_length + b), 0), W)
    total = window
    if EXTRA:
        extra = E
        if HAS_E:
            extra = tl.minimum(tl.maximum(tl.load(extra_length + b), 0), E)
        total += extra
    return window, total


@triton.jit
def split_size(total, splits, GRAIN: tl.constexpr):
    """Entries of each split but the last."""
    return tl.cdiv(tl.cdiv(total, splits), GRAIN) * GRAIN


@triton.jit
def finish(sink, head, is_head, top, total, SINK: tl.constexpr, LSE_SINK: tl.constexpr):
    """(1 / denominator, 0 without rows; natural lse) from the base-2 maximum and the sum relative to it."""
    seen = total > 0.0
    top = tl.where(seen, top, 0.0)
    lse = tl.where(seen, top * LN2 + tl.log(tl.where(seen, total, 1.0)), float("-inf"))
    denominator = total
    if SINK:
        logit = tl.load(sink + head, mask=is_head, other=0.0)
        denominator = total + tl.exp(logit - top * LN2)
        if LSE_SINK:
            # Whichever is larger stands outside, so that neither exponential overflows.
            high = tl.maximum(lse, logit)
            lse = high + tl.log(tl.exp(lse - high) + tl.exp(logit - high))
    return tl.where(seen, 1.0 / tl.where(seen, denominator, 1.0), 0.0), lse


@triton.jit(do_not_specialize=["W", "E", "H", "splits"])
def _sparse_decode_combine_kernel(
    part,  # float32 [B, splits, H, 512]
    part_lse,  # float32 [B, splits, H], base 2
    window_length,  # int32 [B]
    extra_length,  # int32 [B]
    sink,  # float32 [H]
    out,  # bf16 [B, H, 512]
    lse,  # float32 [B, H]
    W,
    E,
    H,
    splits,
    HAS_W: tl.constexpr,
    HAS_E: tl.constexpr,
    EXTRA: tl.constexpr,
    SINK: tl.constexpr,
    LSE_SINK: tl.constexpr,
    GRAIN: tl.constexpr,
    BLOCK_S: tl.constexpr,  # a power of two, not below `splits`
    OVERLAP: tl.constexpr,
):
    """Grid (H, B)."""
    head = tl.program_id(0)
    b = tl.program_id(1).to(tl.int64)
    _, total = valid_entries(window_length, extra_length, b, W, E, HAS_W, HAS_E, EXTRA)
    live = tl.cdiv(total, tl.maximum(split_size(total, splits, GRAIN), 1))
    lane = tl.arange(0, 512)
    s = tl.arange(0, BLOCK_S)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    first = b * splits * H + head
    each = tl.load(part_lse + first + s * H, mask=s < live, other=float("-inf"))
    if BLOCK_S <= 32:
        rows = tl.load(part + (first + s * H)[:, None] * 512 + lane[None, :], mask=(s < live)[:, None], other=0.0)
        top = tl.max(each, 0)
        weight = tl.exp2(each - tl.where(top == float("-inf"), 0.0, top))
        acc = tl.sum(rows * weight[:, None], 0)
    else:
        top = tl.max(each, 0)
        weight = tl.exp2(each - tl.where(top == float("-inf"), 0.0, top))
        acc = tl.zeros((512,), tl.float32)
        for start in range(0, live, 16):
            t = start + tl.arange(0, 16)
            some = tl.load(part_lse + first + t * H, mask=t < live, other=float("-inf"))
            rows = tl.load(part + (first + t * H)[:, None] * 512 + lane[None, :], mask=(t < live)[:, None], other=0.0)
            acc += tl.sum(rows * tl.exp2(some - tl.where(top == float("-inf"), 0.0, top))[:, None], 0)
    inverse, natural = finish(sink, head, True, top, tl.sum(weight, 0), SINK, LSE_SINK)
    tl.store(out + (b * H + head) * 512 + lane, (acc * inverse).to(out.dtype.element_ty))
    tl.store(lse + b * H + head, natural)
