"""The two GEMMs of a grouped MXFP4 expert layer: packed weights to tensor cores through registers.

A program owns BN rows of one expert's matrix and one block of BT tokens. Weights are the M side of the MMA, tokens
the N side: at decode an expert has one to three tokens. A tile of packed weights goes to shared memory
asynchronously, from there by `ldmatrix` straight into the fragment of the MMA's register operand, and is decoded in
those registers; nothing is converted between layouts.

    acc[n, t] += 2**(scale - 127) * (plane_j[n, :] . x[:, 32 j : 32 j + 32])       for each block of 32 along K

The scale is applied to the float32 sum of a block, which is exact. A decoded plane is E2M1's value * 2**-126 and x
is multiplied by 2**64, so that sums are far from float32's ends for scales of 2**-40 to 2**40 and |x| < 2**63.
Weights with other scales take EXACT, where planes are E2M1's value * 2**-8 and x is what it is: one multiplication
more for two weights, right for every scale byte and every normal bfloat16.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from dsv4bench.kernels.gpu.epilogue import LIFT, combine_arrivals, swiglu

UNLIFT = tl.constexpr(2.0**62)  # what a sum of (w * 2**-126) * (x * 2**64) is to be multiplied with
EXACT_UNLIFT = tl.constexpr(2.0**8)
LARGEST = tl.constexpr(3.3895313892515355e38)  # of bfloat16


@triton.jit
def decode(w, EXACT: tl.constexpr, PACKED: tl.constexpr):
    """int16 tile of packed weights -> four bf16 planes of its shape. See `mxfp4_pack` for the bits."""
    if PACKED:
        p0, p1, p2, p3 = tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b;
            and.b32 $0, $4, 0x81C081C0;
            shl.b32 a, $4, 4;
            and.b32 $1, a, 0x81C081C0;
            shf.l.wrap.b32 a, $4, $4, 10;
            and.b32 $2, a, 0x81C081C0;
            shl.b32 a, $4, 6;
            shr.u32 b, $4, 2;
            lop3.b32 $3, a, b, 0x81C081C0, 0x28;
            }""",
            "=r,=r,=r,=r,r",
            [w],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    else:
        low, high = tl.split(tl.reshape(w, (w.shape[0], w.shape[1] // 2, 2)))
        word = (low.to(tl.uint32) & 0xFFFF) | (high.to(tl.uint32) << 16)
        p0 = both_halves(word)
        p1 = both_halves(word << 4)
        p2 = both_halves((word << 10) | (word >> 22))
        p3 = both_halves((word << 6) ^ (word >> 2))
    if EXACT:
        p0, p1, p2, p3 = enlarge(p0, PACKED), enlarge(p1, PACKED), enlarge(p2, PACKED), enlarge(p3, PACKED)
    return p0, p1, p2, p3


@triton.jit
def both_halves(word):
    """The codes of each uint32 [n, c] -> bf16 [n, 2 c], the low half's first."""
    code = word & 0x81C081C0
    low = (code << 16).to(tl.float32, bitcast=True)
    high = (code & 0xFFFF0000).to(tl.float32, bitcast=True)
    return tl.reshape(tl.join(low, high), (word.shape[0], word.shape[1] * 2)).to(tl.bfloat16)


@triton.jit
def enlarge(plane, PACKED: tl.constexpr):
    """plane * 2**118, exactly."""
    if PACKED:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 power, zero;
            mov.b32 power, 0x7A807A80;
            mov.b32 zero, 0x80008000;
            fma.rn.bf16x2 $0, $1, power, zero;
            }""",
            "=r,r",
            [plane],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    return (plane.to(tl.float32) * 2.0**118).to(tl.bfloat16)


@triton.jit
def plane_scale(s, j: tl.constexpr, EXACT: tl.constexpr):
    """Byte j of int32 [BN] -> float32 [BN, 1], 2**(byte - 127)."""
    byte = (s >> (8 * j)) & 0xFF
    bits = byte << 23
    if EXACT:
        bits = tl.where(byte == 0, 0x00400000, bits)  # 2**-127, a subnormal
    return bits.to(tl.float32, bitcast=True)[:, None]


@triton.jit
def load_plane(xp, mask, LIFTED: tl.constexpr, PACKED: tl.constexpr):
    """x [BT, 32] -> [32, BT], times 2**64 unless it was stored so."""
    x = tl.load(xp, mask=mask, other=0.0)
    if not LIFTED:
        x = lift(x, PACKED)
    return tl.trans(x)


@triton.jit
def lift(x, PACKED: tl.constexpr):
    """bf16 -> bf16, times 2**64; what that takes beyond bfloat16 becomes its largest number."""
    if PACKED:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 one, top;
            mov.b32 one, 0x5F805F80;
            mov.b32 top, 0x80008000;
            fma.rn.bf16x2 one, $1, one, top;
            mov.b32 top, 0x7F7F7F7F;
            min.bf16x2 one, one, top;
            mov.b32 top, 0xFF7FFF7F;
            max.bf16x2 $0, one, top;
            }""",
            "=r,r",
            [x],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    return tl.minimum(tl.maximum(x.to(tl.float32) * LIFT, -LARGEST), LARGEST).to(tl.bfloat16)


@triton.jit
def multiply(
    x, w, s, first, rows_of_x, valid, K_TILES: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    STAGES: tl.constexpr, LIFTED: tl.constexpr, EXACT: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """W [BN, K] x^T [K, BT] -> float32 [BN, BT]; W's strips of ROWS rows begin at tile row `first` (int64)."""
    r = tl.arange(0, BN)
    h = tl.arange(0, 32)
    row = first + (r // ROWS) * (K_TILES * ROWS) + r % ROWS
    wp = w + row[:, None] * 32 + h[None, :]
    sp = s + row
    xp = x + rows_of_x[:, None] * (K_TILES * 128) + h[None, :]
    mask = valid[:, None]
    acc = tl.zeros((BN, BT), tl.float32)
    for _ in tl.range(0, K_TILES, num_stages=STAGES):
        packed = tl.load(wp)
        scales = tl.load(sp)
        x0 = load_plane(xp, mask, LIFTED, PACKED)
        x1 = load_plane(xp + 32, mask, LIFTED, PACKED)
        x2 = load_plane(xp + 64, mask, LIFTED, PACKED)
        x3 = load_plane(xp + 96, mask, LIFTED, PACKED)
        p0, p1, p2, p3 = decode(packed, EXACT, PACKED)
        acc += plane_scale(scales, 0, EXACT) * tl.dot(p0, x0)
        acc += plane_scale(scales, 1, EXACT) * tl.dot(p1, x1)
        acc += plane_scale(scales, 2, EXACT) * tl.dot(p2, x2)
        acc += plane_scale(scales, 3, EXACT) * tl.dot(p3, x3)
        wp += ROWS * 32
        sp += ROWS
        xp += 128
    if EXACT:
        return acc * EXACT_UNLIFT
    return acc * UNLIFT


@triton.jit
def block_of(block, ids, block_expert, block_slots, num_blocks, BT: tl.constexpr, DIRECT: tl.constexpr):
    """-> expert (negative: nothing to do), slots [BT] (0 where not valid), valid [BT].

    DIRECT: every slot is a block of its own, read from `ids`, without a routing launch.
    """
    t = tl.arange(0, BT)
    if DIRECT:
        expert = tl.load(ids + block)
        valid = t == 0
        slots = tl.where(valid, block, 0)
    else:
        slots = tl.load(block_slots + block * BT + t)
        expert = tl.load(block_expert + block)
        expert = tl.where(block < tl.load(num_blocks), expert, -1)
        valid = slots >= 0
        slots = tl.where(valid, slots, 0)
    return expert, slots, valid


@triton.jit
def gate_up_kernel(
    x, w, s, act, ids, block_expert, block_slots, num_blocks, arrived, out, limit,
    D: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    STAGES: tl.constexpr, DIRECT: tl.constexpr, LIFTED: tl.constexpr, LIFT_ACT: tl.constexpr, EXACT: tl.constexpr,
    PACKED: tl.constexpr, COUNTERS: tl.constexpr, PDL: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """act[slot] = silu(min(W1 x, limit)) * clamp(W3 x, -limit, limit), bf16 [slots, I], times 2**64 if LIFT_ACT.

    Not FUSED: W1 x and W3 x as they are, float32 [slots, 2 I].

    A tile holds 8 rows of W1, the 8 of W3 that belong to them, and so on: one thread of the MMA has both.
    """
    TILES: tl.constexpr = 2 * INNER // BN
    K_TILES: tl.constexpr = D // 128
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    pid = tl.program_id(0)
    tile = pid % TILES
    block = pid // TILES
    expert, slots, valid = block_of(block, ids, block_expert, block_slots, num_blocks, BT, DIRECT)
    if expert < 0:
        if DIRECT:
            prepare_token(block, tile, ids, arrived, out, D, K, COUNTERS)
        return
    first = (expert.to(tl.int64) * (2 * INNER // ROWS) + tile * (BN // ROWS)) * (K_TILES * ROWS)
    acc = multiply(x, w, s, first, slots // K, valid, K_TILES, ROWS, BN, BT, STAGES, LIFTED, EXACT, PACKED)
    gate, up = tl.split(tl.permute(tl.reshape(acc, (BN // 16, 2, 8, BT)), (0, 2, 3, 1)))
    n = tile * (BN // 2) + tl.arange(0, BN // 2)
    if FUSED:
        value = tl.reshape(swiglu(gate, up, limit, LIFT_ACT), (BN // 2, BT))
        tl.store(act + slots[None, :] * INNER + n[:, None], value.to(tl.bfloat16), mask=valid[None, :])
    else:
        at = slots[None, :] * (2 * INNER) + n[:, None]
        tl.store(act + at, tl.reshape(gate, (BN // 2, BT)), mask=valid[None, :])
        tl.store(act + at + INNER, tl.reshape(up, (BN // 2, BT)), mask=valid[None, :])
    if DIRECT:
        prepare_token(block, tile, ids, arrived, out, D, K, COUNTERS)


@triton.jit
def prepare_token(slot, tile, ids, arrived, out, D: tl.constexpr, K: tl.constexpr, COUNTERS: tl.constexpr):
    """What the routing launch does elsewhere: the token's counters are cleared; zeros, if it has no expert."""
    if (slot % K == 0) & (tile == 0):
        token = slot // K
        c = tl.arange(0, COUNTERS)
        tl.store(arrived + token * COUNTERS + c, tl.zeros((COUNTERS,), tl.int32))
        chosen = 0
        for k in tl.static_range(K):
            chosen += (tl.load(ids + slot + k) >= 0).to(tl.int32)
        if chosen == 0:
            for start in range(0, D, 128):
                d = start + tl.arange(0, 128)
                tl.store(out + token * D + d, tl.zeros((128,), tl.bfloat16))


@triton.jit
def down_kernel(
    act, w, s, ids, weights, route_scale, part, out, block_expert, block_slots, num_blocks, arrived,
    D: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    STAGES: tl.constexpr, DIRECT: tl.constexpr, EXACT: tl.constexpr, PACKED: tl.constexpr, COUNTERS: tl.constexpr,
    PDL: tl.constexpr, PREFETCH: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """part[slot] = weight * route_scale * (W2 act[slot]), float32 [slots, D]; FUSED: and out[token], their sum."""
    TILES: tl.constexpr = D // BN
    K_TILES: tl.constexpr = INNER // 128
    pid = tl.program_id(0)
    tile = pid % TILES
    block = pid // TILES
    expert, slots, valid = block_of(block, ids, block_expert, block_slots, num_blocks, BT, DIRECT)
    first = (expert.to(tl.int64) * (D // ROWS) + tile * (BN // ROWS)) * (K_TILES * ROWS)
    if PDL:
        # The routing was complete before the first GEMM began; only `act` has to be waited for.
        if PREFETCH > 0 and expert >= 0:
            prefetch(w + first * 32, PREFETCH)
        gdc_wait()
    if expert < 0:
        return
    acc = multiply(act, w, s, first, slots, valid, K_TILES, ROWS, BN, BT, STAGES, True, EXACT, PACKED)
    share = tl.load(weights + slots, mask=valid, other=0.0) * route_scale
    n = tile * BN + tl.arange(0, BN)
    tl.store(part + slots[None, :] * D + n[:, None], acc * share[None, :], mask=valid[None, :])
    if FUSED:
        combine_arrivals(part, ids, arrived, out, slots, valid, tile, n, D, K, BT, COUNTERS)


@triton.jit
def prefetch(address, BYTES: tl.constexpr):
    """Asks for BYTES contiguous bytes to be in L2 soon; one thread does."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        .reg .b32 t;
        mov.u32 t, %tid.x;
        setp.eq.u32 p, t, 0;
        @p cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [address.to(tl.int64), BYTES],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
