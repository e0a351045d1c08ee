"""The numbers of one level: one (launch, repeat, concurrency, isl). This is what `compare` reads.

Every field is defined in `metrics.py` or here; None is "no data", and `why_null` names the reason for the ones
a reader would miss.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from dsv4bench.records.codec import Document
from dsv4bench.records.device import DeviceActivity
from dsv4bench.records.request import TokenSource


class Invalid(StrEnum):
    """Why a level's numbers must not be used; it is shown all the same."""

    CLIENT_SATURATED = "client_saturated"
    SHORT_OUTPUT = "short_output"
    CACHE_CONTAMINATED = "cache_contaminated"
    PROMPT_LENGTH = "prompt_length"  # realised ISL is more than 2 % off the requested one
    ALL_FAILED = "all_failed"
    CONCURRENCY_NOT_HELD = "concurrency_not_held"
    OTHER_TRAFFIC = "other_traffic"  # the server generated for someone else, too
    INTERRUPTED = "interrupted"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One level. Seconds, tokens, tokens a second; percentiles by nearest rank over completed requests."""

    # coordinates
    cell: str  # "r0-c8-i1024"
    launch: str  # one value of the server's process start time
    repeat: int
    concurrency: int | None  # None in an open loop
    rate_req_s: float | None = None
    isl: int
    osl: int | None
    started_utc: str
    duration_s: float | None  # first send to last token

    # counts
    n_sent: int
    n_ok: int
    n_err: int
    n_cancelled: int = 0
    n_retried: int = 0
    n_short: int = 0
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    error_example: str | None = None
    invalid: Invalid | None = None
    invalid_why: str | None = None
    notes: list[str] = msgspec.field(default_factory=list)

    # tokens
    token_source: TokenSource
    output_tokens: int | None
    prompt_tokens: int | None
    isl_mean: float | None
    osl_mean: float | None
    tokens_per_chunk: float | None

    # throughput
    output_tok_s: float | None
    output_tok_s_steady: float | None
    total_tok_s: float | None
    request_s: float | None
    tok_s_per_user: float | None
    steady_s: float | None
    steady_frac: float | None
    full_load_n: int | None = None  # requests under full load (load/full_load.py); the next two are theirs
    full_load_tok_s: float | None = None
    full_load_tpot_mean_s: float | None = None
    goodput_req_s: float | None = None
    slo_frac: float | None = None

    # latency
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    ttfc_p50_s: float | None
    ttft_content_p50_s: float | None
    tpot_mean_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p99_s: float | None
    ntpot_p50_s: float | None
    icl_mean_s: float | None
    icl_p50_s: float | None
    icl_p99_s: float | None
    e2e_mean_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    e2e_stream_p50_s: float | None
    queue_client_p99_s: float | None = None
    n_late: int | None = None  # open loop: sends later than 1 ms

    # the batch
    achieved_batch: float | None
    decode_batch: float | None
    peak_in_flight: int | None
    server_running_mean: float | None = None
    server_waiting_mean: float | None = None
    kv_usage_max_frac: float | None = None
    accept_length: float | None = None
    prefix_hit_frac: float | None = None

    # the tool's own error
    timestamps: Literal["kernel", "user", "unknown"]
    client_lag_p50_s: float | None
    client_lag_p99_s: float | None
    client_lag_max_s: float | None
    merged_reads_frac: float | None
    worker_cpu_frac: float | None
    n_workers: int

    # the server's own view of the same level
    server_output_tokens: float | None = None
    server_ttft_mean_s: float | None = None
    server_tpot_mean_s: float | None = None
    gpu_sm_clock_mean_mhz: float | None = None
    gpu_power_mean_w: float | None = None
    gpu_throttle: list[str] = msgspec.field(default_factory=list)

    # the GPUs' counters over the steady window, sampled from outside (--tensor-pipe); of elapsed cycles
    tensor_pipe_frac: float | None = None
    sm_active_frac: float | None = None
    dram_frac: float | None = None
    device: DeviceActivity | None = None  # metrics by name, method, percentiles, dropped samples
    why_null: dict[str, str] = msgspec.field(default_factory=dict)

    # of cells that were published or imported rather than measured here
    rounding: dict[str, float] = msgspec.field(default_factory=dict)  # field -> half of its last printed digit
    approximate: list[str] = msgspec.field(default_factory=list)  # fields given as "about": they enter no verdict
    block: int | None = None  # launches of one block are pairs


class ErrorNote(msgspec.Struct, frozen=True, kw_only=True):
    """An error inside a JSON document: what the terminal shows as `error:` and `hint:`."""

    message: str
    hint: str = ""
    exit_code: int


class CellsDocument(Document, frozen=True, kw_only=True):
    """What `dsv4bench sweep --json` prints, also when it failed (then `error` says why)."""

    schema: str = "dsv4bench.cells/1"
    id: str | None = None
    path: str | None = None
    status: str | None = None
    cells: list[Cell] = msgspec.field(default_factory=list)
    largest_concurrency_within_slo: int | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None
