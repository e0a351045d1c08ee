"""The packed format: byte order, every code, rounding, saturation, and the round trip."""

from __future__ import annotations

import pytest
import torch

from dsv4bench.kernels.mxfp4 import BLOCK, MAGNITUDES, VALUES, dequantize, quantize


def test_every_code_and_the_low_nibble_first() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    row = torch.cat((codes, codes.flip(0)))  # 32 values, so that every code stands in both nibbles
    packed = (row[0::2] | (row[1::2] << 4)).view(1, -1)
    values = dequantize(packed, torch.tensor([[127]], dtype=torch.uint8))
    assert values.tolist() == [[VALUES[int(code)] for code in row]]


@pytest.mark.parametrize(("scale", "factor"), [(0, 2.0**-127), (126, 0.5), (127, 1.0), (137, 1024.0)])
def test_scale_is_a_biased_power_of_two(scale: int, factor: float) -> None:
    packed = torch.full((1, 16), 0x22, dtype=torch.uint8)  # code 2 twice: 1.0
    assert dequantize(packed, torch.tensor([[scale]], dtype=torch.uint8)).unique().item() == factor


def test_each_block_of_32_has_its_own_scale() -> None:
    packed = torch.full((1, 32), 0x22, dtype=torch.uint8)
    values = dequantize(packed, torch.tensor([[127, 128]], dtype=torch.uint8))
    assert values[0].tolist() == [1.0] * 32 + [2.0] * 32


def test_representable_values_survive_the_round_trip() -> None:
    rng = torch.Generator().manual_seed(0)
    exact = torch.tensor(VALUES)[torch.randint(0, 16, (3, 5, 64), generator=rng)]
    exact[..., 0::BLOCK] = 6.0  # fixes the block's scale
    exact = exact * 0.25
    assert torch.equal(dequantize(*quantize(exact)), exact)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.25, 0.0), (0.26, 0.5), (0.75, 1.0), (1.25, 1.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (-5.1, -6.0)],
)
def test_rounds_to_nearest_ties_to_the_even_code(value: float, rounded: float) -> None:
    block = torch.zeros(1, BLOCK)
    block[0, 0], block[0, 7] = 6.0, value
    assert dequantize(*quantize(block))[0, 7].item() == rounded


def test_error_is_bounded_and_saturation_is_at_six() -> None:
    rng = torch.Generator().manual_seed(1)
    weight = torch.randn(64, 128, generator=rng)
    packed, scales = quantize(weight)
    scale = torch.exp2(scales.float() - 127).repeat_interleave(BLOCK, dim=1)
    # Half the widest gap is 1; a value in (7, 8) of the block's scale saturates to 6 and is off by up to 2.
    assert ((dequantize(packed, scales) - weight).abs() <= 2.0 * scale).all()
    top = torch.full((1, BLOCK), 7.9)
    assert dequantize(*quantize(top)).unique().item() == max(MAGNITUDES)


def test_zeros_stay_zero_and_a_ragged_k_is_refused() -> None:
    assert dequantize(*quantize(torch.zeros(2, 64))).abs().sum().item() == 0.0
    with pytest.raises(ValueError, match="multiple of 32, got 33"):
        quantize(torch.zeros(1, 33))


def test_every_code_with_every_scale_is_exact() -> None:
    codes = torch.arange(16, dtype=torch.uint8).repeat(2)
    packed = (codes[0::2] | (codes[1::2] << 4)).expand(255, 16)
    scales = torch.arange(255, dtype=torch.uint8).view(255, 1)
    truth = torch.tensor(
        [[VALUES[code % 16] * 2.0 ** (s - 127) for code in range(32)] for s in range(255)], dtype=torch.float64
    )
    assert torch.equal(dequantize(packed, scales, torch.float64), truth)
    fits = truth.abs() < 2.0**128
    single = dequantize(packed, scales)
    assert torch.equal(single.double()[fits], truth[fits])
    assert single[~fits].isinf().all()
    assert fits[:253].all(), "float32 is exact for scale bytes below 253"


def test_scale_byte_255_is_nan_even_for_zeros() -> None:
    packed = torch.zeros(1, 32, dtype=torch.uint8)
    values = dequantize(packed, torch.tensor([[127, 255]], dtype=torch.uint8))
    assert values[0, :32].count_nonzero() == 0
    assert values[0, 32:].isnan().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_becomes_nan_in_its_block_alone(bad: float) -> None:
    weight = torch.ones(1, 96)
    weight[0, 40] = bad
    packed, scales = quantize(weight)
    assert scales.tolist() == [[125, 255, 125]]
    assert dequantize(packed, scales)[0, 32:64].isnan().all()


@pytest.mark.parametrize("exponent", [-149, -127, -126, 0, 125, 127])
def test_the_whole_range_of_float32_has_a_scale(exponent: int) -> None:
    block = torch.full((1, BLOCK), 1.5).mul(2.0**exponent) if exponent > -149 else torch.full((1, BLOCK), 2.0**-149)
    found = dequantize(*quantize(block), torch.float64)
    if exponent >= -127:
        assert torch.equal(found, block.double())
    else:
        assert found.count_nonzero() == 0, "below the smallest magnitude, 2**-128"
