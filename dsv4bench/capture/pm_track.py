"""The samples of one recording on one GPU, kept small: past a bound, neighbours become one.

Merging weighs by time, so means stay exact; only the length of a sample grows, and with it what a percentile speaks
of. Time that no sample covered stays uncovered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import DeviceSamples

MOST_SAMPLES = 1 << 20  # 210 s at 200 µs; 32 bytes each

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Rows = tuple[Ints, Ints, Floats]


class Track:
    """Append batches in order of time, then ask for the samples."""

    def __init__(self, metrics: Sequence[str], most: int = MOST_SAMPLES) -> None:
        self._metrics, self._most = list(metrics), most
        self._kept: list[Rows] = []
        self._rest: list[Rows] = []  # fewer than `merged` samples, which the next batch completes
        self._n = 0
        self.merged = 1  # samples of the recorder in one of ours

    def append(self, ends: Ints, spans: Ints, values: Floats) -> None:
        """`values` is (n, metrics), percent."""
        if self.merged > 1:
            ends, spans, values = _join([*self._rest, (ends, spans, values)])
            whole = len(ends) // self.merged * self.merged
            self._rest = [(ends[whole:], spans[whole:], values[whole:])]
            ends, spans, values = merge((ends[:whole], spans[:whole], values[:whole]), self.merged)
        self._kept.append((ends, spans, values))
        self._n += len(ends)
        if self._n > self._most:
            self._halve()

    def samples(self, device: int) -> DeviceSamples:
        """Everything so far; a last sample may be shorter than the others."""
        rest = [merge(rows, len(rows[0])) for rows in self._rest if len(rows[0])]
        ends, spans, values = _join([*self._kept, *rest]) if self._kept or rest else _empty(len(self._metrics))
        columns = {name: values[:, i].astype(np.float64) for i, name in enumerate(self._metrics)}
        return DeviceSamples("", device, ends, columns, span_ns=spans)

    def _halve(self) -> None:
        rows = _join(self._kept)
        whole = len(rows[0]) // 2 * 2
        self._kept = [merge((rows[0][:whole], rows[1][:whole], rows[2][:whole]), 2)]
        if whole < len(rows[0]):  # one of half the length: it keeps its place in time
            self._kept.append((rows[0][whole:], rows[1][whole:], rows[2][whole:]))
        self._n = sum(len(kept[0]) for kept in self._kept)
        self.merged *= 2


def merge(rows: Rows, n: int) -> Rows:
    """Each n samples become one: lengths are added, values weighed by them. A multiple of n is given."""
    ends, spans, values = rows
    if n == 1 or not len(ends):
        return rows
    at = np.arange(0, len(ends), n)
    length = np.add.reduceat(spans, at)
    area = np.add.reduceat(values.astype(np.float64) * spans[:, None], at, axis=0)
    return ends[n - 1 :: n], length, (area / length[:, None]).astype(np.float32)


def _join(parts: Sequence[Rows]) -> Rows:
    return (
        np.concatenate([p[0] for p in parts]),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
    )


def _empty(metrics: int) -> Rows:
    return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, metrics), np.float32)
