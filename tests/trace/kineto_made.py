"""A small Kineto trace made here, and what a reader must find in it, in ns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsv4bench.records.trace import KernelTrace

HEAD: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132},
        {"id": 1, "name": "", "numSms": 132},
    ],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "cuda_driver_version": 13000,
    "environment": {"HF_TOKEN": "hf_secret"},
}


def event(
    cat: str, name: str, ts: object, dur: object, pid: object = 1, tid: object = 1, **args: Any
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: object, dur: object, **args: Any) -> dict[str, Any]:
    told = {"device": 0, "stream": 7, "grid": [1, 2, 3], "block": [32, 1, 1], "registers per thread": 12, **args}
    return event("kernel", name, ts, dur, 0, 7, **told)


EVENTS: list[dict[str, Any]] = [
    event("cpu_op", "aten::mm", 1.5, 2.25),
    event("user_annotation", "step[DECODE bs=1]", 99.5, 20.5),
    event("cuda_runtime", "cudaLaunchKernel", 100.125, 3.5, correlation=7),
    event("cuda_runtime", "cudaDeviceSynchronize", 100.125, 3.5, correlation=8),
    event("cuda_driver", "cuLaunchKernelEx", 101.125, 3.5, correlation=9),
    event("cuda_runtime", "cudaGraphLaunch", 102.125, 3.5, correlation=10),
    event("cuda_sync", "Stream Sync", 50.5, 900.5, 0, 7, device=0, stream=7),
    event("gpu_user_annotation", "step[DECODE bs=1]", 105.0, 19.5, 0, 7),
    kernel("kern_b<int>(int)", 120.5, 4.125, correlation=9),
    kernel("kern_a", 105.125, 4.375, correlation=7),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 111.0, 1.0, 0, 7, device=0, stream=7, correlation=11),
    event("gpu_memset", "Memset (Device)", 113.25, 0.5, 0, 7, device=0, stream=7),
    kernel("kern_c", 130.0, 1.0, correlation=10, **{"graph node id": (2 << 32) + 5}),
]
WORK = {
    ("kern_a", 105125, 109500, 0),
    ("kern_b<int>(int)", 120500, 124625, 0),
    ("kern_c", 130000, 131000, 0),
    ("Memcpy HtoD (Pinned -> Device)", 111000, 112000, 1),
    ("Memset (Device)", 113250, 113750, 2),
}


def document(events: list[Any] | None = None, **head: Any) -> str:
    return json.dumps({**HEAD, **head, "traceEvents": EVENTS if events is None else events}, indent=1)


def write(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def work(trace: KernelTrace) -> set[tuple[str, int, int, int]]:
    """(name, start, end, kind) of everything that ran."""
    columns = zip(trace.name, trace.start_ns, trace.end_ns, trace.kind, strict=True)
    return {(trace.kernel_names[n][0], int(a), int(b), int(k)) for n, a, b, k in columns}
