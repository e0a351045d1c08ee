"""Was a GPU slowed down while a level was measured? Told by its SM clock, not by NVML's flag of a reason alone.

NVML sets `sw_power_cap` at single samples of a GPU whose clock does not fall: that holds nothing back. A level is
throttled when a flag of heat or hardware was seen, or when another flag was seen and the SM clock, on the average of
the level, is more than 2 % below the highest there is: that of the other levels, or the GPU's own maximum. A clock
that is low without a flag is none: it is locked there, or the GPU idles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Machine

CLOCK_FALL = 0.02  # as `compare.mechanism` has it; the flags below as `compare.integrity` has them
SLOWED_DOWN = frozenset(("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"))


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one GPU type, over its cells. MHz; None: not recorded. `top_mhz`: the highest that there is."""

    where: str
    flags: list[str]
    mean_mhz: float | None
    top_mhz: float | None

    @property
    def throttled(self) -> bool | None:
        """None: something was flagged, and the clock was not recorded."""
        if not self.flags or not SLOWED_DOWN.isdisjoint(self.flags):
            return bool(self.flags)
        if self.mean_mhz is None or self.top_mhz is None:
            return None
        return self.mean_mhz < (1 - CLOCK_FALL) * self.top_mhz


def max_mhz(machine: Machine | None) -> float | None:
    """The highest SM clock of a machine's GPUs, where it is told."""
    gpus = machine.gpus if machine is not None else []
    return max((float(g.sm_clock_max_mhz) for g in gpus if g.sm_clock_max_mhz), default=None)


def clocks(cells: Iterable[tuple[str, Cell, float | None]]) -> list[Clock]:
    """One clock a level, in order: cells as (name of the level, cell, `max_mhz` of its machine)."""
    levels: dict[tuple[str, float | None], list[Cell]] = {}
    for where, cell, limit in cells:
        levels.setdefault((where, limit), []).append(cell)
    means = {key: _mean(found) for key, found in levels.items()}
    found = []
    for (where, limit), own in levels.items():
        others = [mhz for (_, at), mhz in means.items() if at == limit and mhz is not None]
        flags = sorted({flag for c in own for flag in c.gpu_throttle})
        top = max([*others, *([limit] if limit is not None else [])], default=None)
        found.append(Clock(where=where, flags=flags, mean_mhz=means[where, limit], top_mhz=top))
    return found


def throttle_notes(found: Sequence[Clock]) -> list[str]:
    """Which levels were throttled, or may have been; nothing where none was."""
    said = []
    slowed = [c for c in found if c.throttled]
    if slowed:
        said.append(f"GPU throttled at {', '.join(c.where for c in slowed)}: {_range(slowed)} ({_flags(slowed)})")
    untold = [c for c in found if c.throttled is None]
    if untold:
        said.append(
            f"{_flags(untold)} was flagged at {', '.join(c.where for c in untold)}, and no SM clock was recorded: "
            "whether the GPU was throttled is not told"
        )
    return said


def flag_notes(found: Sequence[Clock]) -> list[str]:
    """Flags that slowed nothing down, in one line."""
    idle = [c for c in found if c.flags and c.throttled is False]
    if not idle:
        return []
    return [f"{_flags(idle)} was flagged at {len(idle)} of {len(found)} levels, {_range(idle)}: not slowed"]


def _mean(cells: Sequence[Cell]) -> float | None:
    known = [c.gpu_sm_clock_mean_mhz for c in cells if c.gpu_sm_clock_mean_mhz is not None]
    return fmean(known) if known else None


def _range(found: Sequence[Clock]) -> str:
    known = [f"{c.mean_mhz:.0f}" for c in sorted(found, key=lambda c: c.mean_mhz or 0) if c.mean_mhz is not None]
    if not known:
        return "SM clock not recorded"
    tops = sorted({f"{c.top_mhz:.0f}" for c in found if c.top_mhz is not None})
    low, high = known[0], known[-1]
    return f"SM clock {low if low == high else f'{low} to {high}'} MHz of {' or '.join(tops)}"


def _flags(found: Sequence[Clock]) -> str:
    return ", ".join(sorted({flag for c in found for flag in c.flags}))
