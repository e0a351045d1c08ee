"""The GPUs' counters in a sweep's table: columns of tensor pipe, SMs and DRAM, and under it what they rest on.

Percentages are of elapsed cycles; the metric's whole name is printed once, since it carries the denominator.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from dsv4bench.records.cell import Cell
from dsv4bench.records.device import DeviceActivity, Share

LOW_SM = 0.5
HFMA2_ON_TENSOR_PIPE = {"8.0": "sm_80", "9.0": "sm_90"}
DASH = "–"

Pick = Callable[[Cell], float | None]
Label = Callable[[Cell], str]


def picks() -> list[tuple[str, Pick]]:
    """Heads of two lines, and the fraction that stands below."""
    return [
        ("tensor pipe %\nmean", lambda c: c.tensor_pipe_frac),
        ("\np50", _of_tensor(lambda s: s.p50_frac)),
        ("\np99", _of_tensor(lambda s: s.p99_frac)),
        ("SM %\nmean", lambda c: c.sm_active_frac),
        ("DRAM %\nmean", lambda c: c.dram_frac),
    ]


def percent(values: Sequence[float]) -> str:
    """The median of fractions as percent, without the sign that stands in the head; a dash for none."""
    if not values:
        return DASH
    value = 100 * statistics.median(values)
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def level_notes(group: Sequence[Cell]) -> list[str]:
    """What a reader must know of the figures of one level."""
    found = []
    for device in (c.device for c in group if c.device is not None):
        if device.n_dropped:
            found.append(f"{device.n_dropped} of {device.n_samples + device.n_dropped} counter samples dropped")
        if device.window == "level":
            found.append("no steady window: counters are over the whole level")
    low = [c.sm_active_frac for c in group if c.sm_active_frac is not None and c.sm_active_frac < LOW_SM]
    if low:
        found.append(
            f"SMs active {percent(low)} %: idle between kernels, or kernels on few SMs, so a low tensor pipe says "
            "little of the kernels"
        )
    return found


def lines(cells: Sequence[Cell], label: Label) -> list[str]:
    """Method, metrics and caveats, once under the table; nothing where nothing was sampled."""
    devices = [c.device for c in cells if c.device is not None]
    if not devices:
        return []
    found = [*dict.fromkeys(_method(d) for d in devices), *_hfma2(cells, label)]
    return [*found, *dict.fromkeys(note for d in devices for note in d.notes)]


def _method(d: DeviceActivity) -> str:
    every = f"{1e3 * d.interval_s:.3g} ms"
    gpus = ", ".join(map(str, d.gpus))
    names = ", ".join(s.metric for s in (d.tensor_pipe, d.sm, d.dram) if s is not None)
    where = (
        "the steady window (prefills of the requests that follow are inside)" if d.window == "steady" else "the level"
    )
    return (
        f"tensor pipe, SM, DRAM: % of elapsed cycles over {where}; {d.method}, samples of {every}, "
        f"GPU {gpus}: {names or 'no metric'}"
    )


def _hfma2(cells: Sequence[Cell], label: Label) -> list[str]:
    on = [c for c in cells if c.device is not None and c.device.compute in HFMA2_ON_TENSOR_PIPE]
    if not on:
        return []
    assert on[0].device is not None and on[0].device.compute is not None
    said = (
        f"on {HFMA2_ON_TENSOR_PIPE[on[0].device.compute]} packed half arithmetic (HFMA2) runs on the tensor pipe, too"
    )
    apart: dict[str, list[float]] = {}
    for c in on:
        assert c.device is not None
        if c.device.tensor_mma is not None:
            apart.setdefault(label(c), []).append(c.device.tensor_mma.mean_frac)
    if not apart:
        return [f"{said}: about 1 % may be without a single matrix instruction"]
    told = ", ".join(f"{at} {percent(values)} %" for at, values in apart.items())
    return [f"{said}; matrix instructions alone: {told}"]


def _of_tensor(part: Callable[[Share], float]) -> Pick:
    def pick(c: Cell) -> float | None:
        share = c.device.tensor_pipe if c.device is not None else None
        return None if share is None else part(share)

    return pick
