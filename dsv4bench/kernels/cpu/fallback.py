"""The slow set: torch that works as the historic fallback kernels work, one (token, expert) pair at a time.

MoE: every slot decodes its expert's weights anew, arithmetically, and reduces by multiply and row sum, never
by a matmul; two tokens with the same expert pay twice. The epilogue is one launch an operation.
Attention: every (token, head) marches in tiles over ALL topk entries, whatever the valid length, with an
fp32 multiply and sum; window and extra cache are two passes, merged afterwards, and the sink comes last.
The work is honest: nothing here sleeps, and nothing is done that those kernels do not do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsv4bench.kernels.mxfp4 import BLOCK, E8M0_BIAS
from dsv4bench.kernels.sets import CacheRows, Experts, KernelName

TILE = 32  # entries a step of the attention march
_LOG2_E = math.log2(math.e)


class FallbackKernels:
    """Slot by slot, head by head."""

    name: KernelName = "fallback"

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
        tokens, top_k = ids.shape
        slot_expert = ids.reshape(-1).clamp(min=0)
        slot_valid = (ids.reshape(-1) >= 0).to(x.dtype)
        slot_token = torch.arange(tokens, device=x.device).unsqueeze(1).expand(tokens, top_k).reshape(-1)
        hidden = _slot_gemv(x, slot_token, slot_expert, experts.w13, experts.s13)
        inner = hidden.shape[1] // 2
        gate = hidden[:, :inner].contiguous()
        up = hidden[:, inner:].contiguous()
        gate = torch.clamp(gate, max=experts.swiglu_limit)
        up = torch.clamp(up, min=-experts.swiglu_limit, max=experts.swiglu_limit)
        activated = torch.nn.functional.silu(gate)
        activated = activated * up
        slot = torch.arange(tokens * top_k, device=x.device)
        out = _slot_gemv(activated, slot, slot_expert, experts.w2, experts.s2)
        out = out * slot_valid.unsqueeze(1)
        out = out * weights.reshape(-1, 1).to(out.dtype)
        summed = out.reshape(tokens, top_k, -1).sum(dim=1)
        return summed.mul_(experts.route_scale)

    def sparse_decode(
        self, q: Tensor, window: CacheRows, extra: CacheRows | None, sink: Tensor, scale: float
    ) -> Tensor:
        out, lse = _march(q, window, scale)
        if extra is not None:
            out, lse = _merge(out, lse, *_march(q, extra, scale))
        return _apply_sink(out, lse, sink)


def _slot_gemv(x: Tensor, rows: Tensor, slot_expert: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    """y[slot] = W[expert(slot)] x[row(slot)], the weights decoded again for every slot. -> [slots, N]."""
    y = torch.empty(len(slot_expert), packed.shape[1], dtype=x.dtype, device=x.device)
    for slot, (row, expert) in enumerate(zip(rows.tolist(), slot_expert.tolist(), strict=True)):
        block = packed[expert].view(packed.shape[1], -1, BLOCK // 2)  # [N, K/32, 16]
        factor = torch.exp2(scales[expert].float() - E8M0_BIAS).unsqueeze(2)
        x_even, x_odd = x[row].view(-1, BLOCK // 2, 2).permute(2, 0, 1).contiguous()
        even = (_decode(block & 0xF) * factor * x_even).sum(dim=(1, 2))
        odd = (_decode(block >> 4) * factor * x_odd).sum(dim=(1, 2))
        torch.add(even, odd, out=y[slot])
    return y


def _decode(code: Tensor) -> Tensor:
    """E2M1 by arithmetic: sign, two exponent bits, one mantissa bit; exponent 0 is subnormal (0 or 0.5).

    value = (-1)**s * (2 n + m) * 2**(e - n - 1), with n = 1 where e > 0. Fields stay in place in the byte.
    """
    twice_e = code & 6
    twice_n = twice_e.clamp(max=2)
    significand = (twice_n | (code & 1)).float()
    power = torch.exp2((twice_e - twice_n).float() * 0.5 - 1.0)
    sign = 1.0 - (code & 8).float() * 0.25
    return sign * significand * power


def _march(q: Tensor, rows: CacheRows, scale: float) -> tuple[Tensor, Tensor]:
    """One pass over one cache -> (out [T, H, d], natural-log lse [T, H]; -inf where no row is valid)."""
    tokens, heads, _ = q.shape
    out = torch.zeros_like(q)
    lse = torch.full((tokens, heads), -math.inf, dtype=q.dtype, device=q.device)
    for token in range(tokens):
        for head in range(heads):
            out[token, head], lse[token, head] = _march_one(q[token, head], rows, token, scale)
    return out, lse


def _march_one(q: Tensor, rows: CacheRows, token: int, scale: float) -> tuple[Tensor, Tensor]:
    page_size = rows.pool.shape[1]
    top = torch.full((), -math.inf, dtype=q.dtype, device=q.device)  # running maximum, base 2
    total = torch.zeros((), dtype=q.dtype, device=q.device)
    acc = torch.zeros_like(q)
    for start in range(0, rows.index.shape[1], TILE):  # all of topk: no early exit on the length
        index = rows.index[token, start : start + TILE]
        valid = index >= 0
        safe = index.clamp(min=0)
        kv = rows.pool[safe // page_size, safe % page_size]
        score = (kv * q).sum(dim=1) * (scale * _LOG2_E)
        score = torch.where(valid, score, -math.inf)
        new_top = torch.maximum(top, score.max())
        base = torch.where(new_top == -math.inf, 0.0, new_top)
        shrink = torch.exp2(top - base)
        weight = torch.exp2(score - base)
        total = total * shrink + weight.sum()
        acc = acc * shrink + (weight.unsqueeze(1) * kv).sum(dim=0)
        top = new_top
    return acc / torch.where(total == 0, 1.0, total), (top + torch.log2(total)) / _LOG2_E


def _merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Two partial attentions -> one, an operation at a time."""
    top = torch.maximum(lse_a, lse_b)
    top = torch.where(top == -math.inf, 0.0, top)
    weight_a = torch.exp(lse_a - top)
    weight_b = torch.exp(lse_b - top)
    total = weight_a + weight_b
    safe = torch.where(total == 0, 1.0, total)
    out = out_a * weight_a.unsqueeze(-1)
    out = out + out_b * weight_b.unsqueeze(-1)
    out = out / safe.unsqueeze(-1)
    return out, torch.log(total) + top


def _apply_sink(out: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    with_sink = torch.logaddexp(lse, sink.to(lse.dtype).expand_as(lse))
    return out * torch.exp(lse - with_sink).unsqueeze(-1)
