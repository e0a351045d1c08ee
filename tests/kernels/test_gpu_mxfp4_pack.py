"""The packed words hold the codes that went in, and stand where the kernels read them."""

from __future__ import annotations

import pytest
import torch

from dsv4bench.kernels.gpu.mxfp4_pack import PAIR, interleave, ordinary, pack, tiles

MASK = 0x81C081C0


def _codes(weight: torch.Tensor) -> torch.Tensor:
    """uint8 [..., K/2] -> codes [..., K]."""
    return torch.stack((weight & 0xF, weight >> 4), -1).flatten(-2).long()


def _planes(packed: torch.Tensor) -> torch.Tensor:
    """int16 [..., 32] -> codes [..., 4, 32], as the kernels' four shifts and masks find them."""
    word = packed.view(torch.int32).long() & 0xFFFFFFFF
    rotated = ((word << 10) | (word >> 22)) & 0xFFFFFFFF
    planes = []
    for bits in (word, word << 4, rotated, (word << 6) ^ (word >> 2)):
        code = bits & MASK
        halves = torch.stack((code & 0xFFFF, code >> 16 & 0xFFFF), -1).flatten(-2)
        planes.append((halves >> 15 << 3) | (halves >> 6 & 7))
    return torch.stack(planes, -2)


def _random(*size: int) -> torch.Tensor:
    return torch.randint(0, 256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_every_code_comes_back_from_its_plane() -> None:
    weight, scales = _random(3, 64, 192), _random(3, 64, 12)
    packed, words = pack(weight, scales, rows=16)
    assert packed.shape == (3, 4, 3, 16, 32) and words.shape == (3, 4, 3, 16)
    # [E, strip, tile, row, plane, half] -> [E, N, K]
    found = _planes(packed).permute(0, 1, 3, 2, 4, 5).reshape(3, 64, 384)
    assert torch.equal(found, _codes(weight))
    bytes_of = words.view(torch.uint8).view(3, 4, 3, 16, 4).permute(0, 1, 3, 2, 4).reshape(3, 64, 12)
    assert torch.equal(bytes_of, scales)


def test_a_plane_is_a_bf16_of_the_value() -> None:
    """Sign at 15 and magnitude at 8..6 are E2M1's value * 2**-126."""
    codes = torch.arange(16)
    bits = ((codes >> 3) << 15) | ((codes & 7) << 6)
    values = bits.to(torch.int16).view(torch.bfloat16).double() * 2.0**126
    assert values.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def test_what_is_missing_is_zero() -> None:
    """K = 64 of a tile's 128, and 24 rows of 32."""
    weight, scales = _random(1, 24, 32), _random(1, 24, 2)
    packed, words = pack(weight, scales, rows=32)
    found = _planes(packed)[0, 0, 0]
    assert torch.equal(found[:24, :2].reshape(24, 64), _codes(weight)[0])
    assert not found[:, 2:].any() and not found[24:].any() and not words[0, 0, 0, 24:].any()


@pytest.mark.parametrize("halves", [False, True])
def test_tiles_for_scaled_mmas(halves: bool) -> None:
    weight, scales = _random(2, 32, 128), _random(2, 32, 8)
    packed, scale = tiles(weight, scales, 16, halves)
    assert packed.shape == (2, 2, 2, 16, 64) and scale.shape == (2, 2, 2, 16, 4)
    low, high = packed & 0xF, packed >> 4
    codes = torch.cat((low, high), -1) if halves else torch.stack((low, high), -1).flatten(-2)
    assert torch.equal(codes.permute(0, 1, 3, 2, 4).reshape(2, 32, 256).long(), _codes(weight))
    assert torch.equal(scale.permute(0, 1, 3, 2, 4).reshape(2, 32, 8), scales)


def test_gate_and_up_stand_together() -> None:
    rows = torch.arange(2 * 24, dtype=torch.uint8).view(1, 48, 1)
    found = interleave(rows)[0, :, 0].tolist()
    assert found[: 2 * PAIR] == [*range(8), *range(24, 32)] and len(found) == 48
    padded = interleave(rows, 16)[0, :, 0].tolist()
    assert padded[32:] == [*range(16, 24), *range(40, 48), *[0] * 16]


@pytest.mark.parametrize(("byte", "fits"), [(87, True), (86, False), (167, True), (168, False)])
def test_which_scales_need_care(byte: int, fits: bool) -> None:
    scales = torch.full((2, 3, 4), 120, dtype=torch.uint8)
    scales[1, 2, 3] = byte
    assert ordinary(scales) is fits
