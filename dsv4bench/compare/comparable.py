"""May these be compared at all? Names every key that differs, with both values, before any statistics.

Arms: every workload key that both sides tell must be equal, and so must the hardware, unless the user compares across
hardware on purpose. Coordinates: what was realised must agree, ISL and OSL within 2 %, the prefix-cache hit rate
within 1 point; metrics of chunks also need equal tokens per chunk (5 %) and acceptance length (3 %). What one side
does not tell is said in a note, never taken as equal. Whether the servers' settings differ by the lever alone is for
`levers.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

import msgspec

from dsv4bench.compare.samples import Coordinate, place
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

# Coordinates, fresh randomness and what one server's dialect needed: two results may differ in these.
NOT_WORKLOAD = frozenset(
    {"seed", "isl", "concurrency", "rate_req_s", "requests", "duration_s", "repeat", "sent_fields", "vocab_source"}
)
# Which specimen it was, and the client's software: no property of the speed.
NOT_HARDWARE = frozenset(
    {"hostname", "hostname_sha256", "uuid", "serial", "pci", "os", "kernel", "python", "memory_bytes"}
)
LENGTH_TOLERANCE = 0.02
CHUNK_TOLERANCE = 0.05
ACCEPT_TOLERANCE = 0.03
HIT_TOLERANCE = 0.01
LEAST_WORKLOAD = ("model", "endpoint", "dataset")  # without these the comparison is said to rest on trust


class Comparability(msgspec.Struct, frozen=True, kw_only=True):
    """`differing` (key -> [base, new]) forbids a comparison; `notes` limit what it may claim."""

    differing: dict[str, list[Plain]] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.differing

    def why(self) -> str:
        return "; ".join(f"{key}: {pair[0]} vs {pair[1]}" for key, pair in self.differing.items())


def comparable(base: Arm, new: Arm, *, across_hardware: bool = False) -> Comparability:
    """Workload and hardware of two arms. Across hardware the difference moves from `differing` to the notes."""
    differing, untold = _differing(base.workload, new.workload, NOT_WORKLOAD)
    untold += [key for key in LEAST_WORKLOAD if base.workload.get(key) is None and new.workload.get(key) is None]
    notes = [f"workload not told by both sides: {', '.join(untold)}"] if untold else []
    machines, unknown = _hardware(base, new)
    notes += unknown
    if across_hardware and machines:
        notes.append(f"across hardware: {Comparability(differing=machines).why()}")
    else:
        differing |= machines
    notes += [f"{arm.name} is not complete" for arm in (base, new) if not arm.complete]
    return Comparability(differing=differing, notes=notes)


def _differing(
    base: Mapping[str, Plain], new: Mapping[str, Plain], ignored: frozenset[str]
) -> tuple[dict[str, list[Plain]], list[str]]:
    """(keys that differ, keys that one side does not tell)."""
    differing: dict[str, list[Plain]] = {}
    untold: list[str] = []
    for key in sorted((base.keys() | new.keys()) - ignored):
        a, b = base.get(key), new.get(key)
        if a is None and b is None:
            continue
        if a is None or b is None:
            untold.append(key)
        elif a != b:
            differing[key] = [a, b]
    return differing, untold


def _hardware(base: Arm, new: Arm) -> tuple[dict[str, list[Plain]], list[str]]:
    silent = [arm.name for arm in (base, new) if not any(v is not None for v in (arm.hardware or {}).values())]
    if silent:
        return {}, [f"hardware not told by {silent[0] if len(silent) == 1 else 'either side'}"]
    differing, untold = _differing(_majors(base.hardware or {}), _majors(new.hardware or {}), NOT_HARDWARE)
    return differing, [f"hardware not told by both sides: {', '.join(untold)}"] if untold else []


def _majors(hardware: Mapping[str, Plain]) -> dict[str, Plain]:
    """A driver's branch is what changes speed; its patch level is not."""
    driver = hardware.get("driver")
    return {**hardware, "driver": driver.split(".")[0]} if isinstance(driver, str) else dict(hardware)


class Realised(msgspec.Struct, frozen=True, kw_only=True):
    """What the valid levels at one coordinate turned out to be: means over cells, None where none tells."""

    isl_mean: float | None
    osl_mean: float | None
    tokens_per_chunk: float | None
    accept_length: float | None
    prefix_hit_frac: float | None


def realised(cells: Iterable[Cell]) -> dict[Coordinate, Realised]:
    by_place: dict[Coordinate, list[Cell]] = {}
    for cell in cells:
        if cell.invalid is None:
            by_place.setdefault(place(cell), []).append(cell)
    return {at: _realised(there) for at, there in by_place.items()}


def _realised(cells: list[Cell]) -> Realised:
    counted = [c for c in cells if c.token_source is TokenSource.USAGE]
    return Realised(
        isl_mean=_mean([c.isl_mean for c in cells]),
        osl_mean=_mean([c.osl_mean for c in counted]),
        tokens_per_chunk=_mean([c.tokens_per_chunk for c in counted]),
        accept_length=_mean([c.accept_length for c in cells]),
        prefix_hit_frac=_mean([c.prefix_hit_frac for c in cells]),
    )


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def comparable_at(base: Realised, new: Realised, metric: str) -> Comparability:
    """Two coordinates, for one metric."""
    limits = {"isl_mean": LENGTH_TOLERANCE, "osl_mean": LENGTH_TOLERANCE, "prefix_hit_frac": HIT_TOLERANCE}
    if metric.startswith("icl_"):
        limits |= {"tokens_per_chunk": CHUNK_TOLERANCE, "accept_length": ACCEPT_TOLERANCE}
    differing: dict[str, list[Plain]] = {}
    untold: list[str] = []
    for key, limit in limits.items():
        a, b = getattr(base, key), getattr(new, key)
        if a is None or b is None:
            if a is not b or key == "tokens_per_chunk":  # without it an ICL says nothing
                untold.append(key)
        elif not abs(b - a) <= limit * (1.0 if key == "prefix_hit_frac" else a):
            differing[key] = [round(a, 4), round(b, 4)]
    return Comparability(
        differing=differing, notes=[f"not told by both sides: {', '.join(untold)}"] if untold else []
    )
