"""Torch-profiler traces of decode steps with known times, as SGLang's profiler writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MOE, ATTENTION = "_mxfp4_slot_gemv_kernel", "_tiled_sparse_decode_kernel"
COMM = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
UNNAMED = "zzq_unheard_of"
KERNELS_US = {MOE: 40.0, ATTENTION: 30.0, COMM: 10.0}  # one after the other
GAP_US = 20.0


def write_trace(
    path: Path,
    *,
    steps: int = 14,
    batch: int = 16,
    kernels_us: Mapping[str, float] = KERNELS_US,
    gap_us: float = GAP_US,
    rank: int | None = None,
    world_size: int | None = None,
    gpu: str = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    grid: Sequence[int] = (64, 1, 1),
    layers: int = 1,
) -> Path:
    """Each step is `layers` times the kernels of `kernels_us`, then an idle gap."""
    events: list[dict[str, Any]] = []
    at, correlation = 1000.0, 0
    for _ in range(steps):
        start = at
        for name, duration in list(kernels_us.items()) * layers:
            correlation += 1
            events += _launched(name, at, duration, correlation, grid)
            at += duration
        at += gap_us
        length = at - start - 2
        events.append(_x("user_annotation", f"step[DECODE bs={batch}]", start - 10, length, {"External id": 1}, 1, 1))
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": gpu, "numSms": 188, "computeMajor": 12, "computeMinor": 0}],
        "traceEvents": events,
    }
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_cpu_only(path: Path) -> Path:
    """A capture of a process that launched nothing on a GPU."""
    events = [_x("cpu_op", f"aten::op_{i}", 10.0 * i, 5.0, {"External id": i}, 1, 1) for i in range(20)]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}), encoding="utf-8")
    return path


def _launched(name: str, at: float, duration: float, correlation: int, grid: Sequence[int]) -> list[dict[str, Any]]:
    args = {"device": 0, "stream": 7, "correlation": correlation, "grid": list(grid), "block": [128, 1, 1]}
    call = _x("cuda_runtime", "cudaLaunchKernel", at - 8, 1.0, {"correlation": correlation}, 1, 1)
    return [call, _x("kernel", name, at, duration, args, 0, 7)]


def _x(category: str, name: str, ts: float, dur: float, args: dict[str, Any], pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
