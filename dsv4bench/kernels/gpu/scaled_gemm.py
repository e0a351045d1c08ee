"""The two GEMMs with block-scaled MMA: MXFP4 weights with MXFP4 (W4A4) or MXFP8 (W4A8) activations.

For sm_120, whose tensor cores take E2M1 or E4M3 with an E8M0 scale for every 32 along K. Weights are in the same
contiguous tiles as `grouped_gemm`'s, with their bytes as they came; a W4A8 tile is widened to E4M3 in registers,
exactly. Activations are quantised on the fly: x by the launch of `quantize_kernel`, the inner activations where the
first GEMM makes them. That changes the numbers, which is why both are an explicit choice.

Triton multiplies on other GPUs what it widens to bf16 there: right, and slow.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsv4bench.kernels.gpu.epilogue import combine_arrivals, swiglu
from dsv4bench.kernels.gpu.grouped_gemm import block_of

TILE_K = tl.constexpr(128)
# E2M1's sign and bits at 7 and 4..2 of an E4M3 are its value * 2**-6, subnormals included.
WIDENED = tl.constexpr(2.0**6)


@triton.jit
def block_scale(v, MAX_EXPONENT: tl.constexpr):
    """float32 [n, 32] -> (E8M0 uint8 [n], v / scale): the scale brings the largest into the format's last octave."""
    largest = tl.max(tl.abs(v), 1).to(tl.int32, bitcast=True)
    scale = tl.maximum(((largest >> 23) & 0xFF) - MAX_EXPONENT, 0)
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    return scale.to(tl.uint8), v * inverse[:, None]


@triton.jit
def e2m1_pairs(v):
    """float32 [n, 32] -> uint8 [n, 16]: nearest, ties to the even code, saturating; the even k in the low nibble."""
    m = tl.abs(v)
    code = (m > 0.25).to(tl.int32) + (m >= 0.75).to(tl.int32) + (m > 1.25).to(tl.int32) + (m >= 1.75).to(tl.int32)
    code += (m > 2.5).to(tl.int32) + (m >= 3.5).to(tl.int32) + (m > 5.0).to(tl.int32)
    code = tl.where(v < 0, code | 8, code)
    even, odd = tl.split(tl.reshape(code, (v.shape[0], 16, 2)))
    return (even | (odd << 4)).to(tl.uint8)


@triton.jit
def quantize(v, FORMAT: tl.constexpr):
    """float32 [n, 32] -> codes (uint8 [n, 16] or E4M3 [n, 32]) and scales uint8 [n]."""
    if FORMAT == "e2m1":
        scale, scaled = block_scale(v, 2)
        return e2m1_pairs(scaled), scale
    else:
        scale, scaled = block_scale(v, 8)
        return tl.minimum(tl.maximum(scaled, -448.0), 448.0).to(tl.float8e4nv), scale


@triton.jit
def quantize_kernel(x, codes, scales, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, FORMAT: tl.constexpr):
    """x bf16, flat -> codes [n / 32, WIDTH], scales [n / 32]; BLOCKS blocks of 32 a program."""
    b = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    v = tl.load(x + b[:, None] * 32 + tl.arange(0, 32)[None, :]).to(tl.float32)
    code, scale = quantize(v, FORMAT)
    tl.store(codes + b[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], code)
    tl.store(scales + b, scale)


@triton.jit
def widen(byte):
    """Codes of E2M1, uint8 -> E4M3 of their value * 2**-6."""
    return (((byte & 8) << 4) | ((byte & 7) << 2)).to(tl.float8e4nv, bitcast=True)


