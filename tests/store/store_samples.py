"""Records of a small sweep, for the tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Machine, Tool
from dsv4bench.records.request import RequestRecord, TokenSource
from dsv4bench.records.server import Engine, Gauges, GpuSample, ServerInfo, TelemetrySample
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store

EPOCH_S = 1796079600.25
STARTED = "2026-12-01T00:00:00Z"
STARTED_S = 1796083200.0
WORKLOAD = Workload(
    endpoint="completions", dataset="random", prompt_kind="token_ids", isl=[1024], osl=256, seed=7, vocab_size=1000
)
PLAN = Plan(concurrency=[1, 8], isl=[1024], repeat=1)


def make_server(**fields: Any) -> ServerInfo:
    known = {"url": "http://127.0.0.1:8000", "engine": Engine.SGLANG, "model": "m", "process_start_time_s": EPOCH_S}
    return ServerInfo(**{**known, **fields})


def make_experiment(root: Path, config: str = "baseline", scenario: str = "c16", **fields: Any) -> ExperimentDir:
    known: dict[str, Any] = {
        "workload": WORKLOAD,
        "plan": PLAN,
        "server": make_server(),
        "machine": Machine(cpu="x", cores=2, memory_bytes=1, os="l", kernel="6", python="3.12", hostname_sha256="ab"),
        "server_on_this_host": True,
        "tool": Tool(version="0.1.0"),
        "launches": {"L0": EPOCH_S},
    }
    return Store(root).create(scenario=scenario, config=config, **{**known, **fields})


def make_cell(cell: str = "r0-c8-i1024", **fields: Any) -> Cell:
    known: dict[str, Any] = {
        **{field.name: None for field in msgspec.structs.fields(Cell) if field.required},
        "cell": cell,
        "launch": "L0",
        "repeat": 0,
        "concurrency": 8,
        "isl": 1024,
        "osl": 256,
        "started_utc": STARTED,
        "n_sent": 24,
        "n_ok": 24,
        "n_err": 0,
        "token_source": TokenSource.USAGE,
        "peak_in_flight": 8,
        "timestamps": "kernel",
        "n_workers": 1,
        "tpot_p50_s": 0.0123456789,
    }
    return Cell(**{**known, **fields})


def make_request(
    index: int = 0, *, ttft_s: float = 0.1, tpot_s: float = 0.02, n: int = 6, **fields: Any
) -> RequestRecord:
    """A completed request of `n` tokens, one a chunk."""
    first = round(ttft_s * 1e9)
    chunks = [first + round(i * tpot_s * 1e9) for i in range(n)]
    known: dict[str, Any] = {
        "t_send_ns": 0,
        "t_first_ns": chunks[0],
        "t_last_ns": chunks[-1],
        "t_end_ns": chunks[-1] + 1000,
        "chunk_ns": chunks,
        "n_first": 1,
        "output_tokens": n,
        "token_source": TokenSource.USAGE,
    }
    return RequestRecord(index=index, **{**known, **fields})


def make_sample(t_s: float, cell: str = "r0-c8-i1024", total: float | None = None, **gauges: Any) -> TelemetrySample:
    gauge = Gauges(t_s=STARTED_S + t_s, output_tokens_total=total, **gauges)
    gpu = GpuSample(index=0, sm_clock_mhz=1500, power_w=100.0 + t_s, throttle=["sw_power_cap"] if t_s > 5 else [])
    return TelemetrySample(t_s=STARTED_S + t_s, cell=cell, gauges=gauge, gpus=[gpu])
