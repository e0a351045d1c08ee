"""What a device's own counters say about a window: tensor pipe, SMs and DRAM active, as means over its samples.

The metric is given with its name, since it carries the denominator: nsys and PM sampling are of elapsed cycles, idle
SMs included. Values arrive as percent of peak and leave as fractions; a sample that lacks the metric does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dsv4bench.records.trace import DeviceSamples

_TRIAGE = "TPC.TriageCompute."  # the prefix of some PM samplings' metrics
TENSOR = (
    *("Tensor Active", "ANY_TENSOR"),
    *("sm__pipe_tensor_cycles_active", f"{_TRIAGE}sm__pipe_tensor_cycles_active"),
)
MMA = ("sm__pipe_tensor_type_hmma_", "sm__pipe_tensor_op_hmma_type_hmma_")  # without HFMA2, where the chip tells it
SMS = ("SMs Active", "sm__cycles_active", f"{_TRIAGE}sm__cycles_active", "SM_UTIL")
DRAM = ("dram__throughput", "dramc__throughput", "DRAM_BW_UTIL")
DRAM_PARTS = ("DRAM Read Bandwidth", "DRAM Write Bandwidth")


@dataclass(frozen=True, slots=True)
class Sampled:
    tensor_pipe_frac: float | None = None
    tensor_pipe_metric: str | None = None
    sm_active_frac: float | None = None
    dram_frac: float | None = None
    warnings: list[str] = field(default_factory=list)


def sampled(samples: Sequence[DeviceSamples], device: int, window: tuple[int, int]) -> Sampled:
    """The means over the samples of one device that lie in the window."""
    for one in samples:
        if one.device != device:
            continue
        tensor, metric = _mean(one, TENSOR, window)
        dram, _ = _mean(one, DRAM, window)
        parts = [_mean(one, (part,), window)[0] for part in DRAM_PARTS]
        if dram is None and any(p is not None for p in parts):
            dram = sum(p for p in parts if p is not None)
        warnings = []
        if tensor is not None and one.quantum_frac and tensor < 2 * one.quantum_frac:
            warnings.append(
                f"{metric} comes in steps of {100 * one.quantum_frac:g} %: a mean of {100 * tensor:.2f} % may be "
                "nothing"
            )
        return Sampled(tensor, metric, _mean(one, SMS, window)[0], dram, warnings)
    return Sampled()


def _mean(one: DeviceSamples, begins: tuple[str, ...], window: tuple[int, int]) -> tuple[float | None, str | None]:
    inside = (one.time_ns >= window[0]) & (one.time_ns <= window[1])
    for name, values in one.metrics.items():
        if name.startswith(begins):
            kept = values[inside]
            kept = kept[np.isfinite(kept)]
            if len(kept):
                return float(kept.mean()) / 100, name
    return None, None
