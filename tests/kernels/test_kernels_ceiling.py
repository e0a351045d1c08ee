"""The read ceiling: which sizes are measured, what lies between them, and how data is rotated. No GPU."""

from __future__ import annotations

import itertools

import pytest

from dsv4bench.kernels.ceiling import MB, SIZES_MB, copies, launch_s, sizes_around

COLD = {"8": 2000.0, "80": 4000.0, "320": 4400.0}  # 4 µs, 20 µs, 72.7 µs


def test_only_the_neighbours_of_the_floors_are_measured() -> None:
    assert sizes_around([100e6]) == [80.0, 320.0]
    assert sizes_around([100e6, 0.5e6]) == [0.25, 1.0, 80.0, 320.0]
    assert sizes_around([80e6]) == [27.0, 80.0]  # the size itself, and one below it
    assert sizes_around([0.01e6]) == [0.25]
    assert sizes_around([9000e6]) == [3000.0]
    assert sizes_around([]) == []


@pytest.mark.parametrize("floor_mb", [0.5, 27.0, 80.2, 1069.5, 2687.2])
def test_the_floors_of_the_benchmark_lie_between_measured_sizes(floor_mb: float) -> None:
    low, high = sizes_around([floor_mb * MB])
    assert low < floor_mb <= high and low in SIZES_MB


def test_time_is_linear_between_measured_sizes() -> None:
    assert launch_s(8e6, COLD) == pytest.approx(4e-6)
    assert launch_s(80e6, COLD) == pytest.approx(20e-6)
    assert launch_s(44e6, COLD) == pytest.approx(12e-6)
    assert launch_s(320e6, COLD) == pytest.approx(320e6 / 4400e9)


@pytest.mark.parametrize("size", [7.9e6, 321e6])
def test_nothing_is_claimed_outside_of_them(size: float) -> None:
    assert launch_s(size, COLD) is None
    assert launch_s(size, {}) is None


def test_a_longer_read_never_takes_less_time() -> None:
    times = [launch_s(mb * 1e6, COLD) for mb in range(8, 320)]
    assert all(a is not None and b is not None and a < b for a, b in itertools.pairwise(times))


def test_small_reads_rotate_through_three_caches() -> None:
    l2, buffer = 60 * 2**20, 4 * 2**30
    assert copies(0.25e6, buffer, l2) == 400  # 755 would be wanted
    assert copies(8e6, buffer, l2) == 24
    assert copies(2700e6, buffer, l2) == 1  # a second one does not fit
    assert copies(1074e6, buffer, l2) == 2
