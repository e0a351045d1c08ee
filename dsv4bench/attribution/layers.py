"""Layers within a decode step: the period of its kernel sequence, and how often it comes round.

The order of kernels in a step is stable. Layers need not be alike (window-only, 4:1 and 128:1 attention alternate in
DeepSeek-V4), so the number of layers is the count that most kernels of the layers share in a step, not the number of
periods; the period shows that there are layers to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LONGEST = 20_000  # kernels of a step that are looked at
HALF = 0.5  # share of the step that must repeat itself without a break
LAYERED = ("moe", "router", "attention", "indexer", "compressor", "kv_write", "dense", "mhc")


def period(sequence: Ints) -> int | None:
    """The smallest lag at which a run of kernels over HALF of the sequence equals itself; None when there is none.

    The run counts both of its copies, so that it holds two periods at least. What comes before the layers (embedding)
    and after them (the head, sampling) need not repeat. A constant sequence has the period 1.
    """
    sequence = sequence[:LONGEST]
    n = len(sequence)
    for lag in range(1, n // 2 + 1):
        broken = np.flatnonzero(sequence[lag:] != sequence[:-lag])
        runs = np.diff(broken, prepend=-1, append=n - lag) - 1
        longest = int(runs.max())
        if longest >= lag and longest + lag >= HALF * n:
            return lag
    return None


def layer_count(counts: Sequence[tuple[str, float]]) -> int | None:
    """Layers of a model from (component, launches in a median step) of each kernel name of a step.

    The most common count above 1 among kernels of LAYERED components; at least two must share it, the larger wins a
    tie. None where nothing repeats.
    """
    whole = Counter(
        round(n) for component, n in counts if component in LAYERED and n >= 1.5 and abs(n - round(n)) < 0.05
    )
    shared = [(names, count) for count, names in whole.items() if names >= 2]
    return max(shared)[1] if shared else None
