"""Which launches of two arms are pairs: the same block in both, and one block over before the next began.

A block number alone is a label. Launches that were not measured in turn share no drift, so blocks that overlap in
time are not taken for pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from dsv4bench.compare.gate import MIN_PAIRS, direction
from dsv4bench.compare.levels import by_launch, span
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell


def blocks_of(base: Arm, new: Arm) -> tuple[list[int], str | None]:
    """The blocks that are pairs, when there are enough of them; else none, and why (None: nobody named a block)."""
    both = sorted(_blocks(base) & _blocks(new))
    if len(both) < MIN_PAIRS:
        return [], f"{len(both)} pairs of launches, the paired mode needs {MIN_PAIRS}" if both else None
    spans = [span([c for c in (*base.cells, *new.cells) if c.block == b]) for b in both]
    known = [s for s in spans if s is not None]
    if len(known) < len(spans):
        return [], "the launches do not say when they were measured: they are not taken for pairs"
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(sorted(known))):
        return [], "the blocks overlap in time: their launches were not measured in turn and are not taken for pairs"
    return both, None


def differences(base: Sequence[Cell], new: Sequence[Cell], metric: str, blocks: Sequence[int]) -> list[float]:
    """θ of each block at one level: the difference of the launches' mean logarithms, + = better."""
    return [direction(metric) * (_mean_log(new, metric, b) - _mean_log(base, metric, b)) for b in blocks]


def _blocks(arm: Arm) -> set[int]:
    return {c.block for c in arm.cells if c.block is not None}


def _mean_log(cells: Iterable[Cell], metric: str, block: int) -> float:
    launches = by_launch(c for c in cells if c.block == block)
    return fmean(fmean(math.log(getattr(c, metric)) for c in runs) for runs in launches.values())
