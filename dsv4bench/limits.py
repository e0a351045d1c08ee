"""What cannot be exceeded: joint Amdahl over a measured step, and the roofline of the bytes and FLOPs it needs.

    speed-up = 1 / (1 − Σ f_i + Σ f_i / s_i)        time of a component ≥ max(bytes / bandwidth, FLOPs / peak)

Shares must share one denominator; components run one after another, so a step's floor is the sum of theirs.
Launch gaps, latency and imbalance are left out, hence every result is an upper bound of speed, never a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from dsv4bench.dsv4 import ComponentCost, ModelDims, Sharding, StepComponent, Variant, step_costs
from dsv4bench.errors import UsageError
from dsv4bench.gpus import Gpu, Kind

Denominator = Literal["sum", "busy", "span"]
ROUNDING = 1e-9
MAX_UNATTRIBUTED = 0.15  # of a step: above it no plan stands on the rest


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A component's part of the step and how much faster it becomes (infinity: it becomes free)."""

    name: str
    share_frac: float
    of: Denominator
    speedup: float = math.inf


def amdahl(shares: Iterable[Share]) -> float:
    """Joint speed-up of the whole when every share gains its own; infinite when all of it becomes free.

    Raises UsageError for shares outside 0..1, of different denominators, named twice, or above 1 in sum.
    """
    shares = list(shares)
    _check_shares(shares)
    untouched = 1 - sum(s.share_frac for s in shares)
    if abs(untouched) < ROUNDING:  # 0.39 + 0.38 + 0.23 is not 1 in binary
        untouched = 0.0
    left = untouched + sum(s.share_frac / s.speedup for s in shares)
    return 1 / left if left > 0 else math.inf


def unattributed_frac(shares: Iterable[Share]) -> float:
    """What no share accounts for. Raises UsageError as `amdahl` does."""
    shares = list(shares)
    _check_shares(shares)
    return max(0.0, 1 - sum(s.share_frac for s in shares))


def needed_frac(measured_tok_s: float, target_tok_s: float) -> float:
    """How much of the step must vanish before the target is met; 0 when it is met already."""
    _positive(measured_tok_s=measured_tok_s, target_tok_s=target_tok_s)
    return max(0.0, 1 - measured_tok_s / target_tok_s)


def _check_shares(shares: list[Share]) -> None:
    for s in shares:
        if not 0 <= s.share_frac <= 1:
            raise UsageError(f"share of {s.name}: {s.share_frac}", "a share lies between 0 and 1")
        if not s.speedup > 0:
            raise UsageError(f"speed-up of {s.name}: {s.speedup}", "a speed-up is above 0; infinity means free")
    if len({s.of for s in shares}) > 1:
        named = ", ".join(f"{s.name} of {s.of}" for s in shares)
        raise UsageError(f"shares of different denominators: {named}", "take all from one breakdown")
    names = [s.name for s in shares]
    if len(set(names)) < len(names):
        raise UsageError(f"a component is named twice: {', '.join(names)}", "join its shares first")
    total = sum(s.share_frac for s in shares)
    if total > 1 + ROUNDING:
        raise UsageError(f"shares sum to {total:.4g}", "shares of one step cannot exceed 1; do they overlap?")


def step_s(batch: float, output_tok_s: float, accept_length: float = 1.0) -> float:
    """Time of a decode step from aggregate output: batch · accepted tokens a step / (tok/s)."""
    _positive(batch=batch, output_tok_s=output_tok_s, accept_length=accept_length)
    return batch * accept_length / output_tok_s


def output_tok_s(batch: float, step_s: float, accept_length: float = 1.0) -> float:
    """Aggregate output of steps that last `step_s`."""
    _positive(batch=batch, step_s=step_s, accept_length=accept_length)
    return batch * accept_length / step_s


def ceiling_tok_s(batch: float, step_s: float, shares: Iterable[Share], accept_length: float = 1.0) -> float:
    """Output when `shares` of a step that lasts `step_s` gain their speed-ups; infinite when all becomes free."""
    return output_tok_s(batch, step_s, accept_length) * amdahl(shares)


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The least time of one component on one GPU. A resource without a known rate is None and bounds nothing."""

    component: StepComponent
    memory_s: float
    compute_s: float | None
    link_s: float | None
    time_s: float
    bound: Literal["memory", "compute", "link", "none"]


def roofline(
    cost: ComponentCost, gpu: Gpu, *, efficiency: float = 1.0, link_bytes_s: float | None = None
) -> Roofline:
    """max(bytes / bandwidth, FLOPs / peak, link bytes / link rate), at `efficiency` of bandwidth and peak.

    Raises UsageError unless 0 < efficiency <= 1.
    """
    if not 0 < efficiency <= 1:
        raise UsageError(f"efficiency {efficiency}", "give a fraction above 0 and up to 1")
    if link_bytes_s is not None:
        _positive(link_bytes_s=link_bytes_s)
    peak = gpu.peak(cost.math)
    memory_s = cost.bytes_memory / (gpu.bandwidth_bytes_s * efficiency)
    compute_s = None if peak is None else cost.flops / (peak * efficiency)
    link_s = None if link_bytes_s is None else cost.bytes_link / link_bytes_s
    times: dict[Literal["memory", "compute", "link"], float] = {
        "memory": memory_s,
        "compute": compute_s or 0.0,
        "link": link_s or 0.0,
    }
    bound = max(times, key=lambda k: times[k])
    return Roofline(
        component=cost.component,
        memory_s=memory_s,
        compute_s=compute_s,
        link_s=link_s,
        time_s=times[bound],
        bound=bound if times[bound] > 0 else "none",
    )


class StepFloor(msgspec.Struct, frozen=True, kw_only=True):
    """The least time of a decode step on GPUs of this kind, and the output that follows."""

    gpu: str
    gpu_kind: Kind
    gpu_source: str
    batch: int
    context: int
    tp: int
    efficiency: float
    components: tuple[Roofline, ...]
    time_s: float
    output_tok_s: float  # aggregate cap


def step_floor(
    dims: ModelDims,
    gpu: Gpu,
    batch: int,
    context: int,
    *,
    tp: int = 1,
    efficiency: float = 1.0,
    verified: int = 1,
    accept_length: float = 1.0,
    variant: Variant = "ideal",
    sharding: Sharding = "even",
    link_bytes_s: float | None = None,
) -> StepFloor:
    """Sum of the components' rooflines. Communication counts only when the link's rate is given.

    Under uniform routing the floor of `sharding="even"` holds for every server that reads the checkpoint's own
    formats; "replicated" is nearer to what servers do.
    Raises UsageError when more tokens are accepted than verified.
    """
    if not 1 <= accept_length <= verified:
        raise UsageError(
            f"acceptance length {accept_length} with {verified} verified tokens", "it lies between 1 and verified"
        )
    costs = step_costs(dims, batch, context, tp=tp, verified=verified, variant=variant, sharding=sharding)
    lines = tuple(roofline(c, gpu, efficiency=efficiency, link_bytes_s=link_bytes_s) for c in costs)
    time_s = sum(line.time_s for line in lines)
    return StepFloor(
        gpu=gpu.name,
        gpu_kind=gpu.kind,
        gpu_source=gpu.source,
        batch=batch,
        context=context,
        tp=tp,
        efficiency=efficiency,
        components=lines,
        time_s=time_s,
        output_tok_s=output_tok_s(batch, time_s, accept_length),
    )


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UsageError(f"{name} = {value} must be above 0 and finite")
