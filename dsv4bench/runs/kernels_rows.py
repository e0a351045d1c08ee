"""From what was measured to the rows of a benchmark: floors, shares, speed-ups, and the same times as Samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from dsv4bench import __version__
from dsv4bench.kernels.ceiling import launch_s
from dsv4bench.kernels.timing import Timing
from dsv4bench.kernels.workload import Workload
from dsv4bench.metrics import KERNEL_TIME
from dsv4bench.records.arm import Sample
from dsv4bench.records.kernels import BenchDocument, DeviceFacts, KernelTime, ReadCeiling
from dsv4bench.runs.kernels_candidates import Candidate

Parity = Literal["green", "own tolerance"]


class Measured(NamedTuple):
    """One kernel on one workload: a time and its parity, or why there is none."""

    kernel: Candidate
    load: Workload
    timing: Timing | None = None
    parity: Parity | None = None
    why: str | None = None
    tensor_pipe_pct: float | None = None
    dram_pct: float | None = None


def document_of(
    created_utc: str, device: DeviceFacts, ceiling: ReadCeiling, found: Sequence[Measured], notes: Sequence[str]
) -> BenchDocument:
    """The speed-up of a row is over the fallback of its component and batch, where that was timed."""
    base = {
        (m.load.component, m.load.batch): m.timing.median_s
        for m in found
        if m.kernel.role == "fallback" and m.timing is not None
    }
    rows = [_row(m, base.get((m.load.component, m.load.batch)), ceiling) for m in found]
    components = list(dict.fromkeys(r.component for r in rows))
    return BenchDocument(
        created_utc=created_utc,
        tool=__version__,
        device=device,
        ceiling=ceiling,
        rows=sorted(rows, key=lambda r: (components.index(r.component), r.batch)),
        code={m.kernel.name: m.kernel.code_hash() for m in found},
        samples=[sample for m in found for sample in _samples(m)],
        notes=list(notes),
    )


def _row(m: Measured, base_s: float | None, ceiling: ReadCeiling) -> KernelTime:
    load, t = m.load, m.timing
    row = KernelTime(
        kernel=m.kernel.name,
        component=load.component,
        role=m.kernel.role,
        shape=load.shape,
        batch=load.batch,
        floor_bytes=load.floor_bytes,
        why_null=m.why,
    )
    if t is None:
        return row
    floor_s = launch_s(load.floor_bytes, ceiling.cold_gb_s)
    gb_s = load.floor_bytes / t.median_s / 1e9
    return msgspec.structs.replace(
        row,
        us=t.median_s * 1e6,
        us_again=t.again_s * 1e6,
        us_p10=t.p10_s * 1e6,
        us_p90=t.p90_s * 1e6,
        replays=t.replays,
        calls_per_replay=t.calls,
        gb_s=gb_s,
        read_frac=gb_s / ceiling.stream_gb_s,
        floor_us=None if floor_s is None else floor_s * 1e6,
        tflop_s=load.cost.flops / t.median_s / 1e12,
        speedup=None if base_s is None else base_s / t.median_s,
        parity=m.parity,
        tensor_pipe_pct=m.tensor_pipe_pct,
        dram_pct=m.dram_pct,
    )


def _samples(m: Measured) -> list[Sample]:
    """A capture is what a launch is to a server: what is fixed once, and differs from one to the next."""
    if m.timing is None:
        return []
    return [
        kernel_sample(m.kernel.name, m.load.batch, i, None, seconds)
        for i, seconds in enumerate((m.timing.median_s, m.timing.again_s))
    ]


def kernel_sample(kernel: str, batch: int, capture: int, block: int | None, seconds: float) -> Sample:
    """One median as `compare` takes values; there is no prompt, so its length is 0."""
    return Sample(
        metric=KERNEL_TIME,
        config=kernel,
        concurrency=batch,
        rate_req_s=None,
        isl=0,
        launch=f"{kernel} capture {capture}",
        block=block,
        repeat=0,
        value=seconds,
    )
