"""How much of the GPU can a launch fill? SM coverage and waves, from the grid; upper bounds both.

    coverage = Σ over time of min(blocks of the kernels running, SMs) / SMs, over the time in which a grid is known

An upper bound: a block is taken to have an SM to itself. It is worth nothing without the share of kernel time that
has a grid (graph nodes often have none), so both are given together. `waves` divides the grid by what is resident at
once, from registers, threads and shared memory; None for a chip whose limits are not in the table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench import gpus
from dsv4bench.records.trace import DeviceFacts

Ints = npt.NDArray[np.int64]

# Per SM, by compute capability: threads, blocks, shared bytes that blocks can take, and bytes the driver keeps a
# block. CUDA programming guide, "Technical Specifications per Compute Capability".
_LIMITS: dict[tuple[int, int], tuple[int, int, int, int]] = {
    (7, 0): (2048, 32, 96 << 10, 0),
    (7, 5): (1024, 16, 64 << 10, 0),
    (8, 0): (2048, 32, 164 << 10, 1024),
    (8, 6): (1536, 16, 100 << 10, 1024),
    (8, 7): (1536, 16, 164 << 10, 1024),
    (8, 9): (1536, 24, 100 << 10, 1024),
    (9, 0): (2048, 32, 228 << 10, 1024),
    (10, 0): (2048, 32, 228 << 10, 1024),
    (10, 3): (2048, 32, 228 << 10, 1024),
    (12, 0): (1536, 24, 100 << 10, 1024),
    (12, 1): (1536, 24, 100 << 10, 1024),
}
SLICES = 1 << 18  # slices of time that are worked on at once
_REGISTERS = 65536
_REGISTER_UNIT = 256  # a warp's registers are given in units of this
_WARP = 32


def sm_count(facts: DeviceFacts | None) -> int | None:
    """The device's SMs: as its file tells, else by its name."""
    if facts is None:
        return None
    if facts.sms:
        return facts.sms
    known = gpus.find(facts.name) if facts.name else None
    return None if known is None else known.sms


def blocks(grid: npt.NDArray[np.int32]) -> Ints:
    """Blocks of each launch; 0 where the grid is unknown."""
    product: Ints = grid[:, 0].astype(np.int64)
    product *= grid[:, 1]
    product *= grid[:, 2]
    return product


def coverage(start: Ints, end: Ints, count: Ints, sms: int | None) -> tuple[float | None, float | None]:
    """(SM coverage, share of kernel time with a known grid) of kernels with `count` blocks each."""
    length = np.maximum(end - start, 0)
    whole = int(length.sum())
    known = (count > 0) & (length > 0)
    share = None if whole == 0 else int(length[known].sum()) / whole
    if not sms or not known.any():
        return None, share
    if not known.all():
        start, end, count = start[known], end[known], count[known]
    del length, known
    order = np.argsort(np.concatenate([start, end]), kind="stable")
    filled: list[npt.NDArray[np.float64]] = []
    busy_ns = resident = running = 0
    for first in range(0, len(order) - 1, SLICES):
        event = order[first : first + SLICES + 1]
        begins = event < len(start)
        kernel = np.where(begins, event, event - len(start))
        slices = np.diff(np.where(begins, start[kernel], end[kernel]))
        begins, kernel = begins[:-1], kernel[:-1]
        there = resident + np.cumsum(np.where(begins, count[kernel], -count[kernel]))
        alive = running + np.cumsum(np.where(begins, 1, -1))
        resident, running = int(there[-1]), int(alive[-1])
        busy = alive > 0
        filled.append(np.minimum(there[busy], sms) * (slices[busy] / sms))
        busy_ns += int(slices[busy].sum())
    return float(np.concatenate(filled).sum() / busy_ns), share


def blocks_per_sm(
    block: tuple[int, int, int], registers: int, shared_bytes: int, compute: tuple[int, int] | None
) -> int | None:
    """Blocks resident on one SM; None for an unknown chip or block."""
    threads = block[0] * block[1] * block[2]
    if compute not in _LIMITS or threads <= 0:
        return None
    max_threads, max_blocks, shared, kept = _LIMITS[compute]
    warps = -(-threads // _WARP)
    fits = [max_blocks, (max_threads // _WARP) // warps]
    if registers > 0:
        a_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        fits.append(_REGISTERS // a_warp // warps)
    if shared_bytes > 0:
        fits.append(shared // (shared_bytes + kept))
    return max(1, min(fits))


def waves(blocks_launched: int, resident: int | None, sms: int | None) -> float | None:
    """Grid over what the device holds at once: below 1 leaves SMs empty, just above 1 leaves a tail."""
    return None if not resident or not sms or blocks_launched <= 0 else blocks_launched / (resident * sms)
