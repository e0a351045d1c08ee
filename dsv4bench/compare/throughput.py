"""The throughput and TPOT of the levels of one ladder, from one source for all of them.

Best are the requests under full load (`full_load_tok_s`): neither ramp nor drain. Where a level lacks them, the
steady window serves, if it is sound: requests in flight are request rate times end-to-end time (Little's law), and a
rate that misses this by more than 3 % of C comes from a window that cuts through a round of requests, so that its
end lies behind a prefill and before that prefill's tokens. It is too low then, the more so the higher C, which looks
like a cliff. Otherwise the whole level serves, ramp and drain in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from dsv4bench.records.cell import Cell

LITTLE_FRAC = 0.03

Rate = Callable[[Cell], float | None]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`rate` gives a cell's output tok/s; `note` says what a ladder of it suffers from."""

    rate: Rate
    field: str  # the field whose rounding applies
    note: str | None = None


def source_of(cells: Sequence[Cell]) -> Source:
    """Full load where all cells have it, else sound steady windows, else whole levels."""
    if _all(cells, "full_load_tok_s"):
        return Source(rate=lambda c: c.full_load_tok_s, field="full_load_tok_s")
    if not _all(cells, "output_tok_s_steady"):
        return Source(rate=whole, field="output_tok_s")
    missed = [(abs(miss), c) for c in cells if (miss := little_miss(c)) is not None and abs(miss) > LITTLE_FRAC]
    if not missed:
        return Source(rate=lambda c: c.output_tok_s_steady, field="output_tok_s_steady")
    miss, worst = max(missed, key=lambda found: found[0])
    note = (
        f"C={worst.concurrency}: steady throughput times end-to-end time misses C by {miss:.1%} (the window holds "
        "few rounds of requests): throughput is of whole levels, ramp and drain in it; run longer levels"
    )
    return Source(rate=whole, field="output_tok_s", note=note)


def tpot_field(cells: Sequence[Cell]) -> str | None:
    """The field of mean TPOT that all cells have; None: there is none."""
    return next((f for f in ("full_load_tpot_mean_s", "tpot_mean_s") if _all(cells, f)), None)


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
    return all(positive(getattr(c, field)) for c in cells)
