"""SM coverage and waves from grids."""

from __future__ import annotations

import numpy as np
import pytest

from dsv4bench.attribution.coverage import blocks, blocks_per_sm, coverage, sm_count, waves
from dsv4bench.records.trace import DeviceFacts


def of(*kernels: tuple[int, int, int], sms: int | None = 188) -> tuple[float | None, float | None]:
    table = np.array(kernels, dtype=np.int64).reshape(-1, 3)
    return coverage(table[:, 0], table[:, 1], table[:, 2], sms)


def test_a_narrow_grid_leaves_sms_empty() -> None:
    assert of((0, 10, 64)) == (pytest.approx(64 / 188), 1.0)
    assert of((0, 10, 1000)) == (1.0, 1.0)


def test_coverage_is_weighted_by_time_and_idle_time_does_not_count() -> None:
    filled, _ = of((0, 10, 188), (50, 80, 94))
    assert filled == pytest.approx((10 * 1 + 30 * 0.5) / 40)


def test_kernels_that_run_together_fill_together_up_to_the_device() -> None:
    filled, _ = of((0, 10, 100), (0, 10, 50))
    assert filled == pytest.approx(150 / 188)
    assert of((0, 10, 100), (0, 10, 150))[0] == 1.0


def test_slices_worked_on_in_parts_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    start = np.sort(random.integers(0, 300, 90))
    kernels = [
        (s, s + n, c) for s, n, c in zip(start, random.integers(0, 9, 90), random.integers(0, 99, 90), strict=True)
    ]
    whole = of(*kernels)
    for slices in (1, 2, 7, 178, 179):
        monkeypatch.setattr("dsv4bench.attribution.coverage.SLICES", slices)
        assert of(*kernels) == whole
    moments = [[c for s, e, c in kernels if c and s <= t < e] for t in range(310)]
    expected = sum(min(188, sum(m)) for m in moments) / 188 / sum(bool(m) for m in moments)
    assert whole[0] == pytest.approx(expected)


def test_time_without_a_grid_is_said_and_not_guessed() -> None:
    assert of((0, 10, 94), (10, 40, 0)) == (0.5, 0.25)
    assert of((0, 10, 0)) == (None, 0.0)
    assert of((0, 10, 5), sms=None) == (None, 1.0)
    assert of() == (None, None)


def test_sms_of_the_file_come_before_those_of_the_name() -> None:
    assert sm_count(DeviceFacts(0, name="NVIDIA H200")) == 132
    assert sm_count(DeviceFacts(0, name="NVIDIA H200", sms=66)) == 66
    assert sm_count(DeviceFacts(0, name="A GPU")) is None
    assert sm_count(None) is None


def test_blocks_of_a_grid() -> None:
    assert blocks(np.array([[4, 3, 2], [0, 0, 0]], dtype=np.int32)).tolist() == [24, 0]
    assert blocks(np.array([[2**31 - 1, 65535, 1]], dtype=np.int32)).tolist() == [(2**31 - 1) * 65535]


@pytest.mark.parametrize(
    ("block", "registers", "shared", "compute", "resident"),
    [
        ((256, 1, 1), 32, 0, (9, 0), 8),  # threads: 2048 / 256
        ((32, 1, 1), 16, 0, (12, 0), 24),  # blocks
        ((256, 1, 1), 255, 0, (12, 0), 1),  # registers: 8 warps of 8192 fill the file
        ((128, 1, 1), 0, 48 << 10, (12, 0), 2),  # shared memory, with the driver's 1 KiB a block
        ((1024, 1, 1), 255, 0, (9, 0), 1),  # it ran, so one fits
        ((0, 0, 0), 32, 0, (9, 0), None),
        ((256, 1, 1), 32, 0, (99, 9), None),
    ],
)
def test_blocks_that_are_resident(
    block: tuple[int, int, int], registers: int, shared: int, compute: tuple[int, int], resident: int | None
) -> None:
    assert blocks_per_sm(block, registers, shared, compute) == resident


def test_waves() -> None:
    assert waves(1024, 1, 188) == pytest.approx(5.45, abs=0.01)
    assert waves(1024, None, 188) is None and waves(0, 1, 188) is None and waves(1, 1, None) is None
