"""How busy GPUs were over a window, from their samples: mean, median and p99 of tensor pipe, SMs and DRAM.

A mean weighs each sample by the time it shares with the window, so it is exact whatever the sampling interval; the
percentiles are over the samples, so they depend on it, and it goes with them. Time in the window that no sample
covers counts as dropped samples, never as idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.sampled import DRAM, MMA, SMS, TENSOR
from dsv4bench.records.device import DeviceActivity, Share
from dsv4bench.records.trace import DeviceSamples

Values = npt.NDArray[np.float64]
_TOO_FEW_FRAC = 0.99  # of the window covered by samples; below it a note says so


def activity(
    samples: Sequence[DeviceSamples],
    window_ns: tuple[int, int],
    method: str,
    *,
    window: Literal["steady", "level"] = "steady",
    compute: tuple[int, int] | None = None,
    notes: Sequence[str] = (),
) -> DeviceActivity | None:
    """The shares over `window_ns` (epoch) of all GPUs in `samples`; None where no sample touches the window.

    Values arrive as percent and leave as fractions. Samples without `span_ns` count until the one before them.
    """
    length = window_ns[1] - window_ns[0]
    if length <= 0:
        return None
    weights = [_overlap(one, window_ns) for one in samples]
    inside = [(one, w) for one, w in zip(samples, weights, strict=True) if w.any()]
    if not inside:
        return None
    interval = float(np.median(np.concatenate([_spans(one)[w > 0] for one, w in inside])))
    covered = sum(float(w.sum()) for _, w in inside)
    missing = max(len(samples) * length - covered, 0.0)
    said = list(notes)
    if covered < _TOO_FEW_FRAC * len(samples) * length:
        said.append(f"samples cover {100 * covered / (len(samples) * length):.0f} % of the window")
    return DeviceActivity(
        method=method,
        gpus=[one.device for one in samples],
        compute=None if compute is None else f"{compute[0]}.{compute[1]}",
        window=window,
        window_s=length / 1e9,
        interval_s=interval / 1e9,
        n_samples=sum(int((w > 0).sum()) for _, w in inside),
        n_dropped=round(missing / interval),
        tensor_pipe=_share(inside, TENSOR),
        tensor_mma=_share(inside, MMA),
        sm=_share(inside, SMS),
        dram=_share(inside, DRAM),
        notes=said,
    )


def in_bins(one: DeviceSamples, begins: tuple[str, ...], edges_ns: npt.NDArray[np.int64]) -> Values | None:
    """Means of a metric between the edges, as fractions: (n − 1,), NaN for a bin without a sample.

    None where the samples lack the metric. A sample counts in the bin that holds its end.
    """
    found = _column(one, begins)
    if found is None:
        return None
    values = found[1]
    place = np.searchsorted(edges_ns, one.time_ns, side="left") - 1
    kept = (place >= 0) & (place < len(edges_ns) - 1) & np.isfinite(values)
    spans = _spans(one)[kept].astype(np.float64)
    n = len(edges_ns) - 1
    time = np.bincount(place[kept], weights=spans, minlength=n)
    area = np.bincount(place[kept], weights=spans * values[kept], minlength=n)
    means: Values = np.divide(area, 100 * time, out=np.full(n, np.nan), where=time > 0)
    return means


def _share(inside: Sequence[tuple[DeviceSamples, Values]], begins: tuple[str, ...]) -> Share | None:
    """None where one of the GPUs lacks the metric: their mean would speak of other GPUs than it says."""
    columns = [_column(one, begins) for one, _ in inside]
    area, time, pooled, name = 0.0, 0.0, [], ""
    for (_, weights), column in zip(inside, columns, strict=True):
        if column is None:
            return None
        name, values = column
        told = np.isfinite(values) & (weights > 0)
        area += float((weights[told] * values[told]).sum())
        time += float(weights[told].sum())
        pooled.append(values[told])
    every = np.sort(np.concatenate(pooled))
    if not len(every) or time <= 0:
        return None
    return Share(
        metric=name, mean_frac=area / time / 100, p50_frac=_rank(every, 0.5) / 100, p99_frac=_rank(every, 0.99) / 100
    )


def _column(one: DeviceSamples, begins: tuple[str, ...]) -> tuple[str, Values] | None:
    return next(((name, v) for name, v in one.metrics.items() if name.startswith(begins)), None)


def _rank(ordered: Values, q: float) -> float:
    """Nearest rank: a value that was measured."""
    return float(ordered[min(max(int(np.ceil(q * len(ordered))), 1), len(ordered)) - 1])


def _spans(one: DeviceSamples) -> npt.NDArray[np.int64]:
    """How long each sample is; where they do not say, until the one before it (the first: as the second)."""
    if one.span_ns is not None:
        return one.span_ns
    if len(one.time_ns) < 2:
        return np.zeros(len(one.time_ns), np.int64)
    between = np.diff(one.time_ns)
    return np.concatenate([between[:1], between])


def _overlap(one: DeviceSamples, window_ns: tuple[int, int]) -> Values:
    """Nanoseconds that each sample shares with the window."""
    ends = np.minimum(one.time_ns, window_ns[1])
    begins = np.maximum(one.time_ns - _spans(one), window_ns[0])
    shared: Values = np.maximum(ends - begins, 0).astype(np.float64)
    return shared
