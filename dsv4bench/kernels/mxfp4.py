"""MXFP4, the packed format of the routed experts: E2M1 values, one E8M0 scale for every 32 along K.

    value[n, k] = E2M1[nibble] * 2**(scale[n, k // 32] - 127)

Two values share a byte; the LOW nibble holds the even k. A weight [N, K] is uint8 [N, K/2] with uint8 scales
[N, K/32]. Bit 3 of a nibble is the sign, the other three index the magnitudes 0 .5 1 1.5 2 3 4 6.
Rounding is to the nearest magnitude, ties to the even code; the scale of a block is the power of two that
brings its largest element into [4, 8), so that values above 6 saturate (the OCP MX rule).
"""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Tensor

BLOCK = 32  # elements along K that share one scale
E8M0_BIAS = 127
_MAX_EXPONENT = 2  # of E2M1: 6 = 1.5 * 2**2
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = MAGNITUDES + tuple(-m for m in MAGNITUDES)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float [..., N, K], K a multiple of 32 -> (packed uint8 [..., N, K/2], scales uint8 [..., N, K/32])."""
    k = weight.shape[-1]
    if k % BLOCK:
        raise ValueError(f"MXFP4 needs K to be a multiple of {BLOCK}, got {k}")
    blocks = weight.float().reshape(*weight.shape[:-1], k // BLOCK, BLOCK)
    amax = blocks.abs().amax(-1)
    exponent = torch.where(amax > 0, torch.frexp(amax).exponent - 1 - _MAX_EXPONENT, torch.tensor(-E8M0_BIAS))
    exponent = exponent.clamp(-E8M0_BIAS, E8M0_BIAS)
    scaled = torch.ldexp(blocks, -exponent.unsqueeze(-1))
    codes = _nearest_code(scaled).flatten(-2)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return packed, (exponent + E8M0_BIAS).to(torch.uint8)


def _nearest_code(scaled: Tensor) -> Tensor:
    magnitude = scaled.abs()
    # A midpoint belongs to the even code below or above it: strict comparison where the even one is below.
    midpoints = [(a + b) / 2 for a, b in itertools.pairwise(MAGNITUDES)]
    code = torch.zeros_like(magnitude, dtype=torch.uint8)
    for below, midpoint in enumerate(midpoints):
        code += (magnitude > midpoint) if below % 2 == 0 else (magnitude >= midpoint)
    return code | ((scaled < 0).to(torch.uint8) << 3)


def dequantize(packed: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(uint8 [..., N, K/2], uint8 [..., N, K/32]) -> [..., N, K] in `dtype`. Exact in float32.

    A byte is looked up whole: one 64-bit table entry holds the float32 values of both its nibbles.
    """
    pairs, powers = _tables(packed.device)
    # index_select, because indexing with a tensor is about nine times slower on a CPU (PyTorch 2.13).
    values = pairs.index_select(0, packed.reshape(-1).int()).view(torch.float32)
    values = values.view(*scales.shape, BLOCK)
    values.mul_(powers.index_select(0, scales.reshape(-1).int()).view(*scales.shape, 1))
    return values.flatten(-2).to(dtype)


@functools.cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """(int64 [256]: a byte's two values, even k first; float32 [256]: a scale byte's power of two)."""
    both = torch.tensor([[VALUES[byte & 0xF], VALUES[byte >> 4]] for byte in range(256)], device=device)
    powers = torch.tensor([2.0 ** (byte - E8M0_BIAS) for byte in range(255)] + [math.nan], device=device)
    return both.view(torch.int64).squeeze(-1), powers
