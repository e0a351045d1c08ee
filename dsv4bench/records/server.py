"""Who answered, and what it said about itself: engine, version, arguments, gauges."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec


class Engine(StrEnum):
    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMACPP = "llama.cpp"
    TRANSFORMERS = "transformers"
    DSV4BENCH = "dsv4bench"  # our embedded server
    GENERIC = "generic"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A server behind a front end, as the front end names it."""

    url: str | None = None
    role: str | None = None  # decode | prefill; None: it does both, or its front end does not say


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What detection found. A field the server does not tell is None; `missing` says which and why."""

    url: str  # base URL with its path prefix, without /v1
    engine: Engine
    version: str | None = None
    model: str
    models: list[str] = msgspec.field(default_factory=list)
    max_model_len: int | None = None
    vocab_size: int | None = None
    vocab_source: Literal["server", "config"] | None = None  # config: a model directory that this host can read
    tokenizer: str | None = None
    process_start_time_s: float | None = None  # epoch; one value is one launch
    metrics_path: str | None = None  # None: no Prometheus metrics there
    args: dict[str, Any] | None = None  # as the server reports them, redacted
    missing: dict[str, str] = msgspec.field(default_factory=dict)  # what -> why
    notes: list[str] = msgspec.field(default_factory=list)  # a router, one of several models, …
    front_end: str | None = None  # what it is in front of; its gauges and profiles are the workers'
    workers: list[Worker] = msgspec.field(default_factory=list)  # behind it, as far as it tells


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape of the server's metrics, mapped to common names. None: this server does not have it."""

    t_s: float  # epoch
    running: float | None = None
    waiting: float | None = None
    kv_usage_frac: float | None = None
    prompt_tokens_total: float | None = None
    output_tokens_total: float | None = None
    prefix_queries_total: float | None = None
    prefix_hits_total: float | None = None
    spec_drafts_total: float | None = None
    spec_draft_tokens_total: float | None = None
    spec_accepted_total: float | None = None
    spec_accept_length: float | None = None  # where only a gauge exists (SGLang); bonus token included
    preemptions_total: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    tpot_sum_s: float | None = None
    tpot_count: float | None = None
    itl_sum_s: float | None = None
    itl_count: float | None = None
    process_start_time_s: float | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One NVML reading of one GPU on this host, or means of its counters over the time since the one before."""

    index: int
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    util_frac: float | None = None
    memory_used_bytes: int | None = None
    throttle: list[str] = msgspec.field(default_factory=list)
    tensor_pipe_frac: float | None = None  # of elapsed cycles, as are the next two; with --tensor-pipe
    sm_active_frac: float | None = None
    dram_frac: float | None = None


class TelemetrySample(msgspec.Struct, frozen=True, kw_only=True):
    """One line of telemetry.jsonl: the server's gauges and this host's GPUs at one moment of a level."""

    t_s: float
    cell: str
    gauges: Gauges | None = None
    gpus: list[GpuSample] = msgspec.field(default_factory=list)
