"""The campaign's attention fallback: one program a (request, head), with no tensor core and no split over the rows.

Every head gathers the same rows again, marches through all of top-k whatever the real length is, fetches a scale
byte for each element and multiplies and sums in float32. The two caches are two launches, joined and given their sink
by `merge`. That is the baseline as it was served; a later one is `multi_head`. SGLang pads a rank's heads to 64
before it calls, so to compare with TP4 or TP8 as served, call this with H = 64.
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

_MIN_SM = 89  # Triton converts E4M3 from there on
_TILES = ((16, 4), (16, 8), (32, 8))  # BLOCK_T, warps
_CONFIGS = [triton.Config({"BLOCK_T": t}, num_warps=w, num_stages=2) for t, w in _TILES]


@triton.autotune(configs=choices(_CONFIGS, interpreted=2), key=["topk_bucket"])
@triton.jit(do_not_specialize=["H", "topk", "page_size", "topk_bucket"])
def _tiled_sparse_decode_kernel(
    q,  # bf16 [B, H, 512]
    nope,  # the cache as E4M3
    scale_bytes,  # the cache as bytes
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
    BLOCK_T: tl.constexpr,
):
    """Softmax over the valid rows of one cache; rows without any leave out 0 and lse -inf. Grid (B, H)."""
    b = tl.program_id(0).to(tl.int64)
    head = b * H + tl.program_id(1)
    lane = tl.arange(0, 512)
    rope_lane = tl.arange(0, 64)
    # Lanes from 448 on would read the rope bytes as E4M3, where they may be NaN, and 0 * NaN is not 0.
    is_nope = lane < 448
    q_nope = tl.load(q + head * 512 + lane, mask=is_nope, other=0.0).to(tl.float32)
    q_rope = tl.load(q + head * 512 + 448 + rope_lane).to(tl.float32)
    end = topk
    if HAS_LENGTH:
        end = tl.minimum(topk, tl.load(length + b))
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    acc_nope = tl.zeros((512,), tl.float32)
    acc_rope = tl.zeros((64,), tl.float32)
    for start in range(0, topk, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)
        row = tl.load(index + b * topk + t, mask=t < end, other=-1)
        valid = row >= 0
        row = tl.where(valid, row, 0)
        page = (row // page_size).to(tl.int64) * page_bytes
        slot = row % page_size
        data = page + slot * 576
        scales = page + page_size * 576 + slot * 8
        inside = valid[:, None] & is_nope[None, :]
        k_nope = tl.load((nope + data)[:, None] + lane[None, :], mask=inside, other=0.0).to(tl.float32)
        power = tl.load((scale_bytes + scales)[:, None] + (lane // 64)[None, :], mask=inside, other=127).to(tl.int32)
        power = tl.where(power == 0, 0x00400000, power << 23)  # 2**(power - 127); byte 0 is a subnormal
        k_nope = k_nope * power.to(tl.float32, bitcast=True)
        at_rope = (rope + (data + 448) // 2)[:, None] + rope_lane[None, :]
        k_rope = tl.load(at_rope, mask=valid[:, None], other=0.0).to(tl.float32)
        score = tl.sum(k_nope * q_nope[None, :], axis=1) + tl.sum(k_rope * q_rope[None, :], axis=1)
        score = tl.where(valid, score * (sm_scale * 1.4426950408889634), float("-inf"))
        new_top = tl.maximum(top, tl.max(score, axis=0))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing seen yet: keep -inf minus -inf away
        decay = tl.exp2(top - base)
        p = tl.exp2(score - base)
        total = total * decay + tl.sum(p, axis=0)
        acc_nope = acc_nope * decay + tl.sum(p[:, None] * k_nope, axis=0)
        acc_rope = acc_rope * decay + tl.sum(p[:, None] * k_rope, axis=0)
        top = new_top
    seen = total > 0.0
    divisor = tl.where(seen, total, 1.0)
    tl.store(out + head * 512 + lane, (acc_nope / divisor).to(tl.bfloat16), mask=is_nope)
    tl.store(out + head * 512 + 448 + rope_lane, (acc_rope / divisor).to(tl.bfloat16))
    natural = (top + tl.log2(divisor)) * 0.6931471805599453
    tl.store(lse + head, tl.where(seen, natural, float("-inf")))


class PerHead:
    """An `AttentionRunner`. The first call for a top-k tunes, so it must not happen inside a graph capture."""

    lse: Lse = "with_sink"

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        check_attention(call, kernel="sparse_decode_per_head", min_sm=_MIN_SM)
        return decode(call, _attend)


def _attend(q: Tensor, rows: PagedRows, scale: float) -> tuple[Tensor, Tensor]:
    """One cache -> (bf16 [B, H, 512], plain lse float32 [B, H])."""
    batch, heads, _ = q.shape
    topk = rows.index.shape[1]
    bucket = triton.next_power_of_2(topk)
    out = torch.zeros(q.shape, device=q.device, dtype=torch.bfloat16)
    lse = torch.full((batch, heads), float("-inf"), device=q.device, dtype=torch.float32)
    refuse_in_capture(_tiled_sparse_decode_kernel, bucket)
    flat = rows.data.view(-1)
    _tiled_sparse_decode_kernel[(batch, heads)](
        q,
        flat.view(torch.float8_e4m3fn),
        flat,
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


def runner() -> PerHead:
    """The implementation, ready to call."""
    return PerHead()


_SIGNATURE = {
    "q": "*bf16",
    "nope": "*fp8e4nv",
    "scale_bytes": "*u8",
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
            function=_tiled_sparse_decode_kernel.fn,
            signature=_SIGNATURE,
            constants={"HAS_LENGTH": True, "BLOCK_T": t},
            num_warps=warps,
            num_stages=2,
            label=f"BT{t} warps{warps}",
            divisible_by_16=_ALIGNED,
        )
        for t, warps in _TILES
    )
