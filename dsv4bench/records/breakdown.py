"""Where the decode time went: devices, components, kernels, units, steps, and what would be worth changing.

`devices` speak of the whole file, `steps` of the decode steps; the plan uses the steps. Every share names its
denominator in its field name. Times are nanoseconds; an invariant holds to the nanosecond on every device:
Σ component exclusive + overlap + copy-only + idle = window.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.codec import Document
from dsv4bench.records.device import DeviceActivity

RunsOn = Literal["tensor", "cuda", "unknown"]
UnitEvidence = Literal["counter", "sass", "rule", "none"]


class ComponentTime(msgspec.Struct, frozen=True, kw_only=True):
    """One component. `time_ns` is the sum of its kernels, `exclusive_ns` the time when nothing else ran."""

    component: str
    time_ns: int
    exclusive_ns: int | None = None
    count: int = 0
    share_of_sum_frac: float | None = None
    share_of_busy_frac: float | None = None
    share_of_span_frac: float | None = None


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel name (of one grid where `grid` is given)."""

    name: str
    component: str
    rule: str | None = None  # the rule that named the component; None: no rule did
    count: int
    time_ns: int
    share_of_sum_frac: float | None = None
    runs_on: RunsOn = "unknown"
    evidence: UnitEvidence = "none"
    evidence_note: str = ""
    tensor_pipe_frac: float | None = None
    tensor_pipe_metric: str | None = None  # with its denominator: of elapsed or active cycles
    dram_frac: float | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    waves: float | None = None


class UnitTime(msgspec.Struct, frozen=True, kw_only=True):
    runs_on: RunsOn
    time_ns: int
    share_of_busy_frac: float | None = None


class OverlapTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which kernels of these components, and no others, ran together."""

    components: list[str]
    time_ns: int


class DeviceBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one rank's file. The times are None where the file holds sums only (a table has no timeline)."""

    device: int
    label: str | None
    rank: int | None
    file: str
    gpu: str | None = None
    window_ns: int | None
    kernel_sum_ns: int
    kernel_busy_ns: int | None
    any_busy_ns: int | None
    copy_only_ns: int | None
    idle_ns: int | None
    overlap_ns: int | None
    opaque_graph_ns: int
    kernels: int
    copies: int = 0
    copy_sum_ns: int = 0  # copies and memsets; in no component and not in the kernel sum
    streams: int = 0
    zero_duration: int = 0
    repaired: int = 0  # kernels with an impossible duration, cut at the next start on their stream
    sm_coverage_frac: float | None = None
    grid_known_frac: float | None = None  # share of kernel time that has a grid
    graph_kernels_frac: float | None = None
    tensor_pipe_frac: float | None = None  # of the window, from samples
    tensor_pipe_metric: str | None = None
    sm_active_frac: float | None = None
    dram_frac: float | None = None
    components: list[ComponentTime] = msgspec.field(default_factory=list)
    overlaps: list[OverlapTime] = msgspec.field(default_factory=list)
    units: list[UnitTime] = msgspec.field(default_factory=list)
    rows: list[KernelRow] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


