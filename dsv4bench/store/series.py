"""Builds `series.json`: latencies into fixed log-spaced bins, telemetry into at most `MAX_POINTS` points a cell.

Pure functions of the stored records; `records/series.py` says what the numbers mean.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean

from dsv4bench.records.cell import Cell
from dsv4bench.records.request import RequestRecord
from dsv4bench.records.series import CellSeries, GpuSeries, Histogram, TelemetrySeries, edges_s
from dsv4bench.records.server import Gauges, GpuSample, TelemetrySample

MAX_POINTS = 200
EDGES = edges_s()

Bucket = Sequence[TelemetrySample]


def cell_series(cell: Cell, requests: Iterable[RequestRecord], telemetry: Sequence[TelemetrySample]) -> CellSeries:
    """What one cell looked like. `telemetry` may hold other cells' samples and those of an attempt given up."""
    found = list(requests)
    ok = [r for r in found if r.ok]
    # started_utc may be cut to whole seconds, and an imported cell may have none
    start_s = _epoch(cell.started_utc) - 1 if telemetry else 0.0
    own = [s for s in telemetry if s.cell == cell.cell and s.t_s >= start_s]
    return CellSeries(
        cell=cell.cell,
        n_requests=len(found),
        ttft=histogram(r.ttft_s for r in ok),
        tpot=histogram(r.tpot_s for r in ok),
        icl=histogram(gap for r in ok for gap in r.icl_s),
        e2e=histogram(r.e2e_s for r in ok),
        telemetry=thin(own) if own else None,
    )


def histogram(values_s: Iterable[float | None]) -> Histogram:
    """Counts by bin; a None is no value."""
    counts = [0] * (len(EDGES) + 1)  # the first and the last are off the scale
    for value in values_s:
        if value is not None:
            counts[bisect.bisect_right(EDGES, value)] += 1
    below, *inside, above = counts
    filled = [i for i, count in enumerate(inside) if count]
    first, last = (filled[0], filled[-1]) if filled else (0, -1)
    return Histogram(n=sum(counts), first_bin=first, counts=inside[first : last + 1], below=below, above=above)


def thin(samples: Sequence[TelemetrySample], points: int = MAX_POINTS) -> TelemetrySeries:
    """At most `points` points, each over an equal stretch of time; a stretch without samples has none."""
    ordered = sorted(samples, key=lambda s: s.t_s)
    buckets = _buckets(ordered, points)
    start_s = ordered[0].t_s
    return TelemetrySeries(
        start_s=start_s,
        n_samples=len(ordered),
        t_s=[fmean(s.t_s for s in b) - start_s for b in buckets],
        running=_gauge_column(buckets, lambda g: g.running),
        waiting=_gauge_column(buckets, lambda g: g.waiting),
        kv_usage_frac=_gauge_column(buckets, lambda g: g.kv_usage_frac, max),
        output_tok_s=_rates(buckets),
        gpus=[_gpu(i, buckets) for i in sorted({g.index for s in ordered for g in s.gpus})],
    )


def _buckets(ordered: Bucket, points: int) -> list[list[TelemetrySample]]:
    """By time and not by count: gauges and GPUs are read by two threads, and one point should hold both."""
    gauges = sum(s.gauges is not None for s in ordered)
    n = min(points, max(gauges, len(ordered) - gauges))
    start_s, span_s = ordered[0].t_s, ordered[-1].t_s - ordered[0].t_s
    filled: dict[int, list[TelemetrySample]] = {}
    for s in ordered:
        place = int((s.t_s - start_s) / span_s * n) if span_s else 0
        filled.setdefault(min(place, n - 1), []).append(s)
    return list(filled.values())


def _gauge_column(
    buckets: Sequence[Bucket],
    pick: Callable[[Gauges], float | None],
    join: Callable[[list[float]], float] = fmean,
) -> list[float | None]:
    return [_join([pick(s.gauges) for s in b if s.gauges is not None], join) for b in buckets]


def _gpu(index: int, buckets: Sequence[Bucket]) -> GpuSeries:
    readings = [[g for s in b for g in s.gpus if g.index == index] for b in buckets]

    def column(pick: Callable[[GpuSample], float | None]) -> list[float | None]:
        return [_join([pick(g) for g in r], fmean) for r in readings]

    def counted(pick: Callable[[GpuSample], float | None]) -> list[float | None]:
        found = column(pick)
        return found if any(v is not None for v in found) else []

    return GpuSeries(
        index=index,
        sm_clock_mhz=column(lambda g: g.sm_clock_mhz),
        power_w=column(lambda g: g.power_w),
        temperature_c=column(lambda g: g.temperature_c),
        util_frac=column(lambda g: g.util_frac),
        throttle=sorted({reason for r in readings for g in r for reason in g.throttle}),
        tensor_pipe_frac=counted(lambda g: g.tensor_pipe_frac),
        sm_active_frac=counted(lambda g: g.sm_active_frac),
        dram_frac=counted(lambda g: g.dram_frac),
    )


def _rates(buckets: Sequence[Bucket]) -> list[float | None]:
    """Output tokens a second from the counter's last value in each bucket; a counter that fell has restarted."""
    rates: list[float | None] = []
    before: tuple[float, float] | None = None
    for bucket in buckets:
        now = _last_count(bucket)
        if now is None or before is None or now[0] <= before[0] or now[1] < before[1]:
            rates.append(None)
        else:
            rates.append((now[1] - before[1]) / (now[0] - before[0]))
        before = now or before
    return rates


def _last_count(bucket: Bucket) -> tuple[float, float] | None:
    for s in reversed(bucket):
        if s.gauges is not None and s.gauges.output_tokens_total is not None:
            return s.t_s, s.gauges.output_tokens_total
    return None


def _join(values: Iterable[float | None], join: Callable[[list[float]], float]) -> float | None:
    known = [v for v in values if v is not None]
    return join(known) if known else None


def _epoch(utc: str) -> float:
    moment = datetime.fromisoformat(utc)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
