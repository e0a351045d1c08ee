"""Matrix products with bf16 weights [out, in], by torch; float32 results where a rounding would change a choice."""

from __future__ import annotations

import torch
from torch import Tensor


def product(x: Tensor, weight: Tensor) -> Tensor:
    """bf16 [T, in] -> bf16 [T, out]."""
    return torch.mm(x, weight.t())


def product_float(x: Tensor, weight: Tensor) -> Tensor:
    """bf16 [T, in] -> float32 [T, out], not rounded to bf16 on the way."""
    if x.is_cuda:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return torch.mm(x.float(), weight.float().t())


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    """bf16 [T, G, in], weight [G, out, in] -> bf16 [T, G * out], written where the next product reads it."""
    tokens, groups, _ = x.shape
    out = torch.empty(tokens, groups, weight.shape[1], dtype=x.dtype, device=x.device)
    torch.bmm(x.transpose(0, 1), weight.transpose(1, 2), out=out.transpose(0, 1))
    return out.view(tokens, -1)
