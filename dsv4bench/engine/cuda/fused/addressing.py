"""Where things are, for kernels that are captured once and replayed with other lengths: position, cache row.

A program finds its position from `start` (int32 [R], the first new position of each request) and the number `new` of
positions a request, and a cache row from the block table. Requests from `active` on are padding: they see nothing,
choose no expert, and write to page 0, which nobody reads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 128


class Where(NamedTuple):
    """Of which positions a launch speaks; int32 tensors on the device."""

    slots: Tensor  # [R]
    start: Tensor  # [R]
    active: Tensor  # [1]
    tables: Tensor  # [R, pages]
    new: int  # positions a request


@triton.jit
def row_of(tables, request, pages, entry, inside, PER_PAGE: tl.constexpr):
    """Row of a token or compressed entry in a pool of PER_PAGE rows a page; `inside` masks the look-up."""
    page = tl.load(tables + request * pages + entry // PER_PAGE, mask=inside, other=0)
    return page * PER_PAGE + entry % PER_PAGE


@triton.jit(do_not_specialize=["new"])
def _prepare_tokens_kernel(last, slots, given, tokens, new, BLOCK: tl.constexpr):
    """tokens[r] = the last token of the request's slot, then its new - 1 drafts; grid (R,)."""
    request = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    first = tl.load(last + tl.load(slots + request))
    draft = tl.load(given + request * (new - 1) + at - 1, mask=(at > 0) & (at < new), other=0)
    tl.store(tokens + request * new + at, tl.where(at == 0, first, draft), mask=at < new)


@triton.jit(do_not_specialize=["new", "pages"])
def _prepare_rows_kernel(
    start,  # int32 [R]
    active,  # int32 [1]
    tables,  # int32 [R, pages]
    index,  # int32 [R * new, width], out
    length,  # int32 [R * new], out
    new,
    pages,
    width,
    RATIO: tl.constexpr,  # 0: the window of `width` tokens; else every entry that pools RATIO tokens
    PER_PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Cache rows that each position attends without choosing, valid ones first, -1 after; grid (T, width / BLOCK)."""
    token = tl.program_id(0)
    request = token // new
    position = tl.load(start + request) + token % new
    if RATIO == 0:
        oldest = tl.maximum(position - width + 1, 0)
        count = tl.minimum(position + 1, width)
    else:
        oldest = 0
        count = tl.minimum((position + 1) // RATIO, width)
    count = tl.where(request < tl.load(active), count, 0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = at < count
    row = row_of(tables, request, pages, oldest + at, valid, PER_PAGE)
    tl.store(index + token.to(tl.int64) * width + at, tl.where(valid, row, -1), mask=at < width)
    if tl.program_id(1) == 0:
        tl.store(length + token, count)


def step_tokens(last: Tensor, slots: Tensor, drafts: Tensor, new: int) -> Tensor:
    """last int32 [slots], slots int32 [R], drafts int32 [R, new - 1] -> token ids int32 [R * new]."""
    tokens = torch.empty(len(slots) * new, dtype=torch.int32, device=last.device)
    _prepare_tokens_kernel[(len(slots),)](last, slots, drafts, tokens, new, BLOCK=triton.next_power_of_2(new))
    return tokens


def fixed_rows(where: Where, width: int, ratio: int, page_size: int) -> tuple[Tensor, Tensor]:
    """Rows that need no choosing: (index int32 [T, width], length int32 [T]). `ratio` 0: the window, else entries."""
    tokens = len(where.start) * where.new
    index = torch.empty(tokens, width, dtype=torch.int32, device=where.start.device)
    length = torch.empty(tokens, dtype=torch.int32, device=where.start.device)
    _prepare_rows_kernel[(tokens, triton.cdiv(width, _BLOCK))](
        where.start,
        where.active,
        where.tables,
        index,
        length,
        where.new,
        where.tables.shape[1],
        width,
        RATIO=ratio,
        PER_PAGE=page_size // max(1, ratio),
        BLOCK=_BLOCK,
    )
    return index, length
