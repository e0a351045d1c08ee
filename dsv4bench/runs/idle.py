"""How long the GPU idles in a decode step, by the stored breakdowns of what is compared: is the host the limit?

Only breakdowns of the arm's own experiments count, the newest first; of one GPU (of several, those that wait for a
host-bound one are busy in a collective); with a step that recording did not lengthen by more than a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4bench.compare.scaling import Idle
from dsv4bench.records.arm import Arm
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.runs.tried import first_breakdowns

INFLATION = 1.10


def idle_of(root: Path | str, arms: Sequence[Arm]) -> Idle:
    """By configuration, ISL and concurrency; what cannot be read is left out."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    for arm in arms:
        for _, b in first_breakdowns((Path(root) / i for i in reversed(arm.ids)), []):
            part = _part(b)
            if part is not None and b.isl is not None and b.concurrency is not None and b.config == arm.name:
                found.setdefault(arm.name, {}).setdefault(b.isl, {})[b.concurrency] = part
    return found


def _part(b: BreakdownDocument) -> float | None:
    if b.steps is None or not b.steps.median_ns or b.steps.idle_median_ns is None or len(b.devices) != 1:
        return None
    if any((c.inflation_ratio or 1.0) > INFLATION for c in b.captures):
        return None
    return b.steps.idle_median_ns / b.steps.median_ns
