"""One row of 512 lanes on its way into the FP8 cache: norm, RoPE, quantisation, bytes as `kernels.mla_cache` says.

Shared by the kernel that writes window rows and the one that writes compressed entries. RoPE turns interleaved pairs
of the last 64 lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normed(row, weight, eps):
    """A whole row float32 [N] over its RMS, times `weight`."""
    return row / tl.sqrt(tl.sum(row * row, axis=0) / row.shape[0] + eps) * weight


@triton.jit
def turned(row, cos, sin, position):
    """float32 [512] -> the same with RoPE; cos and sin are float32 [positions, 32]."""
    even, odd = tl.split(tl.reshape(row, (256, 2)))
    pair = tl.arange(0, 256) - 224
    carries = pair >= 0
    c = tl.load(cos + position * 32 + pair, mask=carries, other=1.0)
    s = tl.load(sin + position * 32 + pair, mask=carries, other=0.0)
    return tl.reshape(tl.join(even * c - odd * s, even * s + odd * c), (512,))


@triton.jit
def write_row(cache, rope_view, row, at, page_bytes, PER_PAGE: tl.constexpr):
    """float32 [512] into row `at` of a cache (its bytes, and the same memory as bf16)."""
    page = (at // PER_PAGE).to(tl.int64) * page_bytes
    slot = at % PER_PAGE
    data = page + slot * 576
    lane = tl.arange(0, 512)
    block = tl.arange(0, 8)
    is_nope = lane < 448
    nope = tl.reshape(tl.where(is_nope, row, 0.0), (8, 64))
    bits = tl.max(tl.abs(nope), axis=1).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) & 255
    # 448 is 0.875 * 2**9: a mantissa above that needs the next power of two.
    scale = tl.maximum(exponent - 8 + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32), 0)
    scale = tl.where(exponent == 255, 0, scale)
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    code = (nope * inverse[:, None]).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    tl.store(cache + data + lane, tl.reshape(code, (512,)), mask=is_nope)
    tl.store(rope_view + data // 2 + 224 + lane - 448, row.to(tl.bfloat16), mask=lane >= 448)
    tl.store(cache + page + PER_PAGE * 576 + slot * 8 + block, tl.where(block < 7, scale, 0).to(tl.uint8))
