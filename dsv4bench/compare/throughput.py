"""The throughput and TPOT of levels that are compared, from one source for all of them.

Best are the requests under full load (`load/full_load.py`): neither ramp nor drain. Where one level lacks them, none
has them here. Then the steady window serves, if it is sound: requests in flight are request rate times end-to-end
time (Little's law), and a rate that misses this by more than 3 % of C comes from a window that cuts through a round
of requests, so that its end lies behind a prefill and before that prefill's tokens. It is too low then, the more so
the higher C, which looks like a cliff. Otherwise the whole level serves, ramp and drain in it; a level of fewer than
three rounds of C requests is short, and carries no claim that throughput stays or falls. TPOT is the mean over
requests, but the median where the drain of a short level bends a mean by more than 3 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from dsv4bench.records.cell import Cell

LITTLE_FRAC = 0.03
BENT_FRAC = 0.03
ROUNDS = 3  # of C requests

Rate = Callable[[Cell], float | None]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`rate` gives a cell's output tok/s; `tpot` names the field of its TPOT (None: not all levels have one)."""

    rate: Rate
    field: str  # the field whose rounding applies
    tpot: str | None
    edges: bool = False  # ramp and drain are inside
    notes: list[str] = msgspec.field(default_factory=list)

    def short(self, cell: Cell) -> bool:
        """Whether ramp and drain may decide this level's throughput."""
        return self.edges and rounds(cell) < ROUNDS


def source_of(cells: Sequence[Cell]) -> Source:
    """Full load where all cells have it, else sound steady windows, else whole levels; of TPOT likewise."""
    if _all(cells, "full_load_tok_s") and _all(cells, "full_load_tpot_mean_s"):
        return Source(rate=lambda c: c.full_load_tok_s, field="full_load_tok_s", tpot="full_load_tpot_mean_s")
    lacking = [c for c in cells if c.full_load_tok_s is None]
    notes = []
    if len(lacking) < len(cells):
        where = ", ".join(f"C={c}" for c in sorted({c.concurrency or 0 for c in lacking}))
        notes.append(f"too few requests under full load at {where}: figures are of whole levels; run longer ones")
    tpot, about = _tpot(cells)
    notes += about
    if not notes and _all(cells, "output_tok_s_steady"):
        missed = [(abs(miss), c) for c in cells if (miss := little_miss(c)) is not None and abs(miss) > LITTLE_FRAC]
        if not missed:
            return Source(rate=lambda c: c.output_tok_s_steady, field="output_tok_s_steady", tpot=tpot)
        miss, worst = max(missed, key=lambda found: found[0])
        notes.append(
            f"C={worst.concurrency}: steady throughput times end-to-end time misses C by {miss:.1%} (the window "
            "holds few rounds of requests): figures are of whole levels; run longer levels"
        )
    return Source(rate=whole, field="output_tok_s", tpot=tpot, edges=True, notes=notes)


def _tpot(cells: Sequence[Cell]) -> tuple[str | None, list[str]]:
    """The mean, or the median where short levels bend it."""
    if not _all(cells, "tpot_mean_s"):
        return None, []
    bent = [c for c in cells if rounds(c) < ROUNDS and abs(_over_median(c) - 1) > BENT_FRAC]
    if not bent or not _all(cells, "tpot_p50_s"):
        return "tpot_mean_s", []
    where = ", ".join(f"C={c}" for c in sorted({c.concurrency or 0 for c in bent}))
    return "tpot_p50_s", [f"the drain bends mean TPOT at {where}: step times are from medians"]


def _over_median(cell: Cell) -> float:
    return cell.tpot_mean_s / cell.tpot_p50_s if cell.tpot_mean_s and cell.tpot_p50_s else 1.0


def rounds(cell: Cell) -> float:
    """Completed requests over C; infinite where it is not told."""
    return cell.n_ok / cell.concurrency if cell.n_ok and cell.concurrency else math.inf


def little_miss(cell: Cell) -> float | None:
    """Steady rate · end-to-end time / tokens a request, over C, less 1. None: not recorded, or requests failed."""
    rate, e2e, osl = cell.output_tok_s_steady, cell.e2e_mean_s, cell.osl_mean
    if cell.concurrency is None or cell.n_err or rate is None or e2e is None or not osl:
        return None
    return rate * e2e / osl / cell.concurrency - 1


def whole(cell: Cell) -> float | None:
    """Of the whole level; of the steady window where a file holds that alone."""
    return cell.output_tok_s_steady if cell.output_tok_s is None else cell.output_tok_s


def positive(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


def _all(cells: Sequence[Cell], field: str) -> bool:
    return bool(cells) and all(positive(getattr(c, field)) for c in cells)
