"""A kernel that only reads: how fast this GPU streams memory, the ceiling of every kernel that is bound by it.

Each program adds up its share of a buffer of int32, a block at a time with a stride of the whole grid, `UNROLL` loads
of `BLOCK` words in flight. The sums (modulo 2**32) are stored, so that nothing can be left out, and can be checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to launch it; `per_sm` programs for each SM, where the buffer is large enough."""

    block: int
    unroll: int
    warps: int
    per_sm: int

    @property
    def words(self) -> int:
        """What a program reads in one turn."""
        return self.block * self.unroll


# Wide and narrow loads, few and many programs: which one wins depends on the GPU and on the size.
SHAPES = (
    Shape(1024, 4, 4, 16),
    Shape(1024, 8, 4, 8),
    Shape(2048, 4, 8, 8),
    Shape(512, 4, 4, 16),
    Shape(1024, 2, 4, 16),
    Shape(4096, 4, 8, 4),
)


@triton.jit
def _add_up(words, sums, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(program * BLOCK * UNROLL, n, tl.num_programs(0) * BLOCK * UNROLL):
        base = words + tl.cast(start, tl.int64)
        for i in tl.static_range(UNROLL):
            total += tl.load(base + i * BLOCK + lanes)
    tl.store(sums + program, tl.sum(total, axis=0))


def programs(shape: Shape, n: int, sms: int) -> int:
    """Programs of a launch over `n` words."""
    return max(1, min(sms * shape.per_sm, n // shape.words))


def read(words: Tensor, sums: Tensor, shape: Shape, sms: int) -> None:
    """Add up `words` (int32 [n], n a multiple of `shape.words`) into the first `programs(...)` of `sums`."""
    n = words.numel()
    assert n % shape.words == 0
    grid = programs(shape, n, sms)
    _add_up[(grid,)](words, sums, n, BLOCK=shape.block, UNROLL=shape.unroll, num_warps=shape.warps)


def reads_everything(words: Tensor, shape: Shape, sms: int) -> bool:
    """Whether its sums are those of torch, modulo 2**32."""
    sums = torch.zeros(programs(shape, words.numel(), sms), dtype=torch.int32, device=words.device)
    read(words, sums, shape, sms)
    difference = int(sums.sum(dtype=torch.int64)) - int(words.sum(dtype=torch.int64))
    return difference % 2**32 == 0
