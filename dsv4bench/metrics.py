"""What a metric means: name, unit, direction, scale, default δ, definition. The one registry of measured quantities.

`dsv4bench metrics` prints it; a `Cell` field is listed here or is a coordinate or a count. δ is the smallest change
worth a verdict, as a fraction; None: the metric carries no verdict by itself. Versioned by `VERSION`: a changed
definition is a new version, written beside every result.
"""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1
KERNEL_TIME = "kernel_time_s"

Direction = Literal["higher", "lower", "none"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity. `peers` says under which names other tools report the same thing."""

    name: str
    unit: str
    direction: Direction
    definition: str
    scale: Literal["log", "linear"] = "log"
    delta_frac: float | None = None
    peers: str = ""


def _metric(
    name: str,
    unit: str,
    direction: Direction,
    definition: str,
    delta_frac: float | None = None,
    scale: Literal["log", "linear"] = "log",
    peers: str = "",
) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        direction=direction,
        definition=definition,
        scale=scale,
        delta_frac=delta_frac,
        peers=peers,
    )


_TTFT = (
    "first non-empty generated text of any kind (content, reasoning, tool arguments) − t0; "
    "a role chunk does not count"
)
_TPOT = (
    "(t_last − t_first)/(n − n_first) a request; n from usage, n_first the tokens of the first chunk "
    "(n/chunks where the server does not count as it goes); none for one token"
)
_ICL = "gap between non-empty chunks; a chunk is not a token, so read it beside tokens_per_chunk"
_E2E = "last token − t0"
_T0 = " t0: just before the request's first byte is sent, on an open connection; in an open loop its scheduled time."

METRICS: tuple[Metric, ...] = (
    _metric(
        "output_tok_s",
        "tok/s",
        "higher",
        "output tokens of completed requests / (first send → last token); ramp and drain are inside",
        0.03,
        peers="vLLM output_throughput, SGLang output_throughput, AIPerf output_token_throughput",
    ),
    _metric(
        "output_tok_s_steady",
        "tok/s",
        "higher",
        "tokens that arrived in the steady window / its length; window: first moment with C in flight → last send",
        0.03,
        peers="vLLM (Rust) steady_state",
    ),
    _metric(
        "full_load_tok_s",
        "tok/s",
        "higher",
        "requests in flight · output tokens / end-to-end time, of the requests that began and ended while C were in "
        "flight, without the first C: neither ramp nor drain",
        0.03,
    ),
    _metric("total_tok_s", "tok/s", "higher", "(prompt + output tokens of completed requests) / duration", 0.03),
    _metric("request_s", "1/s", "higher", "completed requests / duration", 0.03),
    _metric(
        "tok_s_per_user", "tok/s", "higher", "1 / mean TPOT", 0.05, peers="AIPerf output_token_throughput_per_user"
    ),
    _metric("goodput_req_s", "1/s", "higher", "completed requests within every limit of --slo / duration", 0.03),
    _metric(
        "slo_frac", "frac", "higher", "requests within --slo / requests sent (failures are outside)", scale="linear"
    ),
    _metric("ttft_mean_s", "s", "lower", _TTFT + "; mean." + _T0, 0.05),
    _metric("ttft_p50_s", "s", "lower", _TTFT + "; median." + _T0, 0.05, peers="AIPerf time_to_first_token"),
    _metric("ttft_p90_s", "s", "lower", _TTFT + "; 90th percentile.", 0.10),
    _metric("ttft_p99_s", "s", "lower", _TTFT + "; 99th percentile.", 0.10),
    _metric(
        "ttfc_p50_s",
        "s",
        "lower",
        "first event with choices − t0, role chunks included; median",
        peers="vLLM (Python) ttft on the chat endpoint",
    ),
    _metric("ttft_content_p50_s", "s", "lower", "first text that is no reasoning − t0; median", peers="AIPerf TTFO"),
    _metric(
        "tpot_mean_s",
        "s",
        "lower",
        _TPOT + "; mean over requests",
        0.05,
        peers="vLLM and SGLang tpot, AIPerf and GuideLLM inter_token_latency",
    ),
    _metric(
        "full_load_tpot_mean_s", "s", "lower", _TPOT + "; mean over the requests that full_load_tok_s is of", 0.05
    ),
    _metric("tpot_p50_s", "s", "lower", _TPOT + "; median over requests", 0.05),
    _metric("tpot_p90_s", "s", "lower", _TPOT + "; 90th percentile", 0.10),
    _metric("tpot_p99_s", "s", "lower", _TPOT + "; 99th percentile", 0.10),
    _metric(
        "ntpot_p50_s",
        "s",
        "lower",
        "(t_last − t0)/n a request, TTFT inside; median",
        0.05,
        peers="GuideLLM time_per_output_token, inference-perf normalised TPOT",
    ),
    _metric(
        "icl_mean_s",
        "s",
        "lower",
        _ICL + "; mean of all gaps",
        peers="vLLM itl, SGLang itl, AIPerf inter_chunk_latency",
    ),
    _metric("icl_p50_s", "s", "lower", _ICL + "; median of all gaps"),
    _metric("icl_p99_s", "s", "lower", _ICL + "; 99th percentile of all gaps"),
    _metric("e2e_mean_s", "s", "lower", _E2E + "; mean", 0.05),
    _metric(
        "e2e_p50_s",
        "s",
        "lower",
        _E2E + "; median",
        0.05,
        peers="vLLM e2el, AIPerf request_latency",
    ),
    _metric("e2e_p99_s", "s", "lower", _E2E + "; 99th percentile", 0.10),
    _metric(
        "e2e_stream_p50_s",
        "s",
        "lower",
        "end of the stream (usage, [DONE]) − t0; median",
        peers="SGLang e2e_latency",
    ),
    _metric("queue_client_p99_s", "s", "lower", "open loop: sent − scheduled; 99th percentile of all requests"),
    _metric(
        "achieved_batch",
        "requests",
        "none",
        "time-weighted mean of requests in flight (sent, not ended), from event order, over the steady window when "
        "there is one, else the whole run; equals the requested concurrency when the client holds it",
        scale="linear",
    ),
    _metric(
        "decode_batch",
        "requests",
        "none",
        "the same for requests between their first and last token: the batch that decodes, as seen from outside",
        scale="linear",
    ),
    _metric(
        "tokens_per_chunk",
        "tokens",
        "none",
        "output tokens / non-empty chunks, over completed requests; mean ICL / mean TPOT should equal it",
        scale="linear",
    ),
    _metric(
        "accept_length",
        "tokens",
        "higher",
        "tokens a decode step emits a request under speculation: 1 + accepted/drafts from the server's counters over "
        "the level (or the server's own gauge, bonus token included)",
        0.03,
        scale="linear",
    ),
    _metric(
        "prefix_hit_frac", "frac", "none", "prefix-cache hits / queries in tokens over the level", scale="linear"
    ),
    _metric(
        "server_running_mean", "requests", "none", "mean of the server's running gauge, once a second", scale="linear"
    ),
    _metric(
        "server_waiting_mean",
        "requests",
        "lower",
        "mean of the server's waiting gauge, once a second",
        scale="linear",
    ),
    _metric("kv_usage_max_frac", "frac", "none", "highest KV-cache use the server reported", scale="linear"),
    _metric("server_ttft_mean_s", "s", "lower", "the server's own TTFT histogram over the level: Δsum/Δcount"),
    _metric("server_tpot_mean_s", "s", "lower", "the server's own TPOT histogram over the level: Δsum/Δcount"),
    _metric(
        "tensor_pipe_frac",
        "frac",
        "none",
        "cycles in which the tensor pipe was active / elapsed cycles, mean over the steady window and the server's "
        "GPUs, sampled from outside; on GA100 and GH100 packed half arithmetic (HFMA2) is among it",
        scale="linear",
        peers="DCGM PIPE_TENSOR_ACTIVE, nsys Tensor Active",
    ),
    _metric(
        "sm_active_frac",
        "frac",
        "none",
        "cycles in which an SM had a warp / elapsed cycles, mean over SMs, window and GPUs; far below 1: the host or "
        "the launches are the limit, not a kernel",
        scale="linear",
        peers="DCGM SM_ACTIVE, nsys SMs Active",
    ),
    _metric(
        "dram_frac",
        "frac",
        "none",
        "DRAM throughput / its peak, mean over the window and GPUs",
        scale="linear",
        peers="DCGM DRAM_ACTIVE (close)",
    ),
    _metric(
        "client_lag_p99_s",
        "s",
        "lower",
        "user stamp − kernel stamp of a read: how late the client was; without kernel stamps the length of a loop "
        "turn",
    ),
    _metric(
        "merged_reads_frac", "frac", "lower", "reads that held more than one chunk with text / reads", scale="linear"
    ),
    _metric("worker_cpu_frac", "frac", "lower", "CPU time of the busiest load worker / wall time", scale="linear"),
    _metric(
        KERNEL_TIME,
        "s",
        "lower",
        "one call of a kernel: median over replays of a CUDA graph of calls on different data / their number; one "
        "value a capture",
        0.02,
    ),
)

BY_NAME = {m.name: m for m in METRICS}
