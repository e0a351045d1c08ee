"""From logits to the next token without the host: greedy, or drawn by the Gumbel rule from the request's own seed.

    token = argmax(logit)  at temperature 0,  else  argmax(logit / temperature - log(-log(u)))

u comes from a counter-based generator keyed by the request's seed, the number of tokens it has drawn and the token
id: a draw depends on nothing else in the batch. It is another generator than the CPU engine's. The row that counts is
the one after the accepted drafts. Two launches; the token is left in the request's slot for the next step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


class Draw(NamedTuple):
    """What each of R requests draws with, on the device."""

    slots: Tensor  # int32 [R]: where its token is left
    accepted: Tensor  # int32 [R]: drafts accepted, which choose the row
    barred: Tensor  # int32 [R]: 1 while the end of sequence must not be drawn
    temperature: Tensor  # float32 [R]
    seed: Tensor  # int32 [R]
    drawn: Tensor  # int32 [R]


@triton.jit(do_not_specialize=["rows"])
def _argmax_sample_kernel(
    logits,  # float32 [R * rows, V]
    accepted,
    barred,
    temperature,
    seed,
    drawn,
    best,  # float32 [R, parts], out
    best_id,  # int32 [R, parts], out
    rows,
    eos,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (R, parts)."""
    request = tl.program_id(0)
    part = tl.program_id(1)
    token = part * BLOCK + tl.arange(0, BLOCK)
    row = (request * rows + tl.load(accepted + request)).to(tl.int64)
    value = tl.load(logits + row * V + token, mask=token < V, other=float("-inf"))
    value = tl.where((token == eos) & (tl.load(barred + request) != 0), float("-inf"), value)
    heat = tl.load(temperature + request)
    if heat > 0.0:
        counter = token.to(tl.uint32)
        zero = counter * 0
        bits, _, _, _ = tl.philox(tl.load(seed + request), counter, zero + tl.load(drawn + request), zero, zero)
        uniform = ((bits >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
        value = value / heat - tl.log(-tl.log(uniform))
    top, at = tl.max(value, axis=0, return_indices=True)
    tl.store(best + request * tl.num_programs(1) + part, top)
    tl.store(best_id + request * tl.num_programs(1) + part, part * BLOCK + at)


@triton.jit
def _argmax_sampled_kernel(best, best_id, slots, last, out, parts, BLOCK: tl.constexpr):
    """The best of the parts, to out[r] and last[slot]; grid (R,)."""
    request = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    value = tl.load(best + request * parts + part, mask=part < parts, other=float("-inf"))
    token = tl.load(best_id + request * parts + tl.argmax(value, axis=0))
    tl.store(out + request, token)
    tl.store(last + tl.load(slots + request), token)


def sample(logits: Tensor, draw: Draw, last: Tensor, eos_id: int) -> Tensor:
    """logits float32 [R * rows, V] -> tokens int32 [R]; writes them to `last` int32 [slots] as well."""
    requests, vocab = len(draw.slots), logits.shape[1]
    parts = triton.cdiv(vocab, _BLOCK)
    best = torch.empty(requests, parts, dtype=torch.float32, device=logits.device)
    best_id = torch.empty(requests, parts, dtype=torch.int32, device=logits.device)
    out = torch.empty(requests, dtype=torch.int32, device=logits.device)
    _argmax_sample_kernel[(requests, parts)](
        logits,
        draw.accepted,
        draw.barred,
        draw.temperature,
        draw.seed,
        draw.drawn,
        best,
        best_id,
        len(logits) // requests,
        eos_id,
        V=vocab,
        BLOCK=_BLOCK,
    )
    _argmax_sampled_kernel[(requests,)](
        best, best_id, draw.slots, last, out, parts, BLOCK=triton.next_power_of_2(parts)
    )
    return out
