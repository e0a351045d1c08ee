"""How busy a server's GPUs were over a window: shares of elapsed cycles, each with the name of its metric.

Sampled from outside the server; idle SMs and idle time are inside the denominator. A share that the GPU or the way of
sampling does not tell is None, never 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over the window, as fractions of its peak. Percentiles by nearest rank over samples."""

    metric: str
    mean_frac: float  # weighed by time: exact, whatever the length of a sample
    p50_frac: float
    p99_frac: float


class DeviceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """One window on one or several GPUs; several are pooled with equal weight."""

    method: str  # CUPTI PM sampling | NVML GPM
    gpus: list[int]  # NVML's order
    compute: str | None = None  # capability of the first of them, "9.0"
    window: Literal["steady", "level"]  # level: there was no steady window
    window_s: float
    interval_s: float  # one sample; percentiles are over samples of this length
    n_samples: int
    n_dropped: int  # samples that the window should hold and does not
    tensor_pipe: Share | None = None
    tensor_mma: Share | None = None  # of matrix instructions alone, where the chip tells them from HFMA2
    sm: Share | None = None
    dram: Share | None = None
    notes: list[str] = msgspec.field(default_factory=list)