@triton.jit
def multiply(
    x, xs, w, s, first, rows_of_x, valid, K_TILES: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr,
    BT: tl.constexpr, STAGES: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """W [BN, K] x^T [K, BT] -> float32 [BN, BT]; W's strips of ROWS rows begin at tile row `first` (int64).

    W4A4: a tile row is 64 bytes of pairs. W4A8: byte i of a tile row holds k = i and, in its high nibble, 64 + i.
    """
    r = tl.arange(0, BN)
    row = first + (r // ROWS) * (K_TILES * ROWS) + r % ROWS
    wp = w + row[:, None] * 64 + tl.arange(0, 64)[None, :]
    sp = s + row[:, None] * 4
    mask = valid[:, None]
    acc = tl.zeros((BN, BT), tl.float32)
    if FORMAT == "e2m1":
        b = tl.arange(0, 4)
        xp = x + rows_of_x[:, None] * (K_TILES * 64) + tl.arange(0, 64)[None, :]
        xsp = xs + rows_of_x[:, None] * (K_TILES * 4) + b[None, :]
        for _ in tl.range(0, K_TILES, num_stages=STAGES):
            packed = tl.load(wp)
            scale = tl.load(sp + b[None, :])
            codes = tl.load(xp, mask=mask, other=0)
            x_scale = tl.load(xsp, mask=mask, other=0)
            acc = tl.dot_scaled(packed, scale, "e2m1", tl.trans(codes), x_scale, "e2m1", acc)
            wp += ROWS * 64
            sp += ROWS * 4
            xp += 64
            xsp += 4
        return acc
    else:
        b = tl.arange(0, 2)
        xp = x + rows_of_x[:, None] * (K_TILES * 128) + tl.arange(0, 64)[None, :]
        xsp = xs + rows_of_x[:, None] * (K_TILES * 4) + b[None, :]
        for _ in tl.range(0, K_TILES, num_stages=STAGES):
            packed = tl.load(wp)
            for half in tl.static_range(2):
                scale = tl.load(sp + 2 * half + b[None, :])
                codes = tl.load(xp + 64 * half, mask=mask, other=0.0)
                x_scale = tl.load(xsp + 2 * half, mask=mask, other=0)
                wide = widen(packed >> (4 * half))
                acc = tl.dot_scaled(wide, scale, "e4m3", tl.trans(codes), x_scale, "e4m3", acc)
            wp += ROWS * 64
            sp += ROWS * 4
            xp += 128
            xsp += 4
        return acc * WIDENED


@triton.jit
def scaled_gate_up_kernel(
    x, xs, w, s, act, act_scale, block_expert, block_slots, num_blocks, limit,
    D: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    STAGES: tl.constexpr, FORMAT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`gate_up_kernel`, whose activations leave as codes [slots, I / 32, WIDTH] and scales [slots, I / 32]."""
    TILES: tl.constexpr = 2 * INNER // BN
    N_BLOCKS: tl.constexpr = BN // 64
    pid = tl.program_id(0)
    tile = pid % TILES
    expert, slots, valid = block_of(pid // TILES, block_slots, block_expert, block_slots, num_blocks, BT, False)
    if expert < 0:
        return
    first = (expert.to(tl.int64) * (2 * INNER // ROWS) + tile * (BN // ROWS)) * (D // 128 * ROWS)
    acc = multiply(x, xs, w, s, first, slots // K, valid, D // 128, ROWS, BN, BT, STAGES, FORMAT)
    gate, up = tl.split(tl.permute(tl.reshape(acc, (BN // 16, 2, 8, BT)), (0, 2, 3, 1)))
    value = tl.trans(tl.reshape(swiglu(gate, up, limit, False), (BN // 2, BT)))
    codes, scale = quantize(tl.reshape(value, (BT * N_BLOCKS, 32)), FORMAT)
    n = tile * N_BLOCKS + tl.arange(0, N_BLOCKS)
    block = tl.reshape(slots[:, None] * (INNER // 32) + n[None, :], (BT * N_BLOCKS,))
    mask = tl.reshape(tl.broadcast_to(valid[:, None], (BT, N_BLOCKS)), (BT * N_BLOCKS,))
    tl.store(act + block[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], codes, mask=mask[:, None])
    tl.store(act_scale + block, scale, mask=mask)


@triton.jit
def scaled_down_kernel(
    act, act_scale, w, s, ids, weights, route_scale, part, out, block_expert, block_slots, num_blocks, arrived,
    D: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    STAGES: tl.constexpr, FORMAT: tl.constexpr, COUNTERS: tl.constexpr,
):  # fmt: skip
    """`down_kernel` on quantised activations."""
    TILES: tl.constexpr = D // BN
    pid = tl.program_id(0)
    tile = pid % TILES
    expert, slots, valid = block_of(pid // TILES, block_slots, block_expert, block_slots, num_blocks, BT, False)
    if expert < 0:
        return
    first = (expert.to(tl.int64) * (D // ROWS) + tile * (BN // ROWS)) * (INNER // 128 * ROWS)
    acc = multiply(act, act_scale, w, s, first, slots, valid, INNER // 128, ROWS, BN, BT, STAGES, FORMAT)
    share = tl.load(weights + slots, mask=valid, other=0.0) * route_scale
    n = tile * BN + tl.arange(0, BN)
    tl.store(part + slots[None, :] * D + n[:, None], acc * share[None, :], mask=valid[None, :])
    combine_arrivals(part, ids, arrived, out, slots, valid, tile, n, D, K, BT, COUNTERS)
