"""The later in-tree attention fallback: a block of heads shares one read of the rows, and its dots use tensor cores.

It mends what `per_head` does to traffic and to the unit, and stops at the valid length. It still does not split the
rows: one request of 64 heads is one program a cache, so a small batch leaves the GPU almost empty. The rows are read
as 32-bit words of four E4M3 values; q is split in the same four-way interleave, because the order of a contraction is
free, and so nothing has to be shuffled. Merge and sink are the same separate launches.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.kernels.arguments import check_attention
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.calls import AttentionCall, Lse, PagedRows
from dsv4bench.kernels.gpu.merge import decode
from dsv4bench.kernels.gpu.tuning import choices, refuse_in_capture

# BLOCK_H, BLOCK_T, warps, stages. sm_120 has too little shared memory for the second; the tuner passes over it there.
_TILES = ((64, 16, 4, 2), (64, 32, 8, 2), (32, 16, 4, 3), (32, 32, 8, 4))
_CONFIGS = [
    triton.Config({"BLOCK_H": h, "BLOCK_T": t}, num_warps=warps, num_stages=stages) for h, t, warps, stages in _TILES
]


@triton.jit
def _e4m3(byte, exponent, tiny):
    """E4M3 times a power of two, in bf16: the bits of the float32 are put together from the two exponents.

    `exponent`: the scale byte - 7. `tiny`: 2**(scale byte - 133), what an eighth of a subnormal's mantissa is worth.
    Below 2**-126 the result is 0 where it is not zero already; a byte that means NaN comes out as 480.
    """
    sign = (byte & 0x80) << 24
    e = (byte >> 3) & 15
    mantissa = (byte & 7) << 20
    biased = e + exponent
    normal = ((biased << 23) | mantissa).to(tl.float32, bitcast=True)
    normal = tl.where(biased > 0, normal, 0.0)
    subnormal = ((mantissa | 0x3F800000).to(tl.float32, bitcast=True) - 1.0) * tiny
    magnitude = tl.where(e == 0, subnormal, normal)
    value = (magnitude.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return value.to(tl.bfloat16)


@triton.autotune(configs=choices(_CONFIGS), key=["topk_bucket"])
@triton.jit(do_not_specialize=["H", "topk", "page_size", "topk_bucket"])
def _tiled_sparse_decode_kernel_mh(
    q,  # bf16 [B, H, 512]
    words,  # the cache as int32
    rope,  # the cache as bf16
    index,  # int32 [B, topk]
    length,  # int32 [B]
    out,  # bf16 [B, H, 512]
    lse,  # float32 [B, H], natural logarithm
    sm_scale,
    H,
    topk,
    page_size,
    page_bytes,
    topk_bucket,  # a power of two, for the tuner only
    HAS_LENGTH: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Softmax over the valid rows of one cache; rows without any leave out 0 and lse -inf. Grid (B, H / BLOCK_H)."""
    b = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    is_head = heads < H
    word = tl.arange(0, 128)  # 112 of them are E4M3; what follows is rope, which must not be read as such
    is_nope = word < 112
    rope_lane = tl.arange(0, 64)
    at_head = ((b * H + heads) * 512)[:, None]
    is_q = is_head[:, None] & is_nope[None, :]
    at_q = q + at_head + 4 * word[None, :]
    q0 = tl.load(at_q, mask=is_q, other=0.0)
    q1 = tl.load(at_q + 1, mask=is_q, other=0.0)
    q2 = tl.load(at_q + 2, mask=is_q, other=0.0)
    q3 = tl.load(at_q + 3, mask=is_q, other=0.0)
    q_rope = tl.load(q + at_head + 448 + rope_lane[None, :], mask=is_head[:, None], other=0.0)
    end = topk
    if HAS_LENGTH:
        end = tl.minimum(topk, tl.load(length + b))
    top = tl.full((BLOCK_H,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_H,), tl.float32)
    acc0 = tl.zeros((BLOCK_H, 128), tl.float32)
    acc1 = tl.zeros((BLOCK_H, 128), tl.float32)
    acc2 = tl.zeros((BLOCK_H, 128), tl.float32)
    acc3 = tl.zeros((BLOCK_H, 128), tl.float32)
    acc_rope = tl.zeros((BLOCK_H, 64), tl.float32)
    for start in range(0, end, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)
        row = tl.load(index + b * topk + t, mask=t < end, other=-1)
        valid = row >= 0
        row = tl.where(valid, row, 0)
        page = (row // page_size).to(tl.int64) * page_bytes
        slot = row % page_size
        data = page + slot * 576
        at_scales = words + (page + page_size * 576 + slot * 8) // 4
        inside = valid[:, None] & is_nope[None, :]
        kv = tl.load((words + data // 4)[:, None] + word[None, :], mask=inside, other=0)
        k_rope = tl.load((rope + (data + 448) // 2)[:, None] + rope_lane[None, :], mask=valid[:, None], other=0.0)
        low = tl.load(at_scales, mask=valid, other=0)
        high = tl.load(at_scales + 1, mask=valid, other=0)
        four = tl.where((word < 64)[None, :], low[:, None], high[:, None])  # sixteen words share a scale byte
        power = (four >> (((word // 16) % 4) * 8)[None, :]) & 255
        exponent = power - 7
        tiny = (tl.maximum(power - 6, 0) << 23).to(tl.float32, bitcast=True)
        k0 = _e4m3(kv & 255, exponent, tiny)
        k1 = _e4m3((kv >> 8) & 255, exponent, tiny)
        k2 = _e4m3((kv >> 16) & 255, exponent, tiny)
        k3 = _e4m3((kv >> 24) & 255, exponent, tiny)
        score = tl.dot(q0, tl.trans(k0))
        score = tl.dot(q1, tl.trans(k1), score)
        score = tl.dot(q2, tl.trans(k2), score)
        score = tl.dot(q3, tl.trans(k3), score)
        score = tl.dot(q_rope, tl.trans(k_rope), score)
        score = tl.where(valid[None, :], score * (sm_scale * 1.4426950408889634), float("-inf"))
        new_top = tl.maximum(top, tl.max(score, axis=1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing seen yet: keep -inf minus -inf away
        decay = tl.exp2(top - base)
        p = tl.exp2(score - base[:, None])
        total = total * decay + tl.sum(p, axis=1)
        weight = p.to(tl.bfloat16)
        acc0 = tl.dot(weight, k0, acc0 * decay[:, None])
        acc1 = tl.dot(weight, k1, acc1 * decay[:, None])
        acc2 = tl.dot(weight, k2, acc2 * decay[:, None])
        acc3 = tl.dot(weight, k3, acc3 * decay[:, None])
        acc_rope = tl.dot(weight, k_rope, acc_rope * decay[:, None])
        top = new_top
    seen = total > 0.0
    divisor = tl.where(seen, total, 1.0)
    at_out = out + at_head + 4 * word[None, :]
    tl.store(at_out, (acc0 / divisor[:, None]).to(tl.bfloat16), mask=is_q)
    tl.store(at_out + 1, (acc1 / divisor[:, None]).to(tl.bfloat16), mask=is_q)
    tl.store(at_out + 2, (acc2 / divisor[:, None]).to(tl.bfloat16), mask=is_q)
    tl.store(at_out + 3, (acc3 / divisor[:, None]).to(tl.bfloat16), mask=is_q)
    out_rope = (acc_rope / divisor[:, None]).to(tl.bfloat16)
    tl.store(out + at_head + 448 + rope_lane[None, :], out_rope, mask=is_head[:, None])
    natural = (top + tl.log2(divisor)) * 0.6931471805599453
    tl.store(lse + b * H + heads, tl.where(seen, natural, float("-inf")), mask=is_head)


class MultiHead:
    """An `AttentionRunner`. The first call for a top-k tunes, so it must not happen inside a graph capture."""

    lse: Lse = "with_sink"

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        check_attention(call, kernel="sparse_decode_multi_head")
        return decode(call, _attend)


def _attend(q: Tensor, rows: PagedRows, scale: float) -> tuple[Tensor, Tensor]:
    """One cache -> (bf16 [B, H, 512], plain lse float32 [B, H])."""
    batch, heads, _ = q.shape
    topk = rows.index.shape[1]
    bucket = triton.next_power_of_2(topk)
    out = torch.zeros(q.shape, device=q.device, dtype=torch.bfloat16)
    lse = torch.full((batch, heads), float("-inf"), device=q.device, dtype=torch.float32)
    refuse_in_capture(_tiled_sparse_decode_kernel_mh, bucket)
    flat = rows.data.view(-1)
    grid = lambda choice: (batch, triton.cdiv(heads, choice["BLOCK_H"]))  # noqa: E731
    _tiled_sparse_decode_kernel_mh[grid](
        q,
        flat.view(torch.int32),
        flat.view(torch.bfloat16),
        rows.index,
        rows.index if rows.length is None else rows.length,
        out,
        lse,
        scale,
        heads,
        topk,
        rows.page_size,
        rows.data.shape[1],
        bucket,
        HAS_LENGTH=rows.length is not None,
    )
    return out, lse


def runner() -> MultiHead:
    """The implementation, ready to call."""
    return MultiHead()


_SIGNATURE = {
    "q": "*bf16",
    "words": "*i32",
    "rope": "*bf16",
    "index": "*i32",
    "length": "*i32",
    "out": "*bf16",
    "lse": "*fp32",
    "sm_scale": "fp32",
    "H": "i32",
    "topk": "i32",
    "page_size": "i32",
    "page_bytes": "i32",
    "topk_bucket": "i32",
}
_ALIGNED = (*(name for name, kind in _SIGNATURE.items() if kind.startswith("*")), "page_bytes")


def builds() -> tuple[Build, ...]:
    """Every choice of the autotuner; the same code for any H, top-k and page size."""
    return tuple(
        Build(
            function=_tiled_sparse_decode_kernel_mh.fn,
            signature=_SIGNATURE,
            constants={"HAS_LENGTH": True, "BLOCK_H": h, "BLOCK_T": t},
            num_warps=warps,
            num_stages=stages,
            label=f"BH{h} BT{t} warps{warps} stages{stages}",
            divisible_by_16=_ALIGNED,
        )
        for h, t, warps, stages in _TILES
    )
