"""How a sparse decode is cut into programs: heads, rows and splits a program, from static sizes alone.

The grid of a captured graph cannot follow the lengths, so the split count comes from the batch, the heads, the
entries and the number of SMs; a program beyond the valid length ends at once. Which cut is best was measured on an
H200 (see docs/kernels_attention_notes.md). Nothing here imports torch or triton.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_SPLITS = 128  # what the combining kernel can hold
GRAIN = 16  # rows: a split of a short request is a multiple of it


@dataclass(frozen=True, slots=True)
class Plan:
    """One cut. Grid of the split kernel: (splits, head tiles * halves, B)."""

    splits: int
    heads: int  # of one program's tile
    rows: int  # of one program's tile, decoded once for all its heads
    halves: int  # 2: a program computes 256 of the 512 output lanes, and two programs decode the same rows
    warps: int = 8
    ahead: bool = False  # the next tile's rows are read while this one is computed with
    wgmma: bool = True

    @property
    def combine_warps(self) -> int:
        return 4 if self.splits > 4 else 2 if self.splits > 2 else 1


def plan(batch: int, heads: int, entries: int, sms: int, sm: int = 90) -> Plan:
    """`entries`: both top-k together. `sm`: 90 for sm_90, whose wgmma needs 64 heads a tile (fewer are padded)."""
    if sm != 90:
        return _without_wgmma(batch, heads, entries, sms)
    groups = batch * _parts(heads, 64)
    for rows in (32, 64):
        splits = _parts(entries, rows)
        if 2 * groups * splits <= sms and splits <= MOST_SPLITS:
            return Plan(splits=splits, heads=64, rows=rows, halves=2)
    tiles = _parts(entries, 64)
    splits, each = _split(tiles, sms // groups)
    return Plan(splits=splits, heads=64, rows=64, halves=1, ahead=each > 1)


def _without_wgmma(batch: int, heads: int, entries: int, sms: int) -> Plan:
    """Tiles that mma.sync takes within 99 KB of shared memory: sm_89, sm_120. Chosen by registers, not measured."""
    groups = 2 * batch * _parts(heads, 32)
    splits, _ = _split(_parts(entries, 32), sms // groups)
    return Plan(splits=splits, heads=32, rows=32, halves=2, wgmma=False)


def _split(tiles: int, room: int) -> tuple[int, int]:
    """(splits, tiles of the longest one): no more splits than `room`, and none that saves nothing."""
    each = _parts(tiles, max(1, min(room, MOST_SPLITS)))
    return _parts(tiles, each), each


def _parts(n: int, size: int) -> int:
    return -(-n // size)
