"""Hyper-connections in two launches a sublayer: spread the output and project all copies, then Sinkhorn and fold.

    project   stream_i = post_i y + sum_j comb_ij stream_j   (or the embedding), and its part of mix . flat(streams)
    fold      coefficients from the parts, Sinkhorn on comb, x = norm(sum_i pre_i stream_i)

The projection is split over the width, since at batch 1 one program would read all of `mix`; its parts carry the sum
of squares in their last column, so the RMS of all copies is known when they are added up. Coefficients are float32,
streams bf16. Four copies, as DeepSeek-V4 has.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COPIES = 4
COEFFICIENTS = 32  # 4 pre, 4 post, 16 comb, padding; the last column of a part is the sum of squares
_BLOCK_D = 64


@triton.jit
def _mhc_project_kernel(
    streams,  # bf16 [T, 4, D], in and out
    y,  # bf16 [T, D]: the sublayer's output; with EMBED the table [vocab, D]
    y_more,  # bf16 [T, D], added to y
    post,  # float32 [T, 4]
    comb,  # float32 [T, 4, 4]
    ids,  # int32 [T], with EMBED
    mix,  # bf16 [32, 4 * D]
    parts,  # float32 [T, D / BLOCK_D, 32], out
    D: tl.constexpr,
    EMBED: tl.constexpr,
    MORE: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid (T, ceil(D / BLOCK_D)); a program owns its lanes of all four copies.

    All loads stand before the stores, which might alias them for all that the compiler knows.
    """
    token = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    c = tl.arange(0, 32)
    inside = d < D
    own = streams + token * (4 * D) + d
    at = mix + c[:, None] * (4 * D) + d[None, :]
    w0 = tl.load(at, mask=inside[None, :], other=0.0)
    w1 = tl.load(at + D, mask=inside[None, :], other=0.0)
    w2 = tl.load(at + 2 * D, mask=inside[None, :], other=0.0)
    w3 = tl.load(at + 3 * D, mask=inside[None, :], other=0.0)
    if EMBED:
        row = tl.load(ids + token).to(tl.int64)
        v0 = tl.load(y + row * D + d, mask=inside, other=0.0)
        v1, v2, v3 = v0, v0, v0
    else:
        s0 = tl.load(own, mask=inside, other=0.0).to(tl.float32)
        s1 = tl.load(own + D, mask=inside, other=0.0).to(tl.float32)
        s2 = tl.load(own + 2 * D, mask=inside, other=0.0).to(tl.float32)
        s3 = tl.load(own + 3 * D, mask=inside, other=0.0).to(tl.float32)
        out = tl.load(y + token * D + d, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            out += tl.load(y_more + token * D + d, mask=inside, other=0.0).to(tl.float32)
        p, m = post + token * 4, comb + token * 16
        v0 = _spread(out, s0, s1, s2, s3, p, m)
        v1 = _spread(out, s0, s1, s2, s3, p + 1, m + 4)
        v2 = _spread(out, s0, s1, s2, s3, p + 2, m + 8)
        v3 = _spread(out, s0, s1, s2, s3, p + 3, m + 12)
    k0, k1, k2, k3 = v0.to(tl.float32), v1.to(tl.float32), v2.to(tl.float32), v3.to(tl.float32)
    products = w0.to(tl.float32) * k0[None, :] + w1.to(tl.float32) * k1[None, :]
    products += w2.to(tl.float32) * k2[None, :] + w3.to(tl.float32) * k3[None, :]
    squares = tl.sum(k0 * k0 + k1 * k1 + k2 * k2 + k3 * k3, axis=0)
    part = tl.where(c == 31, squares, tl.sum(products, axis=1))
    tl.store(own, v0, mask=inside)
    tl.store(own + D, v1, mask=inside)
    tl.store(own + 2 * D, v2, mask=inside)
    tl.store(own + 3 * D, v3, mask=inside)
    tl.store(parts + (token * tl.num_programs(1) + tl.program_id(1)) * 32 + c, part)


@triton.jit
def _spread(out, s0, s1, s2, s3, post, comb):
    """One copy, in bf16: post * out + sum_j comb_j stream_j."""
    value = tl.load(post) * out + tl.load(comb) * s0 + tl.load(comb + 1) * s1
    return (value + tl.load(comb + 2) * s2 + tl.load(comb + 3) * s3).to(tl.bfloat16)


@triton.jit(do_not_specialize=["first"])
def _mhc_fold_kernel(
    streams,  # bf16 [T, 4, D]
    parts,  # float32 [T, SPLITS, 32]
    base,  # float32 [coefficients]
    norm,  # float32 [D]
    x,  # bf16 [rows, D], out
    post,  # float32 [T, 4], out
    comb,  # float32 [T, 4, 4], out
    first,  # the first token; row r is token first + r
    eps,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    ROUNDS: tl.constexpr,  # of Sinkhorn; 0: the last fold, which has pre only
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid (rows, 2): the fold and its norm; post and comb, which nobody waits for here."""
    row = tl.program_id(0)
    token = row + first
    s = tl.arange(0, BLOCK_S)
    is_split = s < SPLITS
    n = tl.arange(0, 4)
    part = parts + (token * SPLITS + s) * 32
    squares = tl.sum(tl.load(part + 31, mask=is_split, other=0.0), axis=0)
    scale = 1.0 / tl.sqrt(squares / (4 * D) + eps)
    if tl.program_id(1) == 0:
        d = tl.arange(0, BLOCK_D)
        is_lane = d < D
        own = streams + token.to(tl.int64) * (4 * D) + d
        s0 = tl.load(own, mask=is_lane, other=0.0)
        s1 = tl.load(own + D, mask=is_lane, other=0.0)
        s2 = tl.load(own + 2 * D, mask=is_lane, other=0.0)
        s3 = tl.load(own + 3 * D, mask=is_lane, other=0.0)
        weight = tl.load(norm + d, mask=is_lane, other=0.0)
        pre = tl.sum(tl.load(part[:, None] + n[None, :], mask=is_split[:, None], other=0.0), axis=0)
        pre = tl.sigmoid(pre * scale + tl.load(base + n))
        folded = tl.sum(tl.where(n == 0, pre, 0.0), axis=0) * s0.to(tl.float32)
        folded += tl.sum(tl.where(n == 1, pre, 0.0), axis=0) * s1.to(tl.float32)
        folded += tl.sum(tl.where(n == 2, pre, 0.0), axis=0) * s2.to(tl.float32)
        folded += tl.sum(tl.where(n == 3, pre, 0.0), axis=0) * s3.to(tl.float32)
        root = tl.sqrt(tl.sum(folded * folded, axis=0) / D + eps)
        tl.store(x + row.to(tl.int64) * D + d, (folded / root * weight).to(tl.bfloat16), mask=is_lane)
    elif ROUNDS > 0:
        raised = tl.sum(tl.load(part[:, None] + 4 + n[None, :], mask=is_split[:, None], other=0.0), axis=0)
        k = tl.arange(0, 16)
        mixed = tl.sum(tl.load(part[:, None] + 8 + k[None, :], mask=is_split[:, None], other=0.0), axis=0)
        tl.store(post + token * 4 + n, 2.0 * tl.sigmoid(raised * scale + tl.load(base + 4 + n)))
        logit = tl.reshape(mixed * scale + tl.load(base + 8 + k), (4, 4))
        m = tl.exp(logit - tl.max(logit, axis=1)[:, None])
        m = m / tl.sum(m, axis=1)[:, None]
        for _ in range(ROUNDS):
            m = m / tl.sum(m, axis=0)[None, :]
            m = m / tl.sum(m, axis=1)[:, None]
        tl.store(comb + token * 16 + k, tl.reshape(m, (16,)))


class Streams:
    """The residual copies of T tokens, and what links one sublayer to the next. Buffers live for one forward pass."""

    def __init__(self, tokens: int, width: int, device: torch.device) -> None:
        self._tokens, self._width = tokens, width
        self._splits = triton.cdiv(width, _BLOCK_D)

        def floats(*shape: int) -> Tensor:
            return torch.empty(tokens, *shape, dtype=torch.float32, device=device)

        self._streams = torch.empty(tokens, COPIES, width, dtype=torch.bfloat16, device=device)
        self._parts = floats(self._splits, COEFFICIENTS)
        self._post, self._comb = floats(COPIES), floats(COPIES, COPIES)

    def embed(self, table: Tensor, ids: Tensor, mix: Tensor) -> None:
        """All copies = the token's embedding: table bf16 [vocab, D], ids int32 [T]; projected by `mix`."""
        self._project(table, None, ids, mix)

    def spread(self, y: Tensor, more: Tensor | None, mix: Tensor) -> None:
        """The sublayer's output bf16 [T, D] (plus `more`) back into the copies, projected by the next one's `mix`."""
        self._project(y, more, None, mix)

    def _project(self, y: Tensor, more: Tensor | None, ids: Tensor | None, mix: Tensor) -> None:
        _mhc_project_kernel[(self._tokens, self._splits)](
            self._streams,
            y,
            y if more is None else more,
            self._post,
            self._comb,
            self._post if ids is None else ids,
            mix,
            self._parts,
            D=self._width,
            EMBED=ids is not None,
            MORE=more is not None,
            BLOCK_D=_BLOCK_D,
        )

    def fold(self, base: Tensor, norm: Tensor, eps: float, rounds: int, first: int = 0) -> Tensor:
        """-> the next input bf16 [T - first, D], normalised. `rounds` 0: the last fold, without post and comb."""
        rows = self._tokens - first
        x = torch.empty(rows, self._width, dtype=torch.bfloat16, device=self._streams.device)
        _mhc_fold_kernel[(rows, 2 if rounds else 1)](
            self._streams,
            self._parts,
            base,
            norm,
            x,
            self._post,
            self._comb,
            first,
            eps,
            D=self._width,
            SPLITS=self._splits,
            ROUNDS=rounds,
            BLOCK_S=triton.next_power_of_2(self._splits),
            BLOCK_D=triton.next_power_of_2(self._width),
            num_warps=8,
        )
        return x
