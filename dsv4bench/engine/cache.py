"""The paged memory of each layer: keys (= values), compressed entries, and what compressors still need.

Pools are indexed by the same page numbers. A token's row holds its KV; for compressing layers a second row
holds its projected value and gate, so that an entry can be pooled whenever its last token comes, and a rejected
speculative token is simply overwritten. Everything is plain float; the 584-byte FP8 layout is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims

PAGE_SIZE = 128  # tokens; a multiple of every compression ratio


@dataclass(frozen=True, slots=True)
class CompressorCache:
    raw: Tensor  # [pages, page_size, 2 * width]: value, gate
    entries: Tensor  # [pages, page_size / ratio, entry]


@dataclass(frozen=True, slots=True)
class LayerCache:
    kv: Tensor  # [pages, page_size, head_dim]
    compressor: CompressorCache | None
    indexer: CompressorCache | None


def allocate(dims: ModelDims, pages: int, device: str = "cpu") -> list[LayerCache]:
    """Pools of `pages` pages for every layer."""

    def pool(rows: int, width: int) -> Tensor:
        memory = torch.empty(pages, rows, width, device=device)  # not zeros: untouched pages then cost no memory
        memory[0] = 0.0  # the page that masked lookups read: 0 * NaN would poison a sum
        return memory

    def compressed(ratio: int, entry: int) -> CompressorCache:
        width = entry * 2 if ratio == 4 else entry
        return CompressorCache(raw=pool(PAGE_SIZE, 2 * width), entries=pool(PAGE_SIZE // ratio, entry))

    return [
        LayerCache(
            kv=pool(PAGE_SIZE, dims.head_dim),
            compressor=compressed(ratio, dims.head_dim) if ratio else None,
            indexer=compressed(ratio, dims.index_head_dim) if ratio == 4 else None,
        )
        for ratio in dims.ratios
    ]
