"""The requests of a closed loop that ran under full load: neither ramp nor drain.

These are the completed requests that lived in the steady window alone, without the first C, whose prefills come
all at once as they never do again. The rest of a level, its drain, runs with fewer than C beside it, faster; in a
short level both bend every mean and the throughput of the whole. Throughput under full load is requests in flight ·
Σ tokens / Σ end-to-end time of these requests (Little's law): whole requests on both sides, no edges. A window takes
short requests first, so two rounds of C are asked for, four where lengths vary: the rate is then low by 3 % at most
in simulations with lognormal lengths of sigma 1 and a fifth of the time in prefill, and off by 0.3 % at sigma 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

from dsv4bench.records.request import RequestRecord

Window = tuple[int, int]  # ns
ROUNDS, VARIED_ROUNDS = 2, 4  # of C requests under full load; the second where lengths vary by more than VARIED
VARIED = 0.3  # standard deviation of the output lengths over their mean
HELD_FRAC = 0.95  # of C, in flight over the steady window, for figures under full load
BEFORE_FRAC = 0.01  # of its life, a request under full load may have been sent before C were in flight


def under_full_load(
    records: Sequence[RequestRecord], window: Window | None, concurrency: int | None, in_flight: float | None
) -> list[RequestRecord]:
    """Those of the steady window but the first C; none where they are too few rounds, or where one failed.

    `in_flight`: requests on the average over that window.
    """
    if window is None or concurrency is None or (in_flight or 0.0) < HELD_FRAC * concurrency:
        return []
    start, last_send = window
    later = sorted(records, key=lambda r: r.t_send_ns)[concurrency:]
    lived = [r for r in later if r.t_end_ns <= last_send and _began(r, start)]
    if not all(r.ok and r.output_tokens for r in lived):
        return []
    lengths = [r.output_tokens or 0 for r in lived]
    varied = bool(lengths) and pstdev(lengths) > VARIED * fmean(lengths)
    return lived if len(lived) >= (VARIED_ROUNDS if varied else ROUNDS) * concurrency else []


def _began(r: RequestRecord, start_ns: int) -> bool:
    return start_ns - r.t_send_ns <= BEFORE_FRAC * (r.t_end_ns - r.t_send_ns)


def full_load_rate(full: Sequence[RequestRecord], in_flight: float | None) -> float | None:
    """Output tok/s; None without such requests."""
    lived_ns = sum(r.t_end_ns - r.t_send_ns for r in full)
    if not lived_ns or in_flight is None:
        return None
    return in_flight * sum(r.output_tokens or 0 for r in full) / (lived_ns / 1e9)
