"""MXFP4, the packed format of the routed experts: E2M1 values, one E8M0 scale for every 32 along K.

    value[n, k] = E2M1[nibble] * 2**(scale[n, k // 32] - 127)

Two values share a byte; the LOW nibble holds the even k. A weight [N, K] is uint8 [N, K/2] with uint8 scales
[N, K/32]. Bit 3 of a nibble is the sign, the other three index the magnitudes 0 .5 1 1.5 2 3 4 6.
Rounding is to the nearest magnitude, ties to the even code; the scale of a block is the power of two that
brings its largest element into [4, 8), so that values above 6 saturate (the OCP MX rule). Scale byte 0 is 2**-127,
254 is 2**127 and 255 is NaN: so is every element of its block.
"""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor

BLOCK = 32  # elements along K that share one scale
E8M0_BIAS = 127
_NAN_SCALE = 255
_MAX_EXPONENT = 2  # of E2M1: 6 = 1.5 * 2**2
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = MAGNITUDES + tuple(-m for m in MAGNITUDES)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float [..., N, K], K a multiple of 32 -> (packed uint8 [..., N, K/2], scales uint8 [..., N, K/32]).

    A block that holds infinity or NaN becomes NaN.
    """
    k = weight.shape[-1]
    if k % BLOCK:
        raise ValueError(f"MXFP4 needs K to be a multiple of {BLOCK}, got {k}")
    blocks = weight.float().reshape(*weight.shape[:-1], k // BLOCK, BLOCK)
    amax = blocks.abs().amax(-1)
    exponent = torch.frexp(amax).exponent - 1 - _MAX_EXPONENT
    exponent = torch.where(amax > 0, exponent, -E8M0_BIAS).clamp(-E8M0_BIAS, E8M0_BIAS)
    scaled = blocks * power_of_two(E8M0_BIAS - exponent).unsqueeze(-1)
    codes = _nearest_code(scaled).flatten(-2)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return packed, torch.where(amax.isfinite(), exponent + E8M0_BIAS, _NAN_SCALE).to(torch.uint8)


def _nearest_code(scaled: Tensor) -> Tensor:
    magnitude = scaled.abs()
    # A midpoint belongs to the even code below or above it: strict comparison where the even one is below.
    midpoints = [(a + b) / 2 for a, b in itertools.pairwise(MAGNITUDES)]
    code = torch.zeros_like(magnitude, dtype=torch.uint8)
    for below, midpoint in enumerate(midpoints):
        code += (magnitude > midpoint) if below % 2 == 0 else (magnitude >= midpoint)
    return code | ((scaled < 0).to(torch.uint8) << 3)


def dequantize(packed: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(uint8 [..., N, K/2], uint8 [..., N, K/32]) -> [..., N, K] in `dtype`.

    Exact in float64; in float32 as well, but for what exceeds its range (2 * 2**127 and above). A byte is looked up
    whole: one 64-bit table entry holds the float32 values of both its nibbles.
    """
    # index_select, because indexing with a tensor is about nine times slower on a CPU (PyTorch 2.13).
    values = _pairs(packed.device).index_select(0, packed.reshape(-1).int()).view(torch.float32)
    values = values.view(*scales.shape, BLOCK).to(torch.promote_types(dtype, torch.float32))
    values.mul_(power_of_two(scales).unsqueeze(-1))
    return values.flatten(-2).to(dtype)


@functools.cache
def _pairs(device: torch.device) -> Tensor:
    """int64 [256]: the two float32 values of a byte, even k first."""
    both = torch.tensor([[VALUES[byte & 0xF], VALUES[byte >> 4]] for byte in range(256)], device=device)
    return both.view(torch.int64).squeeze(-1)


def power_of_two(scale: Tensor) -> Tensor:
    """E8M0 bytes, of any integer type -> 2**(scale - 127) in float32, exact; 255 -> NaN.

    Built from bits, since exp2 and pow of a GPU may round, and flush 2**-127 to zero.
    """
    bits = scale.to(torch.int32)
    bits = torch.where(bits == _NAN_SCALE, 0x7FC00000, torch.where(bits == 0, 0x00400000, bits << 23))
    return bits.view(torch.float32)
