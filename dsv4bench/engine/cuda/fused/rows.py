"""Norms, RoPE and activation between the matrix products of a layer, and the window's cache write.

q_and_kv       norm of the query latent; norm, RoPE and FP8 cache write of the new KV row
turn_heads     per-head RMS norm and RoPE of the queries
turn_back_     RoPE undone on the attention's output, in place: K = V carries it
swiglu         silu(min(gate, limit)) * clamp(up, limit) of the shared expert
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import Where, row_of
from dsv4bench.engine.cuda.fused.cache_row import normed, turned, write_row

_HEADS_A_PROGRAM = 4
_LANES = 1024


class Angles(NamedTuple):
    """RoPE: float32 [positions, 32] each."""

    cos: Tensor
    sin: Tensor


@triton.jit(do_not_specialize=["new", "pages"])
def _q_norm_kv_cache_write_kernel(
    projected,  # bf16 [T, LATENT + 512]
    q_norm,  # float32 [LATENT]
    kv_norm,  # float32 [512]
    latent,  # bf16 [T, LATENT], out
    cache,  # uint8 [pages, page_bytes], out
    rope_view,  # the same as bf16
    cos,
    sin,
    start,
    tables,
    new,
    pages,
    page_bytes,
    eps,
    LATENT: tl.constexpr,
    PER_PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (T, 2): the latent's norm, and the KV row."""
    token = tl.program_id(0).to(tl.int64)
    source = projected + token * (LATENT + 512)
    if tl.program_id(1) == 0:
        at_latent = tl.arange(0, BLOCK)
        is_latent = at_latent < LATENT
        own = tl.load(source + at_latent, mask=is_latent, other=0.0).to(tl.float32)
        root = tl.sqrt(tl.sum(own * own, axis=0) / LATENT + eps)
        own = own / root * tl.load(q_norm + at_latent, mask=is_latent, other=0.0)
        tl.store(latent + token * LATENT + at_latent, own.to(tl.bfloat16), mask=is_latent)
    else:
        request = tl.program_id(0) // new
        position = tl.load(start + request) + tl.program_id(0) % new
        lane = tl.arange(0, 512)
        kv = normed(tl.load(source + LATENT + lane).to(tl.float32), tl.load(kv_norm + lane), eps)
        at = row_of(tables, request, pages, position, True, PER_PAGE)
        write_row(cache, rope_view, turned(kv, cos, sin, position), at, page_bytes, PER_PAGE)


def q_and_kv(
    projected: Tensor,
    q_norm: Tensor,
    kv_norm: Tensor,
    cache: Tensor,
    page_size: int,
    angles: Angles,
    where: Where,
    eps: float,
) -> Tensor:
    """projected bf16 [T, latent + 512] -> the normalised latent bf16 [T, latent]; writes T rows of `cache`."""
    tokens, latent = len(projected), len(q_norm)
    out = torch.empty(tokens, latent, dtype=torch.bfloat16, device=projected.device)
    _q_norm_kv_cache_write_kernel[(tokens, 2)](
        projected,
        q_norm,
        kv_norm,
        out,
        cache,
        cache.view(torch.bfloat16),
        *angles,
        where.start,
        where.tables,
        where.new,
        where.tables.shape[1],
        cache.shape[1],
        eps,
        LATENT=latent,
        PER_PAGE=page_size,
        BLOCK=triton.next_power_of_2(latent),
    )
    return out


@triton.jit(do_not_specialize=["new"])
def _q_head_norm_rope_kernel(
    q, out, cos, sin, start, new, eps, H: tl.constexpr, NORM: tl.constexpr, SIGN: tl.constexpr, BLOCK_H: tl.constexpr
):
    """bf16 [T, H, 512]: a head over its RMS (NORM), the last 64 lanes turned by SIGN angles; grid (T, H / BLOCK_H).

    Without NORM the nope lanes are left alone, and `out` is `q`.
    """
    token = tl.program_id(0)
    position = tl.load(start + token // new) + token % new
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    is_head = (head < H)[:, None]
    base = (token.to(tl.int64) * H + head)[:, None] * 512
    pair = tl.arange(0, 32)
    c = tl.load(cos + position * 32 + pair)[None, :]
    s = SIGN * tl.load(sin + position * 32 + pair)[None, :]
    at = base + 448 + 2 * pair[None, :]
    even = tl.load(q + at, mask=is_head, other=0.0).to(tl.float32)
    odd = tl.load(q + at + 1, mask=is_head, other=0.0).to(tl.float32)
    if NORM:
        lane = tl.arange(0, 512)[None, :]
        row = tl.load(q + base + lane, mask=is_head, other=0.0).to(tl.float32)
        inverse = 1.0 / tl.sqrt(tl.sum(row * row, axis=1) / 512 + eps)[:, None]
        tl.store(out + base + lane, (row * inverse).to(tl.bfloat16), mask=is_head & (lane < 448))
        even = even * inverse
        odd = odd * inverse
    tl.store(out + at, (even * c - odd * s).to(tl.bfloat16), mask=is_head)
    tl.store(out + at + 1, (even * s + odd * c).to(tl.bfloat16), mask=is_head)


def turn_heads(q: Tensor, angles: Angles, where: Where, eps: float) -> Tensor:
    """bf16 [T, H, 512] -> bf16 [T, H, 512]."""
    return _turn(q, torch.empty_like(q), angles, where, eps, norm=True, sign=1.0)


def turn_back_(out: Tensor, angles: Angles, where: Where) -> Tensor:
    """bf16 [T, H, 512], in place."""
    return _turn(out, out, angles, where, 0.0, norm=False, sign=-1.0)


def _turn(q: Tensor, out: Tensor, angles: Angles, where: Where, eps: float, *, norm: bool, sign: float) -> Tensor:
    tokens, heads, _ = q.shape
    _q_head_norm_rope_kernel[(tokens, triton.cdiv(heads, _HEADS_A_PROGRAM))](
        q, out, *angles, where.start, where.new, eps, H=heads, NORM=norm, SIGN=sign, BLOCK_H=_HEADS_A_PROGRAM
    )
    return out


@triton.jit
def _shared_swiglu_kernel(gate_up, act, limit, INNER: tl.constexpr, BLOCK: tl.constexpr):
    """bf16 [T, 2 * INNER], gate first -> bf16 [T, INNER]; grid (T, INNER / BLOCK)."""
    token = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < INNER
    gate = tl.load(gate_up + token * 2 * INNER + lane, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * INNER + INNER + lane, mask=inside, other=0.0).to(tl.float32)
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    tl.store(act + token * INNER + lane, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=inside)


def swiglu(gate_up: Tensor, limit: float) -> Tensor:
    """bf16 [T, 2I], gate first -> bf16 [T, I]."""
    tokens, inner = len(gate_up), gate_up.shape[1] // 2
    act = torch.empty(tokens, inner, dtype=torch.bfloat16, device=gate_up.device)
    _shared_swiglu_kernel[(tokens, triton.cdiv(inner, _LANES))](gate_up, act, limit, INNER=inner, BLOCK=_LANES)
    return act
