"""Known faults put into sound arms: what a gate must see before anything it says is believed.

A speed factor changes the times and the throughput of a cell together, as a slower server would, so that the cell
stays sound in itself (tokens over time, Little's law) and only the statistics can object.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from dsv4bench.compare.levels import by_launch, by_level
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

SLOWER = (
    *("output_tok_s", "output_tok_s_steady", "full_load_tok_s", "total_tok_s", "request_s", "tok_s_per_user"),
    "goodput_req_s",
)
TIMES = ("ttft", "ttfc", "tpot", "ntpot", "icl", "e2e", "duration", "steady")
START = datetime(2026, 1, 5, tzinfo=UTC)
OSL, ISL = 256, 1024
SIGMA_LAUNCH, SIGMA_RUN = 0.010, 0.006

Change = Callable[[Cell], Cell]


def sample_arm(name: str, seed: int, *, blocks: int = 0, repeats: int = 5, late_min: int = 0) -> Arm:
    """A sound arm at C = 1, 8, 16: one launch of `repeats` runs, or one run a block. Noise: 1 % launch, 0.6 % run."""
    rng = random.Random(seed)
    cells: list[Cell] = []
    for launch in range(blocks or 1):
        of_launch, block = rng.gauss(0, SIGMA_LAUNCH), launch if blocks else None
        for repeat in range(1 if blocks else repeats):
            speed = math.exp(of_launch + rng.gauss(0, SIGMA_RUN))
            began = START + timedelta(minutes=60 * launch + 6 * repeat + late_min)
            cells += [_sample(c, f"{name} L{launch}", repeat, speed, began, block) for c in (1, 8, 16)]
    return Arm(name=name, ids=[f"sample-{name}"], source="dsv4bench", cells=cells, workload={"model": "sample"})


def changed(arm: Arm, change: Change) -> Arm:
    """Every cell changed."""
    return msgspec.structs.replace(arm, cells=[change(c) for c in arm.cells])


def slowed(factor: float) -> Change:
    """1.07 makes every time 7 % longer and the throughput to match."""

    def change(c: Cell) -> Cell:
        fields = {f: v / factor for f in SLOWER if (v := getattr(c, f)) is not None}
        times = {f: v * factor for f in c.__struct_fields__ if _is_time(f) and (v := getattr(c, f)) is not None}
        return msgspec.structs.replace(c, **fields, **times)

    return change


def capped(c: Cell) -> Cell:
    """A batch cap: throughput −28 %, TPOT −60 %, the wait goes into TTFT."""
    slower = slowed(1 / 0.72)(c)
    if slower.tpot_p50_s is None or slower.e2e_mean_s is None:
        return slower
    tpot = 0.4 * (c.tpot_p50_s or slower.tpot_p50_s)
    ttft = slower.e2e_mean_s - tpot * ((c.osl_mean or OSL) - 1)
    return msgspec.structs.replace(slower, tpot_p50_s=tpot, ttft_p50_s=ttft)


def with_nan(arm: Arm) -> Arm:
    return changed_one(arm, lambda c: msgspec.structs.replace(c, tpot_p50_s=math.nan))


def with_few_requests(c: Cell) -> Cell:
    """Two requests, all else as it was."""
    return msgspec.structs.replace(c, n_sent=2, n_ok=2)


def all_failed(c: Cell) -> Cell:
    return msgspec.structs.replace(c, n_ok=0, n_err=c.n_sent, errors={"refused": c.n_sent})


def without_a_level(arm: Arm) -> Arm:
    gone = list(by_level(arm.cells))[-1]
    kept = [c for c in arm.cells if (c.concurrency, c.rate_req_s, c.isl) != gone]
    return msgspec.structs.replace(arm, cells=kept)


def changed_one(arm: Arm, change: Change) -> Arm:
    """Its last cell only."""
    return msgspec.structs.replace(arm, cells=[*arm.cells[:-1], change(arm.cells[-1])])


def paired_from(arm: Arm) -> tuple[Arm, Arm]:
    """Two arms of as many blocks as a stored arm has runs of each level; the second arm's runs are one further on.

    What they differ in is the rig's own noise from run to run: an A/A of launches that never were.
    """
    base: list[Cell] = []
    new: list[Cell] = []
    for runs in by_level(arm.cells).values():
        for block, (a, b) in enumerate(zip(runs, [*runs[1:], runs[0]], strict=True)):
            base.append(_in_block(a, block, 0))
            new.append(_in_block(b, block, 20))
    return msgspec.structs.replace(arm, cells=base), _copy(arm, new)


def again(arm: Arm) -> Arm:
    """The same runs in another order, under ids of their own: an A/A."""
    cells: list[Cell] = []
    for launch in by_launch(arm.cells).values():
        for runs in by_level(launch).values():
            for c, moved in zip(runs, [*runs[1:], runs[0]], strict=True):
                cells.append(msgspec.structs.replace(moved, repeat=c.repeat, cell=c.cell))
    return _copy(arm, cells)


def _copy(arm: Arm, cells: list[Cell]) -> Arm:
    ids = [f"injected {i}" for i in arm.ids]
    return msgspec.structs.replace(arm, name="injected", ids=ids, cells=cells, levers=[])


def _in_block(c: Cell, block: int, late_min: int) -> Cell:
    began = (START + timedelta(hours=block, minutes=late_min)).isoformat()
    return msgspec.structs.replace(c, launch=f"block {block}", block=block, repeat=0, started_utc=began)


def _is_time(field: str) -> bool:
    return field == "full_load_tpot_mean_s" or (field.endswith("_s") and field.split("_")[0] in TIMES)


def _sample(c: int, launch: str, repeat: int, speed: float, began: datetime, block: int | None) -> Cell:
    """A server of 40 ms + 0.5 ms a sequence a step; three waves of C requests, 16 at least."""
    n = max(3 * c, 16)
    tpot, ttft = (0.040 + 0.0005 * c) / speed, (0.20 + 0.01 * c) / speed
    e2e = ttft + tpot * (OSL - 1)
    duration = n / c * e2e
    values: Mapping[str, object] = {
        **dict.fromkeys(f.name for f in msgspec.structs.fields(Cell) if f.required),
        "cell": f"r{repeat}-c{c}-i{ISL}",
        "launch": launch,
        "repeat": repeat,
        "concurrency": c,
        "isl": ISL,
        "osl": OSL,
        "started_utc": began.isoformat(),
        "duration_s": duration,
        "n_sent": n,
        "n_ok": n,
        "n_err": 0,
        "token_source": TokenSource.USAGE,
        "output_tokens": n * OSL,
        "isl_mean": float(ISL),
        "osl_mean": float(OSL),
        "output_tok_s": n * OSL / duration,
        "request_s": n / duration,
        "ttft_p50_s": ttft,
        "tpot_p50_s": tpot,
        "e2e_mean_s": e2e,
        "e2e_p99_s": e2e,
        "peak_in_flight": c,
        "timestamps": "kernel",
        "n_workers": 1,
        "block": block,
    }
    return msgspec.convert(values, Cell)
