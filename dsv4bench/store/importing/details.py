"""The per-request lists that vLLM and SGLang add with --save-detailed and --output-details. Seconds.

`start_times` come from a clock without an epoch, so only their differences mean something. `itls` holds a gap a chunk
after the first (vLLM counts the empty last chunk too, so tokens per chunk is slightly low).
"""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4bench.store.importing.documents import Record


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight: time-weighted mean over the run, the same between first and last token, and the peak."""

    mean: float
    decode_mean: float | None
    peak: int


class Details:
    """One record's lists; a request that failed is left out of every figure."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.errors = [e for e in _list(record, "errors") if isinstance(e, str) and e]

    def in_flight(self) -> Batch | None:
        """From the order of events; None where the lists are absent or do not fit together."""
        starts, spans, firsts = (_list(self._record, k) for k in ("start_times", "latencies", "ttfts"))
        if not starts or len(starts) != len(spans) or not all(_times(x) for x in (starts, spans)):
            return None
        whole = [(t, t + d) for t, d in zip(starts, spans, strict=True) if d > 0]
        if not whole:
            return None
        length = max(b for _, b in whole) - min(a for a, _ in whole)
        decode = None
        if len(firsts) == len(starts) and _times(firsts):
            decode = sum(d - f for d, f in zip(spans, firsts, strict=True) if d > f > 0) / length
        return Batch(mean=sum(b - a for a, b in whole) / length, decode_mean=decode, peak=_peak(whole))

    def tokens_per_chunk(self) -> float | None:
        """Output tokens / chunks, over the requests that have both."""
        lengths, gaps = _list(self._record, "output_lens"), _list(self._record, "itls")
        if len(lengths) != len(gaps) or not _times(lengths):
            return None
        both = [(n, len(g) + 1) for n, g in zip(lengths, gaps, strict=True) if n and isinstance(g, list) and g]
        return sum(n for n, _ in both) / sum(c for _, c in both) if both else None

    def without_first_token(self) -> int:
        """Requests counted as successes with a TTFT of zero: they carried no text."""
        lengths, firsts = _list(self._record, "output_lens"), _list(self._record, "ttfts")
        if len(lengths) != len(firsts):
            return 0
        errors = _list(self._record, "errors") or [""] * len(firsts)
        rows = zip(lengths, firsts, errors, strict=False)
        return sum(1 for n, t, e in rows if n and t == 0 and not e)


def _peak(spans: list[tuple[float, float]]) -> int:
    """Ends before starts at one instant: a closed loop of C sends the next request when one has ended."""
    events = sorted([(b, -1) for _, b in spans] + [(a, 1) for a, _ in spans])
    running = peak = 0
    for _, step in events:
        running += step
        peak = max(peak, running)
    return peak


def _list(record: Record, key: str) -> list[Any]:
    value = record.get(key)
    return value if isinstance(value, list) else []


def _times(values: list[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
