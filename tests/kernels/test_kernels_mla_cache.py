"""The cache's bytes: every code and scale, the place of each byte in a page, rounding, and what must stay NaN."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv4bench.kernels import mla_cache
from dsv4bench.kernels.mla_cache import BLOCK, BLOCKS, DATA_BYTES, NOPE, SCALE_BYTES

pages_of = pytest.mark.parametrize("page_size", [1, 2, 64, 256])


def _e4m3(byte: int) -> float:
    """From the definition: bias 7, no infinities, S.1111.111 is NaN."""
    exponent, mantissa = byte >> 3 & 0xF, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    magnitude = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -magnitude if byte & 0x80 else magnitude


def _bf16(low: int, high: int) -> float:
    return float(struct.unpack("<f", bytes((0, 0, low, high)))[0])


def _decoded(data: Tensor, scales: Tensor) -> list[float]:
    """One row, byte by byte."""
    row, powers = data.tolist(), [2.0 ** (scale - 127) for scale in scales.tolist()]
    nope = [_e4m3(row[lane]) * powers[lane // 64] for lane in range(448)]
    return nope + [_bf16(row[at], row[at + 1]) for at in range(448, 576, 2)]


def _rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 512, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(("page_size", "size"), [(1, 1152), (2, 1728), (64, 37440), (256, 149760)])
def test_a_page_is_padded_to_576_bytes(page_size: int, size: int) -> None:
    assert mla_cache.page_bytes(page_size) == size
    assert size % 576 == 0
    assert size >= page_size * 584 > size - 576


@pages_of
def test_data_stands_before_all_scales_of_the_page(page_size: int) -> None:
    pages, rows = 3, _rows(2 * page_size)
    cache = mla_cache.empty(pages, page_size)
    positions = torch.randperm(pages * page_size, generator=torch.Generator().manual_seed(1))[: len(rows)]
    mla_cache.write(cache, page_size, positions, rows)
    data, scales = mla_cache.quantize(rows)
    untouched = torch.ones_like(cache, dtype=torch.bool)
    for i, position in enumerate(positions.tolist()):
        page, token = divmod(position, page_size)
        at, footer = token * 576, page_size * 576 + token * 8
        assert torch.equal(cache[page, at : at + 576], data[i])
        assert torch.equal(cache[page, footer : footer + 8], scales[i])
        untouched[page, at : at + 576] = untouched[page, footer : footer + 8] = False
    assert not cache[untouched].any(), "bytes of other rows, and the padding"


@pages_of
def test_gather_is_dequantize_of_what_was_written(page_size: int) -> None:
    rows = _rows(4 * page_size)
    cache = mla_cache.empty(5, page_size)
    mla_cache.write(cache, page_size, torch.arange(len(rows)), rows)
    index = torch.randint(0, len(rows), (3, 7), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
    found = mla_cache.gather(cache, page_size, index, torch.float64)
    data, scales = mla_cache.quantize(rows)
    assert torch.equal(found, mla_cache.dequantize(data, scales, torch.float64)[index.long()])
    assert mla_cache.gather(cache, page_size, index[:0]).shape == (0, 7, 512)


def test_every_code_with_every_scale_is_exact() -> None:
    codes, scales = torch.arange(256, dtype=torch.uint8), torch.arange(255, dtype=torch.uint8)
    data = torch.zeros(255, DATA_BYTES, dtype=torch.uint8)
    data[:, :256] = codes
    found = mla_cache.dequantize(data, scales[:, None].expand(-1, SCALE_BYTES), torch.float64)[:, :256]
    values = torch.tensor([_e4m3(code) for code in range(256)], dtype=torch.float64)
    powers = torch.tensor([2.0 ** (scale - 127) for scale in range(255)], dtype=torch.float64)
    truth = powers[:, None] * values
    assert torch.equal(found.nan_to_num(nan=1e300), truth.nan_to_num(nan=1e300))
    single = mla_cache.dequantize(data, scales[:, None].expand(-1, SCALE_BYTES))[:, :256]
    fits = truth.abs() < 2.0**128
    assert torch.equal(single.double()[fits], truth[fits])
    assert fits[:247].logical_or(truth[:247].isnan()).all(), "float32 is exact for scale bytes below 247"
    assert single[0, 1].item() == 2.0**-136, "subnormal in float32"


def test_scale_byte_255_is_nan_and_the_padding_byte_is_nothing() -> None:
    data = torch.full((1, DATA_BYTES), 0x38, dtype=torch.uint8)  # 1.0 in E4M3
    scales = torch.full((1, SCALE_BYTES), 127, dtype=torch.uint8)
    scales[0, 2], scales[0, 7] = 255, 255
    row = mla_cache.dequantize(data, scales)[0]
    assert row[2 * BLOCK : 3 * BLOCK].isnan().all()
    assert not row[: 2 * BLOCK].isnan().any()
    assert not row[3 * BLOCK :].isnan().any()


def test_a_row_agrees_with_its_bytes_read_one_by_one() -> None:
    data, scales = mla_cache.quantize(_rows(5, seed=3))
    for i, row in enumerate(mla_cache.dequantize(data, scales, torch.float64)):
        assert row.tolist() == _decoded(data[i], scales[i])


def test_rope_is_bf16_as_it_was() -> None:
    rows = _rows(4)
    rows[0, NOPE:] = torch.tensor([_bf16(0x7F, 0x3F), _bf16(0xFF, 0xBF)]).repeat(32)  # NaN as E4M3, both bytes of one
    data, scales = mla_cache.quantize(rows)
    assert torch.equal(mla_cache.dequantize(data, scales)[:, NOPE:], rows[:, NOPE:].bfloat16().float())


@given(st.integers(-160, 120), st.floats(1.0, 2.0, exclude_max=True, width=32))
@settings(max_examples=300, deadline=None)
def test_the_scale_is_the_smallest_that_fits(exponent: int, mantissa: float) -> None:
    row = torch.zeros(1, 512)
    row[0, 5] = -mantissa * 2.0**exponent  # subnormal or zero at the low end
    _, scales = mla_cache.quantize(row)
    largest, scale = float(row.abs().max()), 2.0 ** (int(scales[0, 0]) - 127)
    assert largest <= 448 * scale
    assert scales[0, 0] == 0 or largest > 448 * scale / 2
    assert scales[0, 1:].tolist() == [0] * (BLOCKS - 1 + 1), "blocks of zeros, and the padding"


def test_exactly_448_does_not_take_the_next_scale() -> None:
    row = torch.zeros(1, 512)
    row[0, 0], row[0, BLOCK], row[0, 2 * BLOCK] = 448.0, 448.5, 7.0  # 7 = 448 / 64
    assert mla_cache.quantize(row)[1][0, :3].tolist() == [127, 128, 121]


def test_representable_rows_survive_and_others_are_near() -> None:
    rows = _rows(64)
    once = mla_cache.dequantize(*mla_cache.quantize(rows))
    assert torch.equal(mla_cache.dequantize(*mla_cache.quantize(once)), once)
    block = rows[:, :NOPE].view(-1, BLOCKS, BLOCK)
    scale = mla_cache.power_of_two(mla_cache.quantize(rows)[1][:, :BLOCKS]).unsqueeze(-1)
    error = (once[:, :NOPE].view_as(block) - block).abs()
    # Half a unit in the last of 3 mantissa bits, or half of the smallest subnormal.
    assert (error <= torch.maximum(block.abs() / 16, scale * 2**-10)).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_becomes_nan_in_its_block_alone(bad: float) -> None:
    rows = _rows(2)
    rows[1, BLOCK + 3] = bad
    found = mla_cache.dequantize(*mla_cache.quantize(rows))
    assert found[1, BLOCK : 2 * BLOCK].isnan().all()
    found[1, BLOCK : 2 * BLOCK] = 0
    assert found.isfinite().all()


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(IndexError, match="position -1"):
        mla_cache.write(mla_cache.empty(1, 2), 2, torch.tensor([-1]), _rows(1))


def test_write_takes_bf16_and_any_integer_positions() -> None:
    for dtype in (torch.int32, torch.int64):
        cache = mla_cache.empty(2, 4)
        mla_cache.write(cache, 4, torch.tensor([6, 1], dtype=dtype), _rows(2).bfloat16())
        assert torch.equal(
            mla_cache.gather(cache, 4, torch.tensor([6, 1])),
            mla_cache.dequantize(*mla_cache.quantize(_rows(2).bfloat16())),
        )
