"""What the verbs of `kernels` find: parity, times, and the instructions of each build.

Parity speaks of one text of one kernel on one device. A time is the median of graph replays in one run; figures of
different runs are not divided by each other. Floors count each needed byte once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4bench.records.arm import Sample
from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.codec import Document
from dsv4bench.records.verdict import Grade, Verdict

KernelComponent = Literal["moe", "attention"]
KernelRole = Literal["fallback", "second_fallback", "optimized", "peer"]
Outcome = Literal["pass", "fail", "skipped"]


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where it ran. `name` is the GPU's own, or "cpu (Triton interpreter)"."""

    name: str
    arch: str | None = None  # "sm_90"
    sms: int | None = None
    l2_bytes: int | None = None
    driver: str | None = None
    torch: str
    triton: str | None = None


class ParityRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel on one case, against the float64 reference.

    `rel_fro` = |out - ref| / |ref| (Frobenius); `worst` = max |out - ref| / (atol + rtol |ref|), bad above 1.
    None where the output held NaN, was not written, or the kernel raised (`why` says which).
    """

    kernel: str
    case: str
    outcome: Outcome
    rel_fro: float | None = None
    rel_fro_limit: float | None = None
    worst: float | None = None
    lse_worst: float | None = None
    why: str | None = None


class ParityDocument(Document, frozen=True, kw_only=True):
    """`code` maps each kernel to the hash of its text; `green` lists the kernels whose every case passed."""

    schema: str = "dsv4bench.parity/1"
    created_utc: str
    tool: str
    device: DeviceFacts
    code: dict[str, str]
    green: list[str]
    red: list[str]
    rows: list[ParityRow]
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class KernelTime(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel at one batch. Microseconds a call: median, 10th and 90th percentile of the replays, and again.

    `floor_bytes`: the bytes that any implementation must move, from `dsv4`. `read_frac`: GB/s of the floor over the
    read ceiling of the same run. `speedup`: the component's fallback of the same run over this.
    """

    kernel: str
    component: KernelComponent
    role: KernelRole
    shape: str  # "E256 top6 D4096 I2048", "H64 window128 extra512 page64 sink"
    batch: int
    us: float | None = None
    us_again: float | None = None
    us_p10: float | None = None
    us_p90: float | None = None
    replays: int = 0
    calls_per_replay: int = 0
    floor_bytes: int | None = None
    gb_s: float | None = None
    read_frac: float | None = None
    floor_us: float | None = None  # floor_bytes at the cold-read rate of that size, measured in the same run
    tflop_s: float | None = None
    speedup: float | None = None
    tensor_pipe_pct: float | None = None  # of elapsed cycles, with --counters
    dram_pct: float | None = None
    parity: Literal["green", "own tolerance", "not checked"] | None = None
    why_null: str | None = None


class ReadCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """Read-only streams of this run. `cold` maps megabytes a launch to GB/s, data rotated through `stream_bytes`."""

    stream_gb_s: float
    stream_bytes: int
    cold_gb_s: dict[str, float] = msgspec.field(default_factory=dict)


class BenchDocument(Document, frozen=True, kw_only=True):
    """One run of `kernels bench`: every row was timed in it.

    `samples` are its times once more, as statistics take them: `kernel_time_s`, one a capture.
    """

    schema: str = "dsv4bench.kernel_times/1"
    created_utc: str
    tool: str
    device: DeviceFacts
    ceiling: ReadCeiling | None
    rows: list[KernelTime]
    code: dict[str, str]
    samples: list[Sample] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class AbRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two kernels at one batch, timed in turn. Microseconds: geometric means over the pairs; `delta_frac` of base."""

    batch: int
    shape: str
    base_us: float
    new_us: float
    delta_frac: float | None
    ci_frac: tuple[float, float] | None = None
    limit_frac: float | None = None
    pairs: int
    verdict: Verdict | None
    grade: Grade | None
    reason: str = ""


class AbDocument(Document, frozen=True, kw_only=True):
    """What `kernels ab` found: did `new` become faster than `base`, and is that more than noise?"""

    schema: str = "dsv4bench.kernel_ab/1"
    created_utc: str
    tool: str
    device: DeviceFacts
    component: KernelComponent
    base: str
    new: str
    code: dict[str, str]
    rows: list[AbRow]
    samples: list[Sample] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class InspectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One build for one architecture.

    `mma` maps the root of each MMA instruction to how often it stands in the code; empty: none, so CUDA cores only;
    None: not known, and `why_null` says why. `spill_bytes`: what a thread stores to local memory, as ptxas counts it.
    """

    kernel: str
    function: str
    label: str = ""
    role: KernelRole
    arch: str
    mma: dict[str, int] | None = None
    instructions: int | None = None
    fp64: int | None = None  # double-precision instructions: a literal that widened by mistake
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
    cannot_run: str | None = None  # compiled, but no GPU of this architecture can launch it
    triton: str
    why_null: str | None = None


class InspectDocument(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.inspect/1"
    rows: list[InspectRow]


class KernelInput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    dtype: str
    shape: str


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of the registry. `floor_bytes` and `flops` are those of one call at the document's batch.

    `loads`: whether its libraries are here; `why_not` names what is missing. `fits_gpu`: None without a GPU.
    """

    name: str
    component: KernelComponent
    role: KernelRole
    summary: str
    replaces: str | None
    default: bool  # False: only when named, because it changes the numbers
    inputs: list[KernelInput]
    min_sm: int
    archs: list[str]  # exactly these; empty: every one from min_sm on
    loads: bool
    why_not: str | None
    fits_gpu: bool | None
    call: str  # what the two figures are of: "M=16, 256 experts, top 6, 4096 x 2048"
    floor_bytes: int
    flops: int


class KernelListDocument(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.kernels/1"
    batch: int
    gpu: str | None  # "NVIDIA H200 (sm_90)"
    kernels: list[KernelEntry]
