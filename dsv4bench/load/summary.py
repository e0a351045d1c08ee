"""From the records of one level to its numbers; pure.

Percentiles are by nearest rank over completed requests. Whole-run throughput: tokens of completed requests over first
send to last token. Steady window: from the first moment with C in flight to the last send; its tokens are those of
chunks that arrived inside, a request's tokens spread evenly over its chunks where the server does not count as it
goes. Achieved batch: time-weighted requests in flight (sent, not ended), from event order, over the steady window
when there is one; decode batch: the same between first and last token.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from dsv4bench.load.full_load import Window, full_load_rate, under_full_load
from dsv4bench.records.request import ErrorKind, RequestRecord, TokenSource
from dsv4bench.records.workload import Slo

MIN_STEADY_NS = 1_000_000
LATE_NS = 1_000_000


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Cell` that follows from the records alone; field names are the cell's."""

    duration_s: float | None
    n_sent: int
    n_ok: int
    n_err: int
    n_cancelled: int
    n_retried: int
    n_short: int
    errors: dict[str, int]
    error_example: str | None
    token_source: TokenSource
    output_tokens: int | None
    prompt_tokens: int | None
    isl_mean: float | None
    osl_mean: float | None
    tokens_per_chunk: float | None
    output_tok_s: float | None
    output_tok_s_steady: float | None
    total_tok_s: float | None
    request_s: float | None
    tok_s_per_user: float | None
    steady_s: float | None
    steady_frac: float | None
    full_load_n: int | None
    full_load_tok_s: float | None
    full_load_tpot_mean_s: float | None
    goodput_req_s: float | None
    slo_frac: float | None
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    ttfc_p50_s: float | None
    ttft_content_p50_s: float | None
    tpot_mean_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p99_s: float | None
    ntpot_p50_s: float | None
    icl_mean_s: float | None
    icl_p50_s: float | None
    icl_p99_s: float | None
    e2e_mean_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    e2e_stream_p50_s: float | None
    queue_client_p99_s: float | None
    n_late: int | None
    achieved_batch: float | None
    decode_batch: float | None
    peak_in_flight: int
    merged_reads_frac: float | None
    why_null: dict[str, str]


