"""What the grouped GEMMs do beside multiplying: the clamped SwiGLU, and the sum over a token's slots.

    swiglu   act[slot] = silu(min(gate, limit)) * clamp(up, -limit, limit)
    combine  out[token] = sum over the slots of part[slot], which has its weight already

Both are fused into the GEMMs, and both exist as a launch of their own, so that their share can be measured
(`grouped_moe.GroupedMoe(fused=False)`).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

LIFT = tl.constexpr(2.0**64)  # what x and act are multiplied with on their way into a GEMM; see `grouped_gemm`
GATE_FLOOR = tl.constexpr(-1000.0)  # silu is 0 below, and -inf would make a NaN of it
BLOCK = 1024


@triton.jit
def swiglu(gate, up, limit, LIFT_ACT: tl.constexpr):
    """float32 -> float32, times 2**64 if LIFT_ACT."""
    gate = tl.minimum(tl.maximum(gate, GATE_FLOOR), limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    value = gate / (1.0 + tl.exp(-gate)) * up
    if LIFT_ACT:
        value *= LIFT
    return value


@triton.jit
def combine_arrivals(
    part, ids, arrived, out, slots, valid, tile, n,
    D: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, COUNTERS: tl.constexpr,
):  # fmt: skip
    """out[token, n] = sum of part[slot, n], by the last program that gets here for a token and its tile.

    Always in the order of the slots, so that the result does not depend on who is last. `part` [slots, D] of this
    program must be stored already. Counters start at 0; `arrived` is int32 [M, COUNTERS].
    """
    token = slots // K
    present = tl.zeros((BT,), tl.int32)  # bit k: slot k of the token has an expert
    chosen = tl.zeros((BT,), tl.int32)
    for k in tl.static_range(K):
        has = (tl.load(ids + token * K + k) >= 0).to(tl.int32)
        present |= has << k
        chosen += has
    tl.debug_barrier()  # every thread's part must be visible before its arrival is
    before = tl.atomic_add(arrived + token * COUNTERS + tile, 1, mask=valid, sem="acq_rel")
    last = valid & (before == chosen - 1)
    if tl.max(last.to(tl.int32), 0) > 0:
        tl.debug_barrier()
        total = tl.zeros((n.shape[0], BT), tl.float32)
        for k in tl.static_range(K):
            there = last & ((present >> k & 1) > 0)
            at = part + (token * K + k)[None, :] * D + n[:, None]
            total += tl.load(at, mask=there[None, :], other=0.0, cache_modifier=".cg")
        tl.store(out + token[None, :] * D + n[:, None], total.to(tl.bfloat16), mask=last[None, :])


@triton.jit
def swiglu_kernel(gate_up, act, ids, limit, INNER: tl.constexpr, LIFT_ACT: tl.constexpr, BLOCK: tl.constexpr):
    """gate_up float32 [slots, 2 I], gate first -> act bf16 [slots, I]; slots without an expert are left alone."""
    slot = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < INNER) & (tl.load(ids + slot) >= 0)
    gate = tl.load(gate_up + slot * 2 * INNER + n, mask=mask, other=0.0)
    up = tl.load(gate_up + slot * 2 * INNER + INNER + n, mask=mask, other=0.0)
    tl.store(act + slot * INNER + n, swiglu(gate, up, limit, LIFT_ACT).to(tl.bfloat16), mask=mask)


@triton.jit
def combine_kernel(part, ids, out, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """part float32 [M * K, D] -> out bf16 [M, D], in the order of the slots."""
    token = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):
        slot = token * K + k
        total += tl.load(part + slot * D + n, mask=(n < D) & (tl.load(ids + slot) >= 0), other=0.0)
    tl.store(out + token * D + n, total.to(tl.bfloat16), mask=n < D)


def launch_swiglu(gate_up: Tensor, act: Tensor, ids: Tensor, limit: float, lift: bool) -> None:
    """One launch."""
    slots, inner = act.shape
    swiglu_kernel[(slots, triton.cdiv(inner, BLOCK))](
        gate_up, act, ids, limit, INNER=inner, LIFT_ACT=lift, BLOCK=BLOCK
    )


def launch_combine(part: Tensor, ids: Tensor, out: Tensor) -> None:
    """One launch."""
    tokens, hidden = out.shape
    combine_kernel[(tokens, triton.cdiv(hidden, BLOCK))](part, ids, out, D=hidden, K=ids.shape[1], BLOCK=BLOCK)
