"""The first launch of the split-K sparse decode: one tile of heads over one split of both caches' rows.

A program reads a tile of rows as 32-bit words into registers, the next tile's while it computes with this one,
decodes it to bf16 once for all its heads, and uses it for both products: scores = q k^T and out += p k. The loop of
one trip around the scores keeps Triton from seeing that their product feeds another one, which would make both warp
groups compute all scores.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsv4bench.kernels.gpu.split_k_combine import finish, split_size, valid_entries


@triton.jit
def _indices(first, last, n_window, window, extra, EXTRA: tl.constexpr, ROWS: tl.constexpr):
    """Positions of a tile and what the index lists hold there; -1 from `last` on."""
    at = first + tl.arange(0, ROWS)
    source = window + at
    if EXTRA:
        source = tl.where(at < n_window, source, extra + (at - n_window))
    return at, tl.load(source, mask=at < last, other=-1)


@triton.jit
def _addresses(
    at,
    index,
    n_window,
    window,
    extra,
    W_PAGE: tl.constexpr,
    W_BYTES: tl.constexpr,
    E_PAGE: tl.constexpr,
    E_BYTES: tl.constexpr,
    EXTRA: tl.constexpr,
):
    """(is a row, where its data stands, where its scales stand)."""
    valid = index >= 0
    row = tl.maximum(index, 0).to(tl.uint32)
    slot = (row % W_PAGE).to(tl.int32)
    page = window + (row // W_PAGE).to(tl.int64) * W_BYTES
    data = page + slot * 576
    scales = page + W_PAGE * 576 + slot * 8
    if EXTRA:
        in_window = at < n_window
        slot = (row % E_PAGE).to(tl.int32)
        page = extra + (row // E_PAGE).to(tl.int64) * E_BYTES
        data = tl.where(in_window, data, page + slot * 576)
        scales = tl.where(in_window, scales, page + E_PAGE * 576 + slot * 8)
    return valid, data, scales


@triton.jit
def _read(valid, data, scales, mine, other):
    """The 8 scale bytes, seven blocks of 64 E4M3 lanes as words [ROWS, 16], and the rope lanes as two of those.

    Three blocks from lane `mine` on, three from `other` on, and block 3; `mine` and `other` are 0 and 256. A thread's
    four rope words stand where its sixteen E4M3 lanes do, so that no shuffle is needed later.
    """
    power = tl.load(scales.to(tl.pointer_type(tl.int64)), mask=valid, other=0)
    word = tl.arange(0, 16)
    at = data.to(tl.pointer_type(tl.int32))[:, None] + word[None, :]
    inside = valid[:, None]
    a0 = tl.load(at + mine // 4, mask=inside, other=0)
    a1 = tl.load(at + (mine // 4 + 16), mask=inside, other=0)
    a2 = tl.load(at + (mine // 4 + 32), mask=inside, other=0)
    b0 = tl.load(at + other // 4, mask=inside, other=0)
    b1 = tl.load(at + (other // 4 + 16), mask=inside, other=0)
    b2 = tl.load(at + (other // 4 + 32), mask=inside, other=0)
    c = tl.load(at + 48, mask=inside, other=0)
    at_rope = data.to(tl.pointer_type(tl.int32))[:, None] + (112 + (word // 4) * 8 + word % 4)[None, :]
    r0 = tl.load(at_rope, mask=inside, other=0)
    r1 = tl.load(at_rope + 4, mask=inside, other=0)
    return power, a0, a1, a2, b0, b1, b2, c, r0, r1


@triton.jit
def _nope(words, power, block, ROWS: tl.constexpr):
    """Words of E4M3 times 2**(scale byte - 127) -> bf16 [ROWS, 64]; exact, for it is three bits of mantissa."""
    e0 = (words & 0xFF).to(tl.uint8)
    e1 = ((words >> 8) & 0xFF).to(tl.uint8)
    e2 = ((words >> 16) & 0xFF).to(tl.uint8)
    e3 = ((words >> 24) & 0xFF).to(tl.uint8)
    codes = tl.reshape(tl.join(tl.join(e0, e2), tl.join(e1, e3)), (ROWS, 64))
    byte = ((power >> (8 * block)) & 0xFF).to(tl.int32)
    bits = tl.where(byte == 0, 0x400000, byte << 23)  # 2**-127 is subnormal
    scale = bits.to(tl.float32, bitcast=True)[:, None]
    return (codes.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale).to(tl.bfloat16)


@triton.jit
def _rope(first, second, ROWS: tl.constexpr):
    """Two words a thread interleaves in runs of four -> bf16 [ROWS, 64] in order."""
    a = _pairs(first, ROWS)
    b = _pairs(second, ROWS)
    return tl.reshape(tl.permute(tl.join(a, b), (0, 1, 3, 2)), (ROWS, 64))


@triton.jit
def _pairs(words, ROWS: tl.constexpr):
    low = (words & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = ((words >> 16) & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(tl.join(low, high), (ROWS, 4, 8))


@triton.jit
def _side_by_side(k0, k1, k2, k3, ROWS: tl.constexpr):
    """Four [ROWS, 64] -> [ROWS, 256]."""
    both = tl.join(tl.join(k0, k2), tl.join(k1, k3))
    return tl.reshape(tl.permute(both, (0, 2, 3, 1)), (ROWS, 256))


@triton.jit(do_not_specialize=["W", "E", "H", "splits", "one"])
def _sparse_decode_split_kernel(
    q,  # bf16 [B, H, 512]
    window,  # uint8, the cache's bytes
    window_index,  # int32 [B, W]
    window_length,  # int32 [B]
    extra,
    extra_index,
    extra_length,
    sink,  # float32 [H]
    out,  # float32 [B, splits, H, 512]; with one split bf16 [B, H, 512]
    lse,  # float32 [B, splits, H], base 2; with one split [B, H], natural
    scale2,  # of the scores, times log2(e)
    W,
    E,
    H,
    splits,
    one,  # 1, which the compiler must not know
    SPLIT: tl.constexpr,
    W_PAGE: tl.constexpr,
    W_BYTES: tl.constexpr,
    E_PAGE: tl.constexpr,
    E_BYTES: tl.constexpr,
    EXTRA: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_E: tl.constexpr,
    SINK: tl.constexpr,
    LSE_SINK: tl.constexpr,
    GRAIN: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    HALVES: tl.constexpr,
    AHEAD: tl.constexpr,
    WGMMA: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Grid (splits, head tiles * HALVES, B)."""
    split = tl.program_id(0)
    half = tl.program_id(1) % HALVES
    b = tl.program_id(2).to(tl.int64)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    n_window, total = valid_entries(window_length, extra_length, b, W, E, HAS_W, HAS_E, EXTRA)
    size = split_size(total, splits, GRAIN)
    first = split * size
    last = tl.minimum(first + size, total)
    if SPLIT:  # noqa: SIM102 - the compiler decides this one, the program the next
        if first >= total:
            return
    window_index += b * W
    extra_index += b * E
    head = (tl.program_id(1) // HALVES) * HEADS + tl.arange(0, HEADS)
    is_head = head < H
    lane = tl.arange(0, 256)
    mine = half * 256
    other = 256 - mine
    at, index = _indices(first, last, n_window, window_index, extra_index, EXTRA, ROWS)
    at_q = q + (b * H + head)[:, None] * 512 + lane[None, :]
    q_mine = tl.load(at_q + mine, mask=is_head[:, None], other=0.0)
    q_other = tl.load(at_q + other, mask=is_head[:, None], other=0.0)
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    sums = tl.zeros((HEADS,), tl.float32)
    acc = tl.zeros((HEADS, 256), tl.float32)
    acc_other = tl.zeros((HEADS, 256), tl.float32)
    valid, data, scales = _addresses(at, index, n_window, window, extra, W_PAGE, W_BYTES, E_PAGE, E_BYTES, EXTRA)
    if AHEAD:
        power, a0, a1, a2, b0, b1, b2, c, r0, r1 = _read(valid, data, scales, mine, other)
        at, index = _indices(first + ROWS, last, n_window, window_index, extra_index, EXTRA, ROWS)
    for i in tl.range(0, tl.cdiv(last - first, ROWS), num_stages=1):
        if not AHEAD:
            power, a0, a1, a2, b0, b1, b2, c, r0, r1 = _read(valid, data, scales, mine, other)
            at, index = _indices(first + (i + 1) * ROWS, last, n_window, window_index, extra_index, EXTRA, ROWS)
        a = _nope(c, power, 3, ROWS)
        rope = _rope(r0, r1, ROWS)
        fourth = a
        if HALVES == 2:  # block 3 ends the first half, rope the second
            fourth = tl.where(half == 0, a, rope)
            rope = tl.where(half == 0, rope, a)
        k_mine = _side_by_side(
            _nope(a0, power, half * 4, ROWS),
            _nope(a1, power, half * 4 + 1, ROWS),
            _nope(a2, power, half * 4 + 2, ROWS),
            fourth,
            ROWS,
        )
        k_other = _side_by_side(
            _nope(b0, power, 4 - half * 4, ROWS),
            _nope(b1, power, 5 - half * 4, ROWS),
            _nope(b2, power, 6 - half * 4, ROWS),
            rope,
            ROWS,
        )
        is_row = valid
        valid, data, scales = _addresses(at, index, n_window, window, extra, W_PAGE, W_BYTES, E_PAGE, E_BYTES, EXTRA)
        if AHEAD:
            power, a0, a1, a2, b0, b1, b2, c, r0, r1 = _read(valid, data, scales, mine, other)
            at, index = _indices(first + (i + 2) * ROWS, last, n_window, window_index, extra_index, EXTRA, ROWS)
        score = tl.zeros((HEADS, ROWS), tl.float32)
        if WGMMA:
            for _ in tl.range(0, one, num_stages=1):
                score = tl.dot(q_mine, tl.trans(k_mine), score)
            for _ in tl.range(0, one, num_stages=1):
                score = tl.dot(q_other, tl.trans(k_other), score)
        else:
            score = tl.dot(q_mine, tl.trans(k_mine), score)
            score = tl.dot(q_other, tl.trans(k_other), score)
        score = tl.where(is_row[None, :], score * scale2, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # no row yet: keep -inf minus -inf away
        p = tl.exp2(score - base[:, None])
        decay = tl.exp2(top - base)
        sums = sums * decay + tl.sum(p, 1)
        weight = p.to(tl.bfloat16)
        acc = tl.dot(weight, k_mine, acc * decay[:, None])
        if HALVES == 1:
            acc_other = tl.dot(weight, k_other, acc_other * decay[:, None])
        top = new_top
    if SPLIT:
        place = (b * splits + split) * H + head
        seen = sums > 0.0
        inverse = tl.where(seen, 1.0 / tl.where(seen, sums, 1.0), 0.0)
        left = tl.where(seen, top + tl.log2(tl.where(seen, sums, 1.0)), float("-inf"))
    else:
        place = b * H + head
        inverse, left = finish(sink, head, is_head, top, sums, SINK, LSE_SINK)
    tl.store(lse + place, left, mask=is_head & (half == 0))
    at_out = out + place[:, None] * 512 + lane[None, :] + mine
    tl.store(at_out, (acc * inverse[:, None]).to(out.dtype.element_ty), mask=is_head[:, None])
    if HALVES == 1:
        tl.store(at_out + 256, (acc_other * inverse[:, None]).to(out.dtype.element_ty), mask=is_head[:, None])
