"""Opens the best way that works here to sample GPUs from outside: CUPTI PM sampling, else NVML's GPM.

Each way that refused is kept with its reason: a user sees why the figures are coarser than they could be, or what to
do when there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dsv4bench.capture.gpm import GpmCounters
from dsv4bench.capture.pm import INTERVAL_US, PmCounters
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.errors import UsageError
from dsv4bench.host import nvml
from dsv4bench.records.trace import DeviceSamples

LEAST_INTERVAL_US = 50.0
BY_NSYS = (
    "a third way, where nsys may read the counters: `nsys profile --gpu-metrics-devices=all` around the server, then "
    "`dsv4bench profile --trace` on its report"
)


class DeviceCounters(Protocol):
    """`start`, `stop`, again and again; `close` in every case."""

    method: str
    gpus: list[int]
    metrics: list[str]
    chip: str
    ended: str | None
    said: list[str]

    def start(self) -> None: ...

    def stop(self) -> list[DeviceSamples]: ...

    def close(self) -> None: ...


class Opened:
    """The counters, the capability of their first GPU, and what a reader of the figures must know of the choice."""

    def __init__(self, counters: DeviceCounters, compute: tuple[int, int] | None, notes: list[str]) -> None:
        self.counters, self.compute, self.notes = counters, compute, notes


def open_counters(gpus: Sequence[int] | None = None, interval_us: float = INTERVAL_US) -> Opened:
    """Counters of these GPUs (NVML's order); None: those with a compute process, else all.

    Raises UsageError when no way works; its hint is the remedy of the first.
    """
    if interval_us < LEAST_INTERVAL_US:
        raise UsageError(
            f"{interval_us:g} µs between samples is too little", f"{LEAST_INTERVAL_US:g} µs is the least"
        )
    chosen, notes = _gpus(gpus)
    compute = nvml.compute_capability(chosen[0])
    try:
        return Opened(PmCounters(chosen, interval_us), compute, notes)
    except CountersRefused as first:
        try:
            gpm = GpmCounters(chosen)
        except CountersRefused as second:
            raise UsageError(
                f"the GPU's counters cannot be sampled: {first.message}; {second.message}",
                "; ".join(filter(None, [first.hint or second.hint, BY_NSYS])),
            ) from None
        remedy = f" ({first.hint})" if first.hint else ""
        return Opened(gpm, compute, [*notes, f"{first.message}{remedy}: sampled by {gpm.method} instead"])


def _gpus(gpus: Sequence[int] | None) -> tuple[list[int], list[str]]:
    if gpus is not None:
        if not gpus:
            raise UsageError("no GPU was named", "leave the option out for those in use")
        known = nvml.gpus_in_use()
        lacking = [g for g in gpus if not isinstance(known, str) and g not in known[1]]
        if lacking:
            there = ", ".join(map(str, known[1]))
            raise UsageError(f"there is no GPU {', '.join(map(str, lacking))} here", f"nvidia-smi's numbers: {there}")
        return list(dict.fromkeys(gpus)), []
    found = nvml.gpus_in_use()
    if isinstance(found, str):
        raise UsageError(
            f"the GPU's counters cannot be sampled: {found}",
            "run this on the server's own host; see `dsv4bench doctor`",
        )
    used, every = found
    if used:
        return used, []
    return every, ["NVML names no process on any GPU: all of them were sampled"] if len(every) > 1 else []
