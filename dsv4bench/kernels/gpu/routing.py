"""Tokens grouped by expert on the GPU: one launch in front of the two grouped GEMMs, no host round trip.

Each expert's slots (a slot is token * K + k) are cut into blocks of `BT`; a block is what a program of the GEMMs
works on. Slots with expert -1 are in no block. One program a token: it counts all ids itself (they are a few
kilobytes, from L2), so programs need nothing of each other and the result does not depend on their order.

The same programs do what else must happen before the GEMMs: x is multiplied by 2**64 (a power of two: exact; see
`grouped_gemm`), the arrival counters of the second GEMM are cleared, and a token without experts gets its zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from dsv4bench.kernels.gpu.grouped_gemm import lift

_CHUNK = 1024  # ids compared at a time


@triton.jit
def route_kernel(
    ids, x, lifted, out, block_expert, block_slots, num_blocks, arrived, tokens,
    D: tl.constexpr, E_PAD: tl.constexpr, K: tl.constexpr, K_PAD: tl.constexpr, BT: tl.constexpr,
    COUNTERS: tl.constexpr, CHUNK: tl.constexpr, D_STEP: tl.constexpr, LIFTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    token = tl.program_id(0)
    slots = tokens * K
    bins = tl.arange(0, E_PAD)
    k = tl.arange(0, K_PAD)
    mine = token * K + k
    own = k < K
    expert = tl.load(ids + mine, mask=own, other=-1)
    counts = tl.zeros((E_PAD,), tl.int32)
    rank = tl.zeros((K_PAD,), tl.int32)
    for start in range(0, slots, CHUNK):
        j = start + tl.arange(0, CHUNK)
        other = tl.load(ids + j, mask=j < slots, other=-1)
        counts += tl.histogram(tl.maximum(other, 0), E_PAD, mask=other >= 0)
        before = (other[None, :] == expert[:, None]) & (j[None, :] < mine[:, None])
        rank += tl.sum(before.to(tl.int32), 1)
    blocks = (counts + BT - 1) // BT
    first = tl.sum(tl.where(bins[None, :] < expert[:, None], blocks[None, :], 0), 1)
    count = tl.sum(tl.where(bins[None, :] == expert[:, None], counts[None, :], 0), 1)
    valid = expert >= 0
    block = first + rank // BT
    place = rank % BT
    tl.store(block_slots + block * BT + place, mine, mask=valid)
    tl.store(block_expert + block, expert, mask=valid & (place == 0))
    rest = tl.arange(0, BT)
    ends = valid & (rank == count - 1)
    tl.store(
        block_slots + block[:, None] * BT + rest[None, :],
        tl.full((K_PAD, BT), -1, tl.int32),
        mask=ends[:, None] & (rest[None, :] > place[:, None]),
    )
    chosen = tl.sum(valid.to(tl.int32), 0)
    if token == 0:
        tl.store(num_blocks, tl.sum(blocks, 0))
    tl.store(arrived + token * COUNTERS + tl.arange(0, COUNTERS), tl.zeros((COUNTERS,), tl.int32))
    row = token.to(tl.int64) * D
    for start in range(0, D, D_STEP):
        d = start + tl.arange(0, D_STEP)
        if LIFTED:
            tl.store(lifted + row + d, lift(tl.load(x + row + d, mask=d < D), False), mask=d < D)
        if chosen == 0:
            tl.store(out + row + d, tl.zeros((D_STEP,), tl.bfloat16), mask=d < D)


@dataclass(frozen=True, slots=True)
class Groups:
    """Blocks of slots of one expert each. Only the first `num_blocks` of `limit` are written."""

    block_expert: Tensor  # int32 [limit]
    block_slots: Tensor  # int32 [limit * BT]; -1 fills an expert's last block
    num_blocks: Tensor  # int32 [1]
    arrived: Tensor  # int32 [M * counters]: zeros
    x: Tensor  # bfloat16 [M, D], times 2**64 where that was asked for
    limit: int  # the most blocks that any routing of these sizes needs


def block_limit(slots: int, experts: int, block: int) -> int:
    """The largest sum of ceil(count / block) over counts of `slots` in `experts`."""
    return min(slots, experts) + max(0, slots - experts) // block


def route(
    x: Tensor, ids: Tensor, out: Tensor, experts: int, block: int, counters: int, *, lifted: bool, pdl: bool
) -> Groups:
    """x bf16 [M, D], ids int32 [M, K] -> groups; rows of `out` whose token has no expert are set to zero."""
    (tokens, k), width, device = ids.shape, x.shape[1], x.device
    limit = block_limit(tokens * k, experts, block)
    sizes = (limit * block, limit, 1, tokens * counters)
    block_slots, block_expert, num_blocks, arrived = torch.empty(sum(sizes), dtype=torch.int32, device=device).split(
        sizes
    )
    larger = torch.empty_like(x) if lifted else x
    route_kernel[(tokens,)](
        ids, x, larger, out, block_expert, block_slots, num_blocks, arrived, tokens,
        D=width, E_PAD=triton.next_power_of_2(experts), K=k, K_PAD=triton.next_power_of_2(k), BT=block,
        COUNTERS=counters, CHUNK=min(_CHUNK, max(16, triton.next_power_of_2(tokens * k))),
        D_STEP=min(2048, triton.next_power_of_2(width)), LIFTED=lifted, PDL=pdl, num_warps=4, **launch(pdl),
    )  # fmt: skip
    return Groups(block_expert, block_slots, num_blocks, arrived, larger, limit)


def launch(pdl: bool) -> dict[str, bool]:
    """The option of a launch that may begin before the launch in front of it has ended."""
    return {"launch_pdl": True} if pdl else {}
