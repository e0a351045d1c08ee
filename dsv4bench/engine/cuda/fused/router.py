"""Choosing experts in one launch: score, choose by bias or by table, weigh. Padded requests choose none (-1).

    score = sqrt(softplus(logit)), weights = scores of the chosen over their sum

as `engine.moe` says. Recorded choices can be forced, so that two kernel sets can be compared on the same experts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import Where


@triton.jit
def _score(logit):
    return tl.sqrt(tl.maximum(logit, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(logit))))


@triton.jit(do_not_specialize=["new"])
def _router_fused_topk_kernel(
    logits,  # float32 [T, E]
    bias,  # float32 [E], of the choice only
    table,  # int32 [vocab or T, K]: choices given by token id, or one by one
    tokens,  # int32 [T]
    ids,  # int32 [T, K], out
    weights,  # float32 [T, K], out
    active,
    new,
    E: tl.constexpr,
    K: tl.constexpr,
    GIVEN: tl.constexpr,
    BY_TOKEN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Grid (T,)."""
    token = tl.program_id(0)
    k = tl.arange(0, BLOCK_K)
    is_slot = k < K
    own = logits + token * E
    if GIVEN:
        row = tl.load(tokens + token) if BY_TOKEN else token
        chosen = tl.load(table + row * K + k, mask=is_slot, other=0)
    else:
        e = tl.arange(0, BLOCK_E)
        is_expert = e < E
        value = _score(tl.load(own + e, mask=is_expert, other=0.0))
        if HAS_BIAS:
            value += tl.load(bias + e, mask=is_expert, other=0.0)
        value = tl.where(is_expert, value, float("-inf"))
        chosen = tl.zeros((BLOCK_K,), tl.int32)
        for slot in tl.static_range(K):
            best = tl.argmax(value, axis=0)
            chosen = tl.where(k == slot, best, chosen)
            value = tl.where(e == best, float("-inf"), value)
    score = tl.where(is_slot, _score(tl.load(own + tl.maximum(chosen, 0))), 0.0)
    share = score / tl.sum(score, axis=0)
    chosen = tl.where(token // new < tl.load(active), chosen, -1)
    tl.store(ids + token * K + k, chosen, mask=is_slot)
    tl.store(weights + token * K + k, share, mask=is_slot)


def choose(
    logits: Tensor,
    k: int,
    where: Where,
    *,
    bias: Tensor | None = None,
    by_token: tuple[Tensor, Tensor] | None = None,
    forced: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """logits float32 [T, E] -> (ids int32 [T, k], weights float32 [T, k] of sum 1).

    `by_token` is (table int32 [vocab, k], token ids int32 [T]); `forced` int32 [T, k] goes before both.
    """
    tokens, experts = logits.shape
    ids = torch.empty(tokens, k, dtype=torch.int32, device=logits.device)
    weights = torch.empty(tokens, k, dtype=torch.float32, device=logits.device)
    table, of_token = (forced, ids) if forced is not None else by_token or (ids, ids)
    _router_fused_topk_kernel[(tokens,)](
        logits,
        logits if bias is None else bias,
        table,
        of_token,
        ids,
        weights,
        where.active,
        where.new,
        E=experts,
        K=k,
        GIVEN=forced is not None or by_token is not None,
        BY_TOKEN=forced is None,
        HAS_BIAS=bias is not None,
        BLOCK_E=triton.next_power_of_2(experts),
        BLOCK_K=triton.next_power_of_2(k),
    )
    return ids, weights
