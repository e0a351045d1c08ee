"""Random calls of a shape, never zeros: experts and routing, paged caches and indices.

Magnitudes are those of the model: gate and up of a few units, scores of a few units, a sink that takes about half of
the softmax, scales that differ from block to block, so that a mistake in any of them shows. Around each paged cache
lie pages of NaN bytes, so that a row read from outside it shows too and yet does not end the process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.kernels import mla_cache
from dsv4bench.kernels.calls import AttentionCall, MoeCall, PagedRows
from dsv4bench.kernels.mxfp4 import BLOCK
from dsv4bench.kernels.sets import Experts
from dsv4bench.kernels.shapes import AttentionShape, MoeShape

Device = torch.device | str
SWIGLU_LIMIT, ROUTE_SCALE = 10.0, 1.5
REAL_WIDTH = 4096  # at which inputs of size 1 give gates of size 1.7
GUARD_ROWS = 64  # of NaN before and behind a cache, in whole pages
_CHUNK_ROWS = 1 << 16  # made at a time, to bound the memory
_HALVES = (0x1, 0x9)  # E2M1 codes of 0.5 and -0.5
_ZEROS = (0x00, 0x88)  # bytes of two E2M1 zeros


@dataclass(frozen=True, slots=True)
class Pools:
    """The paged caches of one call, uint8 [pages, page_bytes] each."""

    window: Tensor
    extra: Tensor | None


def make_experts(shape: MoeShape, seed: int, device: Device = "cpu") -> Experts:
    """Random codes with scale bytes 118 to 121, as the model's; `shape.scales` changes some blocks."""
    rng = _generator(seed, device)

    def weight(rows: int, k: int) -> tuple[Tensor, Tensor]:
        packed = torch.randint(0, 256, (shape.experts, rows, k // 2), dtype=torch.uint8, device=device, generator=rng)
        size = (shape.experts, rows, k // BLOCK)
        return packed, torch.randint(118, 122, size, dtype=torch.uint8, device=device, generator=rng)

    (w13, s13), (w2, s2) = weight(2 * shape.inner, shape.hidden), weight(shape.hidden, shape.inner)
    if shape.scales == "extreme":
        for packed, scales in ((w13, s13), (w2, s2)):
            scales[..., 0] = 0
            scales[..., 1] = 254
            packed[..., 16:32] = _choice(_ZEROS, packed[..., 16:32].shape, rng, device)
    elif shape.scales == "0 that counts":
        s13[..., 0] = 0
    elif shape.scales == "254 that counts":
        s13[..., 0] = 254
        w13[..., :16] = 0
        # One odd and one even k of the block: two products of size 1 to 2 with the inputs of `make_moe`.
        w13[..., 3] = _choice(_HALVES, w13[..., 3].shape, rng, device)
        w13[..., 9] = _choice(_HALVES, w13[..., 9].shape, rng, device) << 4
    return Experts(w13, s13, w2, s2, SWIGLU_LIMIT, ROUTE_SCALE)


def make_moe(shape: MoeShape, seed: int, device: Device = "cpu", experts: Experts | None = None) -> MoeCall:
    """A call; with `experts` given, only x, ids and weights are made."""
    rng = _generator(seed + 1, device)
    x = torch.randn(shape.tokens, shape.hidden, device=device, generator=rng)
    x *= math.sqrt(REAL_WIDTH / shape.hidden) * (12 if shape.clamp else 1)
    block = x[:, :BLOCK]
    if shape.scales == "0 that counts":
        block *= 2.0**122
    elif shape.scales == "254 that counts":
        # Normal numbers, 1 to 2 times 2**-126, of either sign.
        block.copy_(block.sign() * (1 + torch.rand(block.shape, device=device, generator=rng)) * 2.0**-126)
    ids = torch.rand(shape.tokens, shape.experts, device=device, generator=rng).topk(shape.top_k).indices.int()
    if shape.routing == "skewed":
        ids = ids[:1].repeat(shape.tokens, 1)
    elif shape.routing == "some -1":
        ids[torch.rand(ids.shape, device=device, generator=rng) < 0.4] = -1
    elif shape.routing == "a token of -1":
        ids[0] = -1
    elif shape.routing == "all -1":
        ids.fill_(-1)
    weights = torch.rand(ids.shape, device=device, generator=rng) + 0.1
    weights /= weights.sum(1, keepdim=True)
    return MoeCall(x.bfloat16(), ids, weights, experts or make_experts(shape, seed, device))


def make_pools(shape: AttentionShape, seed: int, device: Device = "cpu", tokens: int | None = None) -> Pools:
    """Paged caches with `tokens` rows each (None: eight times what a request attends)."""
    rng = _generator(seed + 2, device)
    window = _pool(shape, shape.window_pages_of, tokens or 8 * shape.window, rng, device)
    extra = _pool(shape, shape.page_size, tokens or 8 * shape.extra, rng, device) if shape.extra else None
    return Pools(window, extra)


def make_attention(
    shape: AttentionShape, seed: int, device: Device = "cpu", pools: Pools | None = None
) -> AttentionCall:
    """A call; with `pools` given, only q, indices, lengths and sink are made."""
    rng = _generator(seed + 3, device)
    pools = pools or make_pools(shape, seed, device)
    q = 1.5 * torch.randn(shape.batch, shape.heads, mla_cache.HEAD_DIM, device=device, generator=rng)
    if shape.scales == "0 that counts":
        q[..., : mla_cache.BLOCK] *= 2.0**121
    elif shape.scales == "254 that counts":
        q[..., mla_cache.BLOCK : 2 * mla_cache.BLOCK] = 2.0**-112
    sink = None
    if shape.sink:
        sink = torch.randn(shape.heads, device=device, generator=rng) + math.log(shape.window + shape.extra) + 2
    window = _rows(shape, "window", pools.window, rng)
    extra = None if pools.extra is None else _rows(shape, "extra", pools.extra, rng)
    return AttentionCall(q.bfloat16(), window, extra, sink, mla_cache.HEAD_DIM**-0.5)


def _rows(shape: AttentionShape, cache: str, pool: Tensor, rng: torch.Generator) -> PagedRows:
    topk, page_size = (shape.window, shape.window_pages_of) if cache == "window" else (shape.extra, shape.page_size)
    capacity = len(pool) * page_size
    if cache == "window":
        start = torch.randint(0, capacity - topk + 1, (shape.batch, 1), device=pool.device, generator=rng)
        index = start + torch.arange(topk, device=pool.device)
    else:
        index = _scattered(shape.batch, topk, len(pool), page_size, rng)
    length = _lengths(shape, cache, topk, rng)
    if length is not None and shape.beyond != "rows":
        low, high = (capacity, capacity + GUARD_ROWS) if shape.beyond == "outside" else (-(2**31), 2**31)
        junk = torch.randint(low, high, index.shape, device=pool.device, generator=rng)
        index = torch.where(torch.arange(topk, device=pool.device) < length.unsqueeze(1), index, junk)
    if shape.holes == "some":
        hole = torch.rand(index.shape, device=pool.device, generator=rng) < 0.3
        hole[:, 0] = hole[:, -max(1, topk // 5) :] = True
        negative = torch.randint(-GUARD_ROWS, 0, index.shape, device=pool.device, generator=rng)
        index = torch.where(hole, negative, index)
    elif shape.holes == "a request":
        index[0] = -1
    return PagedRows(pool, page_size, index.int(), length)


def _scattered(batch: int, topk: int, pages: int, page_size: int, rng: torch.Generator) -> Tensor:
    """Distinct random rows of a request's own random pages, a quarter of them, as an indexer picks them."""
    own = min(pages, -(-4 * topk // page_size))
    page = torch.rand(batch, pages, device=rng.device, generator=rng).topk(own).indices
    pick = torch.rand(batch, own * page_size, device=rng.device, generator=rng).topk(topk).indices
    return page.gather(1, pick // page_size) * page_size + pick % page_size


def _lengths(shape: AttentionShape, cache: str, topk: int, rng: torch.Generator) -> Tensor | None:
    if shape.lengths == "absent":
        return None
    low, high = {"short": (1, max(1, topk // 8)), "mixed": (0, topk), "one empty": (1, topk)}.get(
        shape.lengths, (topk, topk)
    )
    length = torch.randint(low, high + 1, (shape.batch,), device=rng.device, generator=rng, dtype=torch.int32)
    if shape.lengths == "one empty":
        length[0] = 0
    elif shape.lengths in (f"{cache} empty", "all empty"):
        length.zero_()
    return length


def _pool(shape: AttentionShape, page_size: int, rows: int, rng: torch.Generator, device: Device) -> Tensor:
    pages, guard = -(-rows // page_size), -(-GUARD_ROWS // page_size)
    size = (pages + 2 * guard, mla_cache.page_bytes(page_size))
    pool = torch.full(size, 0xFF, dtype=torch.uint8, device=device)[guard : guard + pages]
    for start in range(0, pages * page_size, _CHUNK_ROWS):
        position = torch.arange(start, min(start + _CHUNK_ROWS, pages * page_size), device=device)
        data, scales = _cache_rows(shape, len(position), rng, device)
        mla_cache.write_quantized(pool, page_size, position, data, scales)
    return pool


def _cache_rows(shape: AttentionShape, count: int, rng: torch.Generator, device: Device) -> tuple[Tensor, Tensor]:
    values = torch.randn(count, mla_cache.HEAD_DIM, device=device, generator=rng)
    octaves = torch.randint(-1, 2, (count, mla_cache.HEAD_DIM // mla_cache.BLOCK, 1), device=device, generator=rng)
    data, scales = mla_cache.quantize((values.view(count, -1, mla_cache.BLOCK) * octaves.float().exp2()).flatten(1))
    padding = torch.randint(0, 256, (count,), dtype=torch.uint8, device=device, generator=rng)
    scales[:, -1] = 255 if shape.nan_padding else padding
    if shape.nan_rope:
        low = data[:, mla_cache.NOPE :: 2]  # the mantissa byte of each bf16 (little-endian)
        low.copy_(_choice((0x7F, 0xFF), low.shape, rng, device))
    blocks = data[:, : mla_cache.NOPE].view(count, mla_cache.BLOCKS, mla_cache.BLOCK)
    if shape.scales == "extreme":
        scales[0::2, 2] = 0
        scales[1::2, 3] = 254
        blocks[1::2, 3] = _choice((0x00, 0x80), blocks[1::2, 3].shape, rng, device)
    elif shape.scales == "0 that counts":
        scales[:, 0] = 0
    elif shape.scales == "254 that counts":
        # -2**-9 * 2**127 in all lanes of the block: with the q of `make_attention` a score of -181, so that the row
        # drops out of the softmax, provided that the byte is decoded and 0 * 2**118 stays 0.
        scales[0::3, 1] = 254
        blocks[0::3, 1] = 0x81
    return data, scales


def _choice(values: tuple[int, int], size: torch.Size, rng: torch.Generator, device: Device) -> Tensor:
    table = torch.tensor(values, dtype=torch.uint8, device=device)
    return table[torch.randint(0, 2, size, device=device, generator=rng)]


def _generator(seed: int, device: Device) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)
