"""Throttled or only flagged: by the SM clock, as the rules of the comparison have it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dsv4bench.clocks import CLOCK_FALL, SLOWED_DOWN, Clock, clocks, flag_notes, max_mhz, throttle_notes
from dsv4bench.compare import integrity, mechanism
from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import GpuInfo, Machine
from dsv4bench.records.request import TokenSource

TOP = 1980.0
CAP = ["sw_power_cap"]


def cell(mhz: float | None, *flags: str, **fields: Any) -> Cell:
    needed = {f.name: None for f in msgspec.structs.fields(Cell) if f.required}
    known = {"cell": "r0-c8-i256", "repeat": 0, "token_source": TokenSource.USAGE, "timestamps": "kernel"}
    return Cell(**{**needed, **known, "gpu_sm_clock_mean_mhz": mhz, "gpu_throttle": list(flags), **fields})


def one(mhz: float | None, *flags: str, top: float | None = TOP) -> Clock:
    (found,) = clocks([("C=8", cell(mhz, *flags), top)])
    return found


def said(*levels: tuple[str, float | None, list[str]], top: float | None = TOP) -> list[str]:
    found = clocks([(where, cell(mhz, *flags), top) for where, mhz, flags in levels])
    return [*throttle_notes(found), *flag_notes(found)]


def test_the_rules_are_those_of_the_comparison() -> None:
    assert CLOCK_FALL == mechanism.CLOCK_FALL
    assert set(SLOWED_DOWN) == set(integrity.SLOWED_DOWN)


@pytest.mark.parametrize(
    ("mhz", "flags", "throttled"),
    [
        (1976.0, ["sw_power_cap"], False),
        (1941.0, ["sw_power_cap"], False),
        (1940.0, ["sw_power_cap"], True),
        (1500.0, [], False),  # locked there, or idle: nothing was flagged
        (1976.0, ["hw_thermal"], True),
        (1976.0, ["sw_power_cap", "hw_power_brake"], True),
        (None, ["sw_thermal"], True),
        (None, ["sw_power_cap"], None),
        (None, [], False),
    ],
)
def test_a_flag_alone_is_no_throttling(mhz: float | None, flags: list[str], throttled: bool | None) -> None:
    assert one(mhz, *flags).throttled is throttled


def test_without_the_gpus_maximum_the_other_levels_tell() -> None:
    assert said(("C=1", 1980, []), ("C=16", 1700, CAP), top=None) == [
        "GPU throttled at C=16: SM clock 1700 MHz of 1980 (sw_power_cap)"
    ]
    assert said(("C=1", 1980, CAP), ("C=16", 1700, CAP), top=None) == [
        "GPU throttled at C=16: SM clock 1700 MHz of 1980 (sw_power_cap)",
        "sw_power_cap was flagged at C=1, SM clock 1980 MHz, and no level without a flag ran as fast: "
        "whether the GPU was throttled is not told",
    ]


@pytest.mark.parametrize("levels", [[("C=1", 1500.0, CAP)], [(f"C={c}", 1400.0, CAP) for c in (1, 4, 16)]])
def test_a_level_is_not_its_own_yardstick(levels: list[tuple[str, float | None, list[str]]]) -> None:
    (line,) = said(*levels, top=None)
    assert line.endswith("no level without a flag ran as fast: whether the GPU was throttled is not told")
    assert " of " not in line and "not slowed" not in line


def test_a_clock_that_is_locked_below_the_maximum_is_not_throttled() -> None:
    levels = [("C=1", 1755.0, []), ("C=4", 1755.0, []), ("C=16", 1754.0, CAP)]
    assert said(*levels) == ["sw_power_cap was flagged at 1 of 3 levels, SM clock 1754 MHz of 1755: not slowed"]
    (line,) = said(("C=1", 1755.0, CAP), ("C=16", 1755.0, CAP))  # all flagged: locked, or held there
    assert line.endswith("is not told")
    (line,) = said(("C=1", 1755.0, CAP), ("C=16", 1700.0, CAP))  # no one clock, so not locked
    assert line.startswith("GPU throttled at C=1, C=16: SM clock 1700 to 1755 MHz of 1980")
    assert said(("C=1", 1980.0, CAP), ("C=16", 1980.0, CAP))[0].endswith("not slowed")


def test_a_level_that_idles_below_the_others_is_no_yardstick() -> None:
    (line,) = said(("C=1", 1200.0, []), ("C=16", 1700.0, CAP))
    assert line == "GPU throttled at C=16: SM clock 1700 MHz of 1980 (sw_power_cap)"
    (line,) = said(("C=1", 1200.0, []), ("C=16", 1700.0, CAP), top=None)
    assert line.endswith("is not told")


def test_flags_that_slowed_nothing_are_one_line() -> None:
    levels = [("C=1", 1980.0, []), ("C=4", 1975.4, CAP), ("C=16", 1977.2, CAP), ("C=32", 1976.0, CAP)]
    line = "sw_power_cap was flagged at 3 of 4 levels, SM clock 1975 to 1977 MHz of 1980: not slowed"
    assert said(*levels) == [line]
    assert said(*levels[:1]) == []


def test_throttled_levels_are_named_and_the_others_counted() -> None:
    assert said(("C=4", 1950, CAP), ("C=16", 1679, CAP), ("C=32", 1763, [*CAP, "sw_thermal"])) == [
        "GPU throttled at C=16, C=32: SM clock 1679 to 1763 MHz of 1980 (sw_power_cap, sw_thermal)",
        "sw_power_cap was flagged at 1 of 3 levels, SM clock 1950 MHz of 1980: not slowed",
    ]
    (line,) = said(("C=4", None, CAP))
    assert line.endswith("no SM clock was recorded: whether the GPU was throttled is not told")


def test_one_launch_of_four_is_seen() -> None:
    cells = [("C=1", cell(1980.0), TOP)]
    cells += [("C=4", cell(mhz, *CAP), TOP) for mhz in (1924.0, 1950.0, 1974.0, 1960.0)]
    found = clocks(cells)
    assert [c.throttled for c in found] == [False, True]
    assert throttle_notes(found) == [
        "GPU throttled at C=4 in 1 of 4 launches: SM clock 1924 MHz of 1980 (sw_power_cap)"
    ]
    repeats = clocks([("C=4", cell(mhz, *CAP, repeat=i), TOP) for i, mhz in enumerate((1924.0, 1980.0))])
    assert "at C=4 in 1 of 2 cells:" in throttle_notes(repeats)[0]


def test_gpus_of_another_maximum_are_kept_apart() -> None:
    found = clocks([("a", cell(1980.0), TOP), ("a", cell(1970.0, *CAP), TOP), ("b", cell(1410.0, *CAP), 1410.0)])
    assert [(c.where, c.top_mhz, c.throttled) for c in found] == [("a", 1980.0, False), ("b", 1410.0, False)]


def test_the_maximum_of_a_machine() -> None:
    known = {f.name: "x" for f in msgspec.structs.fields(Machine) if f.required}
    gpus = [GpuInfo(name="g", sm_clock_max_mhz=mhz) for mhz in (None, 1410, 1980)]
    assert max_mhz(Machine(**{**known, "cores": 1, "memory_bytes": None, "gpus": gpus})) == 1980
    assert max_mhz(Machine(**{**known, "cores": 1, "memory_bytes": None})) is None
    assert max_mhz(None) is None
