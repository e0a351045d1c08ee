"""How fast this GPU can read, measured in the same run as the kernels that are held against it.

`stream_gb_s` is a read-only stream over a large buffer: the denominator of every "share of the read ceiling". A short
launch cannot reach it, whatever it computes, because it takes time to start and to drain; so one launch is also timed
at sizes from 0.25 MB to 3 GB, on data that the L2 does not hold. Between two measured sizes the time of a launch is
interpolated linearly; outside of them nothing is claimed.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from dsv4bench.errors import MeasuredBad
from dsv4bench.kernels.timing import L2_MULTIPLE, MOST_SETS, Stopwatch
from dsv4bench.records.kernels import ReadCeiling

if TYPE_CHECKING:
    from torch import Tensor

SIZES_MB = (0.25, 1.0, 4.0, 8.0, 27.0, 80.0, 320.0, 1074.0, 3000.0)
STREAM_BYTES = 4 * 2**30
WORD_BYTES = 4
ALONE_MULTIPLE = 20  # a buffer read over and over is cold but for what the L2 keeps of its end: 5 % here
MB = 1e6


def sizes_around(floors_bytes: Iterable[float], sizes_mb: Sequence[float] = SIZES_MB) -> list[float]:
    """The measured sizes that are needed to interpolate at these floors: the neighbours of each, on both sides."""
    wanted: set[float] = set()
    for floor in floors_bytes:
        at = bisect.bisect_left(sizes_mb, floor / MB)
        wanted |= {sizes_mb[i] for i in (at - 1, at) if 0 <= i < len(sizes_mb)}
    return sorted(wanted)


def launch_s(size_bytes: float, cold_gb_s: Mapping[str, float]) -> float | None:
    """Seconds of one cold read of that size, linear between measured sizes; None outside of them."""
    known = sorted((float(mb) * MB, float(mb) * MB / (rate * 1e9)) for mb, rate in cold_gb_s.items())
    at = bisect.bisect_left([size for size, _ in known], size_bytes)
    if at < len(known) and known[at][0] == size_bytes:
        return known[at][1]
    if at in (0, len(known)):
        return None
    (low, low_s), (high, high_s) = known[at - 1], known[at]
    return low_s + (high_s - low_s) * (size_bytes - low) / (high - low)


def copies(size_bytes: float, buffer_bytes: int, l2_bytes: int) -> int:
    """How many launches on different parts of the buffer make one replay: three L2 sizes, where they fit."""
    fitting = int(buffer_bytes // size_bytes)
    return max(1, min(fitting, MOST_SETS, max(2, -(-L2_MULTIPLE * l2_bytes // int(size_bytes)))))


def measure(sizes_mb: Sequence[float], sms: int, l2_bytes: int, stopwatch: Stopwatch) -> ReadCeiling:
    """The best of several launch shapes at each size. Raises MeasuredBad when the kernel did not read everything.

    A size is left out where neither two parts of it nor one of many L2 sizes fit into the buffer, which is 4 GiB or a
    quarter of the free memory.
    """
    import torch

    from dsv4bench.kernels.gpu.read_stream import SHAPES, reads_everything

    free, _ = torch.cuda.mem_get_info()
    grain = max(shape.words for shape in SHAPES)
    n = min(STREAM_BYTES, free // 4) // WORD_BYTES // grain * grain
    words = torch.empty(n, dtype=torch.int32, device="cuda").random_()
    unread = [shape for shape in SHAPES if not reads_everything(words, shape, sms)]
    if unread:
        raise MeasuredBad(f"the read stream left something out: {unread[0]}", "a fault of the tool: please report it")
    stream_s = _best_s([words], sms, stopwatch)
    cold = {}
    for mb in sizes_mb:
        part = max(1, round(mb * MB / WORD_BYTES / grain)) * grain
        if part * 2 <= n or (part <= n and part * WORD_BYTES >= ALONE_MULTIPLE * l2_bytes):
            k = copies(part * WORD_BYTES, n * WORD_BYTES, l2_bytes)
            seconds = _best_s([words[i * part : (i + 1) * part] for i in range(k)], sms, stopwatch)
            cold[f"{part * WORD_BYTES / MB:.4g}"] = part * WORD_BYTES / seconds / 1e9
    return ReadCeiling(stream_gb_s=n * WORD_BYTES / stream_s / 1e9, stream_bytes=n * WORD_BYTES, cold_gb_s=cold)


def _best_s(parts: Sequence[Tensor], sms: int, stopwatch: Stopwatch) -> float:
    """Seconds a launch, of the fastest shape."""
    from dsv4bench.kernels.gpu.read_stream import SHAPES, read

    sums = parts[0].new_empty(max(sms * shape.per_sm for shape in SHAPES))
    return min(median(stopwatch.replays([partial(read, p, sums, shape, sms) for p in parts])) for shape in SHAPES)