def percentile(values: Sequence[float], p: float) -> float | None:
    """Nearest rank: the smallest value with at least p of the values at or below it. None when empty."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(p * len(ordered)) - 1, 0)]


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def summarise(records: Sequence[RequestRecord], concurrency: int | None, slo: Slo | None = None) -> Numbers:
    """The numbers of one level. `concurrency` None is an open loop, which has no steady window."""
    ok = [r for r in records if r.ok]
    cancelled = [r for r in records if r.error == ErrorKind.CANCELLED]
    errors = Counter(str(r.error) for r in records if not r.ok and r.error != ErrorKind.CANCELLED)
    span = _span(records)
    window = steady_window(records, concurrency) if concurrency is not None else None
    over = window or span
    duration_s = (span[1] - span[0]) / 1e9 if span else None
    output = sum(r.output_tokens or 0 for r in ok) if ok else None
    prompt = _total(r.prompt_tokens for r in ok)
    chunks = sum(len(r.chunk_ns) for r in ok)
    tpots = _known(r.tpot_s for r in ok)
    icls = [gap for r in ok for gap in r.icl_s]
    ttfts = _known(r.ttft_s for r in ok)
    e2es = _known(r.e2e_s for r in ok)
    steady_s = (window[1] - window[0]) / 1e9 if window else None
    tpot_mean = mean(tpots)
    achieved = mean_in_flight(((r.t_send_ns, r.t_end_ns) for r in records), over)
    full = under_full_load(records, window, concurrency, achieved)
    good = [r for r in ok if _within(r, slo)] if slo is not None else None
    queue = [(r.t_send_ns - r.t_sched_ns) / 1e9 for r in records if r.t_sched_ns is not None]
    decoding = [(r.t_first_ns, r.t_last_ns) for r in records if r.t_first_ns is not None and r.t_last_ns is not None]
    reads = sum(r.reads for r in records)
    why: dict[str, str] = {}
    if not ok:
        why["*"] = "no request completed"
    if window is None:
        why["output_tok_s_steady"] = (
            "an open loop has no steady window"
            if concurrency is None
            else "no time with C in flight and more to send"
        )
    if ok and not full:
        why["full_load_tok_s"] = (
            "after the first C, too few rounds of requests began and ended while C were in flight, or one failed"
        )
    if ok and not tpots:
        why["tpot_p50_s"] = "no request had two tokens that arrived apart"
    return Numbers(
        duration_s=duration_s,
        n_sent=len(records),
        n_ok=len(ok),
        n_err=errors.total(),
        n_cancelled=len(cancelled),
        n_retried=sum(r.retried for r in records),
        n_short=sum(map(_short, ok)),
        errors=dict(errors),
        error_example=next((r.error_text for r in records if r.error_text and r not in cancelled), None),
        token_source=_source(ok),
        output_tokens=output,
        prompt_tokens=prompt,
        isl_mean=mean(_known(r.prompt_tokens for r in ok)),
        osl_mean=mean(_known(r.output_tokens for r in ok)),
        tokens_per_chunk=output / chunks if output and chunks else None,
        output_tok_s=_rate(output, duration_s),
        output_tok_s_steady=_rate(tokens_within(records, window), steady_s) if window and ok else None,
        total_tok_s=_rate(output + prompt, duration_s) if output is not None and prompt is not None else None,
        request_s=_rate(len(ok) or None, duration_s),
        tok_s_per_user=1 / tpot_mean if tpot_mean else None,
        steady_s=steady_s,
        steady_frac=steady_s / duration_s if steady_s is not None and duration_s else None,
        full_load_n=len(full) if full else None,
        full_load_tok_s=full_load_rate(full, achieved),
        full_load_tpot_mean_s=mean(_known(r.tpot_s for r in full)),
        goodput_req_s=_rate(len(good), duration_s) if good is not None else None,
        slo_frac=len(good) / len(records) if good is not None and records else None,
        ttft_mean_s=mean(ttfts),
        ttft_p50_s=percentile(ttfts, 0.5),
        ttft_p90_s=percentile(ttfts, 0.9),
        ttft_p99_s=percentile(ttfts, 0.99),
        ttfc_p50_s=percentile(_known(r.ttfc_s for r in ok), 0.5),
        ttft_content_p50_s=percentile(_known(r.ttft_content_s for r in ok), 0.5),
        tpot_mean_s=tpot_mean,
        tpot_p50_s=percentile(tpots, 0.5),
        tpot_p90_s=percentile(tpots, 0.9),
        tpot_p99_s=percentile(tpots, 0.99),
        ntpot_p50_s=percentile(_known(r.ntpot_s for r in ok), 0.5),
        icl_mean_s=mean(icls),
        icl_p50_s=percentile(icls, 0.5),
        icl_p99_s=percentile(icls, 0.99),
        e2e_mean_s=mean(e2es),
        e2e_p50_s=percentile(e2es, 0.5),
        e2e_p99_s=percentile(e2es, 0.99),
        e2e_stream_p50_s=percentile(_known(r.e2e_stream_s for r in ok), 0.5),
        queue_client_p99_s=percentile(queue, 0.99),
        n_late=sum(q * 1e9 > LATE_NS for q in queue) if queue else None,
        achieved_batch=achieved,
        decode_batch=mean_in_flight(decoding, over) if decoding else None,
        peak_in_flight=peak_in_flight(records),
        merged_reads_frac=sum(r.merged_reads for r in records) / reads if reads else None,
        why_null=why,
    )


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> Window | None:
    """From the first moment with C in flight to the last send; None when that is no time at all."""
    in_flight, start = 0, None
    for t, step in _edges((r.t_send_ns, r.t_end_ns) for r in records):
        in_flight += step
        if in_flight >= concurrency:
            start = t
            break
    last_send = max((r.t_send_ns for r in records), default=0)
    if start is None or last_send - start < MIN_STEADY_NS:
        return None
    return start, last_send


def tokens_within(records: Iterable[RequestRecord], window: Window) -> float:
    """Tokens of completed and unfinished requests that arrived inside the window."""
    low, high = window
    total = 0.0
    for r in records:
        if not r.chunk_ns or not r.output_tokens:
            continue
        if r.chunk_tokens is not None:
            total += sum(n for t, n in zip(r.chunk_ns, r.chunk_tokens, strict=True) if low < t <= high)
        else:
            total += r.output_tokens * sum(low < t <= high for t in r.chunk_ns) / len(r.chunk_ns)
    return total


def mean_in_flight(intervals: Iterable[Window], window: Window | None) -> float | None:
    """Time-weighted mean number of open intervals over the window."""
    if window is None or window[1] <= window[0]:
        return None
    low, high = window
    busy = sum(max(min(b, high) - max(a, low), 0) for a, b in intervals)
    return busy / (high - low)


def peak_in_flight(records: Iterable[RequestRecord]) -> int:
    """The most requests in flight at one moment, from event order (an end frees its place before a send)."""
    steps = (step for _, step in _edges((r.t_send_ns, r.t_end_ns) for r in records))
    return max(itertools.accumulate(steps), default=0)


def _edges(intervals: Iterable[Window]) -> list[tuple[int, int]]:
    return sorted(edge for a, b in intervals for edge in ((a, 1), (b, -1)))


def _span(records: Sequence[RequestRecord]) -> Window | None:
    """First send to the last token, or to the last end where no token came."""
    if not records:
        return None
    start = min(r.t_send_ns for r in records)
    ends = [r.t_last_ns for r in records if r.ok and r.t_last_ns is not None]
    end = max(ends) if ends else max(r.t_end_ns for r in records)
    return (start, end) if end > start else None


def _source(ok: Sequence[RequestRecord]) -> TokenSource:
    sources = {r.token_source for r in ok}
    if not sources:
        return TokenSource.NONE
    return sources.pop() if len(sources) == 1 else TokenSource.MIXED


def _short(r: RequestRecord) -> bool:
    """Fewer tokens than asked for. Chunks are a lower bound and prove nothing; a stop of the model's own does."""
    if not r.requested_tokens or (r.output_tokens or 0) >= r.requested_tokens:
        return False
    return r.token_source is TokenSource.USAGE or r.finish_reason == "stop"


def _within(r: RequestRecord, slo: Slo) -> bool:
    pairs = ((r.ttft_s, slo.ttft_s), (r.tpot_s, slo.tpot_s), (r.e2e_s, slo.e2e_s))
    # a request of one token has no TPOT and cannot break its limit
    return all(limit is None or value is None or value <= limit for value, limit in pairs)


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when any part is unknown: half a total is no total."""
    total = 0
    for v in values:
        if v is None:
            return None
        total += v
    return total or None


def _rate(amount: float | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds else None
