"""How much faster one component can become, and which resource stands in the way.

    k = time of its kernels a step / time that its bytes and FLOPs need on this GPU        (never below 1)

k comes from the roofline, or from a measured kernel A/B and then never exceeds the roofline. What binds is taken
from the strongest evidence there is: counters, closeness to the roof, the time of one launch, the SMs that the grids
cover, and last the roof itself. A kernel on CUDA cores that is near its DRAM roof gains nothing from tensor cores,
and this says so. Elementwise work has no roofline here: what it moves fits the L2 cache, and fusion can remove it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dsv4bench.gpus import Gpu
from dsv4bench.limits import Roofline
from dsv4bench.records.breakdown import RunsOn

NEAR_ROOF = 1.5  # k below it: the roof itself binds
BUSY_RESOURCE = 0.6  # of peak, from counters
SHORT_LAUNCH_NS = 5_000  # a kernel's own minimum is 1 to 2 µs
FEW_SMS = 0.6

DRAM, TENSOR, OCCUPANCY, LAUNCHES, LINK, UNKNOWN = (
    "DRAM bytes",
    "tensor FLOPs",
    "occupancy",
    "launches",
    "link bytes",
    "unknown",
)
_RESOURCE = {"memory": DRAM, "compute": TENSOR, "link": LINK, "none": UNKNOWN}


class KernelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one component's kernels in a step; None: not told."""

    time_ns: int
    launches: float | None = None
    runs_on: RunsOn = "unknown"  # of nearly all its time
    sm_coverage_frac: float | None = None
    dram_frac: float | None = None
    tensor_pipe_frac: float | None = None


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """The roofline of one component, and what its FLOPs would take on the CUDA cores."""

    line: Roofline
    cuda_cores_s: float | None
    gpu: str
    bandwidth_gb_s: float
    kind: str


class Binding(NamedTuple):
    """`speedup` None: nothing tells it."""

    speedup: float | None
    source: str | None
    binds: str
    reason: str


def roof(line: Roofline, flops: float, gpu: Gpu) -> Roof:
    """A component's roofline beside the GPU that it is of."""
    fp32 = gpu.peaks.fp32
    return Roof(
        line=line,
        cuda_cores_s=None if fp32 is None else flops / fp32,
        gpu=gpu.name,
        bandwidth_gb_s=gpu.bandwidth_bytes_s / 1e9,
        kind=gpu.kind,
    )


def bind(facts: KernelFacts, roof: Roof | None = None, measured_k: float | None = None) -> Binding:
    """k with its source, and the resource that binds with the reason."""
    k = roof_speedup(facts, roof)
    speedup, source = _speedup(k, roof, measured_k)
    binds, reason = _resource(facts, roof, k)
    advice = _tensor_advice(facts, roof, binds)
    return Binding(speedup, source, binds, f"{reason}; {advice}" if advice else reason)


def roof_speedup(facts: KernelFacts, roof: Roof | None) -> float | None:
    """Measured time over the roofline's; below 1 it is returned as it is, since then the bytes model is wrong."""
    if roof is None or not roof.line.time_s > 0 or facts.time_ns <= 0:
        return None
    return facts.time_ns / 1e9 / roof.line.time_s


def _speedup(k: float | None, roof: Roof | None, measured_k: float | None) -> tuple[float | None, str | None]:
    if k is None or roof is None:
        return measured_k, None if measured_k is None else f"measured kernel x{measured_k:g}; no roofline to check it"
    line = f"roofline {roof.line.time_s * 1e3:.3g} ms on {roof.gpu} ({roof.bandwidth_gb_s:.0f} GB/s, {roof.kind})"
    at_most = max(k, 1.0)
    if measured_k is None:
        return at_most, line
    if measured_k > at_most:
        return at_most, f"measured kernel x{measured_k:g}, above what the {line} allows"
    return measured_k, f"measured kernel x{measured_k:g}; {line} allows x{_times(at_most)}"


def _resource(facts: KernelFacts, roof: Roof | None, k: float | None) -> tuple[str, str]:
    if facts.dram_frac is not None and facts.dram_frac >= BUSY_RESOURCE:
        return DRAM, f"counters: DRAM at {100 * facts.dram_frac:.0f} % of its peak"
    if facts.tensor_pipe_frac is not None and facts.tensor_pipe_frac >= BUSY_RESOURCE:
        return TENSOR, f"counters: tensor pipe at {100 * facts.tensor_pipe_frac:.0f} % of its peak"
    if k is not None and roof is not None and k < 1 / NEAR_ROOF:
        return UNKNOWN, f"faster than its roofline (x{k:.2g}): the model, the GPU, --tp or --isl is another one"
    if k is not None and roof is not None and k < NEAR_ROOF:
        return _RESOURCE[roof.line.bound], f"at {100 * min(1.0, 1 / k):.0f} % of its roof already"
    if facts.launches and facts.time_ns / facts.launches < SHORT_LAUNCH_NS:
        each = facts.time_ns / facts.launches / 1e3
        return LAUNCHES, f"{facts.launches:.0f} launches a step of {each:.1f} us each: fuse them"
    if facts.sm_coverage_frac is not None and facts.sm_coverage_frac < FEW_SMS:
        return OCCUPANCY, f"its grids reach {100 * facts.sm_coverage_frac:.0f} % of the SMs: split the work further"
    if k is not None and roof is not None:
        return _RESOURCE[roof.line.bound], f"x{_times(k)} away from its roof"
    return UNKNOWN, "no roofline and no counters"


def _times(k: float) -> str:
    """Three digits, never an exponent."""
    return f"{k:.3g}" if k < 1000 else f"{float(f'{k:.3g}'):.0f}"


def _tensor_advice(facts: KernelFacts, roof: Roof | None, binds: str) -> str:
    """Whether tensor cores are the cure, for what runs on CUDA cores and only as far as the figures carry it."""
    if facts.runs_on != "cuda":
        return ""
    if binds == DRAM and (roof is None or facts.time_ns / 1e9 < NEAR_ROOF * roof.line.memory_s):
        return "it runs on CUDA cores, and tensor cores would gain nothing"
    if roof is None or roof.cuda_cores_s is None:
        return "it runs on CUDA cores"
    part = roof.cuda_cores_s / (facts.time_ns / 1e9)
    if part >= 0.5:
        return f"its FLOPs alone fill {100 * part:.0f} % of the time on CUDA cores: tensor cores can help"
    return f"its FLOPs need {100 * part:.0f} % of the time on CUDA cores: tensor cores alone are not the cure"
