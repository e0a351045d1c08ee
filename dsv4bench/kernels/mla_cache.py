"""The fp8 MLA cache: 584 bytes a row, in pages whose scales stand behind the data of all their rows.

    row      448 E4M3 (nope) | 64 bf16 (rope) = 576 bytes of data, and 8 scale bytes: 7 UE8M0, one byte of padding
    value    E4M3 * 2**(scale - 127), one scale for 64 lanes; the rope lanes carry none
    page     data of row t at t * 576, its scales at page_size * 576 + t * 8; padded to a multiple of 576 bytes

Scale byte 0 is 2**-127 (subnormal in float32), 254 is 2**127, 255 is NaN. Nothing here waits for the device, and
`write` can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.kernels.mxfp4 import E8M0_BIAS, power_of_two

HEAD_DIM = 512
NOPE = 448
ROPE = HEAD_DIM - NOPE
BLOCK = 64  # nope lanes that share one scale
BLOCKS = NOPE // BLOCK
DATA_BYTES = NOPE + 2 * ROPE
SCALE_BYTES = BLOCKS + 1  # the last one is padding
ROW_BYTES = DATA_BYTES + SCALE_BYTES
# 448, E4M3's largest, is 0.875 * 2**9.
_LARGEST_MANTISSA, _LARGEST_EXPONENT = 0.875, 9


def page_bytes(page_size: int) -> int:
    """Bytes of a page of `page_size` rows, padding included: what separates two pages."""
    return -(-page_size * ROW_BYTES // DATA_BYTES) * DATA_BYTES


def empty(pages: int, page_size: int, device: torch.device | str = "cpu") -> Tensor:
    """A cache of zero bytes, uint8 [pages, page_bytes]: every row decodes to zeros."""
    return torch.zeros(pages, page_bytes(page_size), dtype=torch.uint8, device=device)


def views(cache: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    """uint8 [pages, page_bytes] -> its data [pages, page_size, 576] and scales [pages, page_size, 8], not copied."""
    split = page_size * DATA_BYTES
    data = cache[:, :split].view(len(cache), page_size, DATA_BYTES)
    return data, cache[:, split : page_size * ROW_BYTES].view(len(cache), page_size, SCALE_BYTES)


def quantize(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Float [..., 512] -> data uint8 [..., 576], scales uint8 [..., 8] with the padding byte 0.

    A block's scale is the smallest power of two that brings its largest lane to 448 or below, from 2**-127 on. A
    block that holds NaN or infinity decodes to NaN.
    """
    blocks = rows[..., :NOPE].float().reshape(*rows.shape[:-1], BLOCKS, BLOCK)
    amax = blocks.abs().amax(-1)
    mantissa, exponent = torch.frexp(amax)
    exponent = exponent - _LARGEST_EXPONENT + (mantissa > _LARGEST_MANTISSA)
    exponent = torch.where(amax > 0, exponent, -E8M0_BIAS).clamp(min=-E8M0_BIAS)
    # The exponent of a finite number is at most 120, so that its negative is a normal number's.
    codes = (blocks * power_of_two(E8M0_BIAS - exponent).unsqueeze(-1)).to(torch.float8_e4m3fn)
    nope = codes.flatten(-2).view(torch.uint8)
    rope = rows[..., NOPE:].to(torch.bfloat16).contiguous().view(torch.uint8)
    scales = torch.where(amax.isfinite(), exponent + E8M0_BIAS, 255).to(torch.uint8)
    scales = torch.nn.functional.pad(scales, (0, 1))
    return torch.cat((nope, rope), -1), scales


def dequantize(data: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Data uint8 [..., 576], scales uint8 [..., 8] -> [..., 512].

    Exact in float64; in float32 as well, but for what exceeds its range (scale byte 247 and above).
    """
    wide = torch.promote_types(dtype, torch.float32)
    nope = data[..., :NOPE].contiguous().view(torch.float8_e4m3fn).to(wide)
    nope = nope.view(*data.shape[:-1], BLOCKS, BLOCK) * power_of_two(scales[..., :BLOCKS]).to(wide).unsqueeze(-1)
    rope = data[..., NOPE:].contiguous().view(torch.bfloat16).to(wide)
    return torch.cat((nope.flatten(-2), rope), -1).to(dtype)


def write(cache: Tensor, page_size: int, positions: Tensor, rows: Tensor) -> None:
    """Quantises float rows [n, 512] into `cache` at `positions` int [n] (page * page_size + offset), in place.

    Positions are distinct and within the cache; on a GPU nothing checks that. A padded request of a captured batch
    therefore needs a row of its own to write to.
    """
    write_quantized(cache, page_size, positions, *quantize(rows))


def write_quantized(cache: Tensor, page_size: int, positions: Tensor, data: Tensor, scales: Tensor) -> None:
    """As `write`, of bytes: data uint8 [n, 576], scales uint8 [n, 8]."""
    if not positions.is_cuda and bool((positions < 0).any()):
        raise IndexError(f"position {int(positions.min())} of a row to write is negative")
    where = _page_and_offset(positions, page_size)
    for target, source in zip(views(cache, page_size), (data, scales), strict=True):
        target.index_put_(where, source)


def gather(cache: Tensor, page_size: int, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The rows at `index` int [...], each within the cache -> [..., 512]; exact as `dequantize` is."""
    where = _page_and_offset(index, page_size)
    data, scales = views(cache, page_size)
    return dequantize(data[where], scales[where], dtype)


def _page_and_offset(index: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    index = index.long()
    return index // page_size, index % page_size
