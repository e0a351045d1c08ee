"""What the verbs of `kernels` find: parity, times, and the instructions of each build.

Parity speaks of one text of one kernel on one device. A time is the median of graph replays in one run; figures of
different runs are not divided by each other. Floors count each needed byte once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4bench.records.codec import Document

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
    """One run of `kernels bench`: every row was timed in it."""

    schema: str = "dsv4bench.kernel_times/1"
    created_utc: str
    tool: str
    device: DeviceFacts
    ceiling: ReadCeiling | None
    rows: list[KernelTime]
    code: dict[str, str]
    notes: list[str] = msgspec.field(default_factory=list)


class InspectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One build. `mma` maps the root of each MMA instruction to its count; empty: none, so CUDA cores only."""

    kernel: str
    function: str
    role: KernelRole
    arch: str
    mma: dict[str, int]
    spill_bytes: int | None = None
    registers: int | None = None
    smem_bytes: int | None = None
    instructions: int | None = None
    triton: str
    label: str = ""
    why_null: str | None = None  # not compiled for this architecture, and why


class InspectDocument(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.inspect/1"
    rows: list[InspectRow]
