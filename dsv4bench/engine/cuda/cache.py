"""The paged memory of each layer on the GPU: FP8 rows for window and entries, bf16 for what compressors need.

As `engine.cache`, in the layout of `kernels.mla_cache`: pages of 256 tokens, which make pages of 64 entries at ratio
4 and of 2 at ratio 128, as servers have them. What a compressor must remember is each slot's last few tokens, value
and gate: a ring that holds one span and the tokens of one step, so that a rejected speculative token is overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.cuda.limits import PAGE_SIZE
from dsv4bench.kernels import mla_cache


@dataclass(frozen=True, slots=True)
class CudaCache:
    """One layer. Page 0 is the padding's: it is written, and never read by a request."""

    window: Tensor  # uint8 [pages, page_bytes(256)]
    raw: Tensor | None  # bf16 [slots, ring, 2 * width]
    entries: Tensor | None  # uint8 [pages, page_bytes(256 / ratio)]
    index_raw: Tensor | None  # bf16 [slots, ring, 2 * width]
    index_keys: Tensor | None  # bf16 [pages * 64, index_head_dim]


def allocate(dims: ModelDims, pages: int, slots: int, positions: int, device: torch.device) -> list[CudaCache]:
    """Pools of `pages` pages and rings of `slots` slots for every layer; zero bytes, which decode to zeros.

    `positions`: of one request in a decode step.
    """

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16, device=device)

    def ring(ratio: int, entry: int) -> Tensor:
        return zeros(slots, ring_length(ratio, positions), _raw_width(ratio, entry))

    def layer(ratio: int) -> CudaCache:
        indexed = ratio == 4
        return CudaCache(
            window=mla_cache.empty(pages, PAGE_SIZE, device),
            raw=ring(ratio, dims.head_dim) if ratio else None,
            entries=mla_cache.empty(pages, PAGE_SIZE // ratio, device) if ratio else None,
            index_raw=ring(ratio, dims.index_head_dim) if indexed else None,
            index_keys=zeros(pages * PAGE_SIZE // 4, dims.index_head_dim) if indexed else None,
        )

    return [layer(ratio) for ratio in dims.ratios]


def cache_bytes(dims: ModelDims, pages: int, slots: int, positions: int) -> int:
    """What `allocate` takes."""
    total = 0
    for ratio in dims.ratios:
        total += pages * mla_cache.page_bytes(PAGE_SIZE)
        if ratio:
            total += pages * mla_cache.page_bytes(PAGE_SIZE // ratio)
            total += 2 * slots * ring_length(ratio, positions) * _raw_width(ratio, dims.head_dim)
        if ratio == 4:
            total += 2 * slots * ring_length(ratio, positions) * _raw_width(ratio, dims.index_head_dim)
            total += 2 * pages * PAGE_SIZE // 4 * dims.index_head_dim
    return total


def ring_length(ratio: int, positions: int) -> int:
    """Tokens that a slot remembers: a power of two that holds the span before a step, and the step itself."""
    span = ratio * (2 if ratio == 4 else 1)
    needed = span - 1 + positions
    return 1 << (needed - 1).bit_length()


def _raw_width(ratio: int, entry: int) -> int:
    """Value and gate of a token; ratio 4 overlaps, so that each feeds two entries."""
    return 2 * entry * (2 if ratio == 4 else 1)
