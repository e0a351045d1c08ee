"""Was a GPU slowed down while a level was measured? Told by its SM clock, not by NVML's flag of a reason alone.

NVML sets `sw_power_cap` at single samples of a GPU whose clock does not fall: that holds nothing back. Each cell is
judged by itself, since a mean over launches hides one. It is throttled when a flag of heat or hardware was seen; with
another flag, when its mean SM clock is more than 2 % below what the GPU reaches:

    the highest clock of a cell without a flag; a clock that is locked below the maximum is no throttling
    else (all flagged, or those without a flag idle: a flagged one ran over 2 % faster) the maximum that is told
    else the highest clock there is: it tells that others are lower, and nothing of those within 2 % of it

Several levels, all flagged and all at one clock below the maximum, may be locked there: not told. A clock that is low
without a flag is no throttling: it is locked there, or the GPU idles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Machine

CLOCK_FALL = 0.02  # of the clock that it is compared with
CLOCK_STEP_MHZ = 15.0  # NVIDIA's SM clocks are multiples of it: cells this close are at one clock
SLOWED_DOWN = frozenset(("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"))


class CellClock(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. `throttled` is None where something was flagged and the clock, or what it is below, is not told."""

    repeat: int  # of its launch
    flags: list[str]
    mhz: float | None
    throttled: bool | None


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one GPU type. MHz; `top_mhz`: what its cells were compared with; None: nothing is told."""

    where: str
    cells: list[CellClock]
    top_mhz: float | None

    @property
    def flags(self) -> list[str]:
        return sorted({flag for c in self.cells for flag in c.flags})

    @property
    def throttled(self) -> bool | None:
        """Whether any of its cells was. None: none for certain, and of one it is not told."""
        states = [c.throttled for c in self.cells]
        return True if True in states else None if None in states else False


class _Top(NamedTuple):
    """What clocks are compared with. `reached`: whether a clock close to it is known not to be held back."""

    mhz: float | None
    reached: bool


def max_mhz(machine: Machine | None) -> float | None:
    """The highest SM clock of a machine's GPUs, where it is told."""
    gpus = machine.gpus if machine is not None else []
    return max((float(g.sm_clock_max_mhz) for g in gpus if g.sm_clock_max_mhz), default=None)


def clocks(cells: Iterable[tuple[str, Cell, float | None]]) -> list[Clock]:
    """One clock a level, in order: cells as (name of the level, cell, `max_mhz` of its machine).

    Levels with the same maximum are taken to be of one machine.
    """
    levels: dict[tuple[str, float | None], list[Cell]] = {}
    for where, cell, limit in cells:
        levels.setdefault((where, limit), []).append(cell)
    tops = {limit: _top({w: own for (w, at), own in levels.items() if at == limit}, limit) for _, limit in levels}
    return [
        Clock(where=where, cells=[_judged(c, tops[limit]) for c in own], top_mhz=tops[limit].mhz)
        for (where, limit), own in levels.items()
    ]


def throttle_notes(found: Sequence[Clock]) -> list[str]:
    """Which levels were throttled, or may have been; nothing where none was."""
    said = []
    slowed = [c for c in found if c.throttled]
    if slowed:
        names = ", ".join(c.where + _part(c) for c in slowed)
        said.append(f"GPU throttled at {names}: {_range(slowed, True)} ({_flags(slowed, True)})")
    untold = [c for c in found if c.throttled is None]
    for blind in (True, False):
        own = [c for c in untold if blind is any(s.throttled is None and s.mhz is None for s in c.cells)]
        if own:
            why = "and no SM clock was recorded"
            if not blind:
                why = f"{_range(own, None)}, and no level without a flag ran as fast"
            said.append(
                f"{_flags(own, None)} was flagged at {', '.join(c.where for c in own)}, {why}: "
                "whether the GPU was throttled is not told"
            )
    return said


def flag_notes(found: Sequence[Clock]) -> list[str]:
    """Flags that slowed nothing down, in one line."""
    idle = [c for c in found if c.flags and c.throttled is False]
    if not idle:
        return []
    flags, clock = _flags(idle, False), _range(idle, False)
    return [f"{flags} was flagged at {len(idle)} of {len(found)} levels, {clock}: not slowed"]


def _top(levels: dict[str, list[Cell]], limit: float | None) -> _Top:
    every = [c for own in levels.values() for c in own if c.gpu_sm_clock_mean_mhz is not None]
    seen = [mhz for c in every if (mhz := c.gpu_sm_clock_mean_mhz) is not None]
    free = max((c.gpu_sm_clock_mean_mhz or 0.0 for c in every if not c.gpu_throttle), default=0.0)
    highest = max(seen, default=0.0)
    if free and not _below(free, highest):
        return _Top(free, True)
    one_clock = len(levels) > 1 and not free and highest - min(seen, default=0.0) <= CLOCK_STEP_MHZ
    if limit is not None and not (one_clock and _below(highest, limit)):
        return _Top(limit, True)
    return _Top(highest or None, False)


def _judged(c: Cell, top: _Top) -> CellClock:
    mhz, flags = c.gpu_sm_clock_mean_mhz, list(c.gpu_throttle)
    throttled: bool | None = None
    if not flags or not SLOWED_DOWN.isdisjoint(flags):
        throttled = bool(flags)
    elif mhz is not None and top.mhz is not None and (top.reached or _below(mhz, top.mhz)):
        throttled = _below(mhz, top.mhz)
    return CellClock(repeat=c.repeat, flags=flags, mhz=mhz, throttled=throttled)


def _below(mhz: float, top: float) -> bool:
    return mhz < (1 - CLOCK_FALL) * top


def _part(level: Clock) -> str:
    """` in 1 of 4 launches`, where each has one cell; nothing where all its cells were throttled."""
    n = sum(bool(c.throttled) for c in level.cells)
    if n == len(level.cells):
        return ""
    return f" in {n} of {len(level.cells)} " + ("launches" if len({c.repeat for c in level.cells}) == 1 else "cells")


def _of(found: Sequence[Clock], state: bool | None) -> list[CellClock]:
    """The flagged cells of this state."""
    return [c for level in found for c in level.cells if c.flags and c.throttled is state]


def _range(found: Sequence[Clock], state: bool | None) -> str:
    known = sorted(c.mhz for c in _of(found, state) if c.mhz is not None)
    if not known:
        return "SM clock not recorded"
    low, high = f"{known[0]:.0f}", f"{known[-1]:.0f}"
    tops = [] if state is None else sorted({f"{c.top_mhz:.0f}" for c in found if c.top_mhz is not None})
    return f"SM clock {low if low == high else f'{low} to {high}'} MHz" + (f" of {' or '.join(tops)}" if tops else "")


def _flags(found: Sequence[Clock], state: bool | None) -> str:
    return ", ".join(sorted({flag for c in _of(found, state) for flag in c.flags}))