class StepComponent(msgspec.Struct, frozen=True, kw_only=True):
    """Median over the decode steps: kernel time and exclusive time of one component a step."""

    component: str
    median_ns: int
    exclusive_median_ns: int | None = None
    launches: float | None = None
    share_of_step_frac: float | None = None  # exclusive time of the step's span


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The decode steps of one label: median over steps, then over ranks. None where no step was found."""

    label: str | None = None
    count: int
    method: str  # annotation | graph launch | nvtx | anchor kernel | none
    median_ns: int | None = None
    iqr_ns: tuple[int, int] | None = None
    busy_median_ns: int | None = None
    idle_median_ns: int | None = None
    overlap_median_ns: int | None = None
    copy_only_median_ns: int | None = None
    launches: float | None = None  # kernels a step
    graph_launches: float | None = None
    layers: int | None = None
    batch: int | None = None  # sequences a step, where the annotation tells
    prefill_steps: int = 0
    mixed_steps: int = 0
    components: list[StepComponent] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of one label: never summed."""

    label: str | None
    ranks: list[int | None]
    missing: list[int] = msgspec.field(default_factory=list)
    median_busy_frac: float | None = None
    worst_rank: int | None = None
    worst_busy_frac: float | None = None
    components_median: list[ComponentTime] = msgspec.field(default_factory=list)


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One target: what it can bring at most, alone and with all before it, at this concurrency."""

    component: str
    share_of_step_frac: float
    bound_ratio: float | None  # made free; None: without bound
    speedup: float | None = None  # k, from a roofline or a measured kernel
    speedup_source: str | None = None
    target_ratio: float | None = None  # at k
    joint_ratio: float | None = None  # with every step before it, made free
    joint_tok_s: float | None = None
    joint_at_k_ratio: float | None = None  # the same at k; those without a k stay as they are
    binds: str | None = None  # DRAM bytes | tensor FLOPs | occupancy | launches | unknown
    reason: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    label: str | None = None
    concurrency: int | None = None
    measured_tok_s: float | None = None
    target_tok_s: float | None = None
    roofline_tok_s: float | None = None  # the least time of all components; None: not known, or several tokens a step
    unattributed_frac: float | None = None
    ceiling_ratio: float | None = None
    ceiling_tok_s: float | None = None
    at_k_ratio: float | None = None  # the whole plan at k; targets without a k stay as they are
    at_k_tok_s: float | None = None
    needed_frac: float | None = None  # how much of the step must vanish before the target is met
    of: str = "span"  # what the shares are of: span, busy, sum or unknown
    steps: list[PlanStep] = msgspec.field(default_factory=list)
    refusals: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """One component, side by side: time a step under two labels."""

    component: str
    base_label: str | None
    new_label: str | None
    base_ns: int | None
    new_ns: int | None
    delta_ns: int | None
    ratio: float | None
    base_share_frac: float | None = None
    new_share_frac: float | None = None


class LiveLabel(msgspec.Struct, frozen=True, kw_only=True):
    """Which implementations really ran, by the names of the kernels: the largest first, those with a tenth or more.

    Empty: no kernel of that component, or none whose name tells.
    """

    label: str | None = None
    moe: list[str] = msgspec.field(default_factory=list)
    attention: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def text(self) -> str:
        """`moe marlin, attention fallback-mh`."""
        parts = (("moe", self.moe), ("attention", self.attention))
        return ", ".join(f"{name} {'+'.join(found) if found else 'unknown'}" for name, found in parts)


class CaptureNote(msgspec.Struct, frozen=True, kw_only=True):
    """How one label was captured from a running server, and what recording did to it.

    TPOT `without` is of a run of its own under the same load, not profiled; `with` of the recorded window. Both are
    means over the held requests, as the client saw them. A step is TPOT times the tokens a step.
    """

    label: str
    method: str  # torch | nsys | pm
    concurrency: int
    role: str | None = None
    isl: int | None = None
    steps_asked: int
    steps_seen: int | None = None
    window_s: float | None = None
    tokens_a_step: float | None = None  # 1 without speculation
    tpot_without_s: float | None = None
    tpot_with_s: float | None = None
    inflation_ratio: float | None = None  # with over without
    output_tok_s: float | None = None  # without: concurrency / TPOT
    trace_step_s: float | None = None
    step_difference_frac: float | None = None  # the trace's step over the step without, less 1
    replaced: int = 0  # requests that ended inside the window
    running: float | None = None  # by the server's gauge, as the window closed
    activity: DeviceActivity | None = None  # of the GPUs over the window, where they were sampled
    files: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


class BreakdownDocument(Document, frozen=True, kw_only=True):
    """What `profile --json` prints; kernels.json keeps one a coordinate."""

    schema: str = "dsv4bench.breakdown/1"
    config: str | None = None
    concurrency: int | None = None
    isl: int | None = None
    devices: list[DeviceBreakdown] = msgspec.field(default_factory=list)
    ranks: list[RankSummary] = msgspec.field(default_factory=list)
    steps: Steps | None = None
    steps_by_label: list[Steps] = msgspec.field(default_factory=list)
    shifts: list[Shift] = msgspec.field(default_factory=list)
    live: list[LiveLabel] = msgspec.field(default_factory=list)  # one a label
    captures: list[CaptureNote] = msgspec.field(default_factory=list)  # of a running server; none for given files
    plan: list[PlanStep] = msgspec.field(default_factory=list)
    plans: list[Plan] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class BreakdownsDocument(Document, frozen=True, kw_only=True):
    """kernels.json of one experiment: its breakdowns, one a coordinate."""

    schema: str = "dsv4bench.breakdowns/1"
    breakdowns: list[BreakdownDocument] = msgspec.field(default_factory=list)
