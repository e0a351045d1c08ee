"""Small result files in each tool's schema, written by hand for these tests; the numbers fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def vllm(**changes: Any) -> Record:
    """80 requests of 100 + 50 tokens at C=8 in 10 s: 400 tok/s."""
    known: Record = {
        "date": "20260301-120000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "m/one",
        "tokenizer_id": "m/one",
        "num_prompts": 80,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 8,
        "duration": 10.0,
        "completed": 80,
        "failed": 0,
        "total_input_tokens": 8000,
        "total_output_tokens": 4000,
        "request_throughput": 8.0,
        "request_goodput": None,
        "output_throughput": 400.0,
        "total_token_throughput": 1200.0,
        "max_output_tokens_per_s": 90.0,
        "max_concurrent_requests": 19,
    }
    for name, mean in (("ttft", 100.0), ("tpot", 18.0), ("itl", 18.0), ("e2el", 982.0)):
        known |= {f"mean_{name}_ms": mean, f"median_{name}_ms": mean * 0.99, f"std_{name}_ms": 1.0}
        known[f"p99_{name}_ms"] = mean * 2
    return {**known, **changes}


def sglang(**changes: Any) -> Record:
    known: Record = {
        "tag": None,
        "backend": "sglang-oai",
        "dataset_name": "sharegpt",
        "request_rate": float("inf"),
        "max_concurrency": 8,
        "server_info": {"model_path": "m/one", "version": "0.5.9", "tp_size": 4, "random_seed": 11},
        "duration": 10.0,
        "completed": 80,
        "total_input_tokens": 8000,
        "total_output_tokens": 4000,
        "total_output_tokens_retokenized": 3990,
        "request_throughput": 8.0,
        "output_throughput": 400.0,
        "total_throughput": 1200.0,
        "concurrency": 7.9,
        "accept_length": None,
        "max_output_tokens_per_s": 90.0,
        "max_concurrent_requests": 19,
    }
    for name, mean in (("ttft", 100.0), ("tpot", 18.0), ("itl", 18.0), ("e2e_latency", 990.0)):
        known |= {f"mean_{name}_ms": mean, f"median_{name}_ms": mean * 0.99, f"p99_{name}_ms": mean * 2}
    return {**known, **changes}


def one_batch(**changes: Any) -> Record:
    known: Record = {
        "run_name": "tuned",
        "batch_size": 16,
        "input_len": 1024,
        "output_len": 256,
        "latency": 8.0,
        "output_throughput": 600.0,
        "overall_throughput": 2560.0,
        "last_ttft": 1.2,
        "last_gen_throughput": 610.0,
        "acc_length": -1.0,
        "total_output_tokens": 4096,
        "num_early_stopped": 0,
        "steady_state_output_throughput": 640.0,
        "steady_state_window_s": 5.0,
    }
    return {**known, **changes}


def measured(unit: str, avg: float, **more: float) -> Record:
    return {"unit": unit, "avg": avg, **more}


def aiperf(**changes: Any) -> Record:
    """As vllm(), the client's tokenizer counting what the server counted."""
    known: Record = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_count": measured("requests", 80),
        "request_throughput": measured("requests/sec", 8.0),
        "time_to_first_token": measured("ms", 100.0, p50=99.0, p90=140.0, p99=200.0, count=80),
        "inter_token_latency": measured("ms", 18.0, p50=17.5, p90=19.0, p99=30.0, count=80),
        "inter_chunk_latency": measured("ms", 36.0, p50=35.0, p99=60.0, count=1920),
        "request_latency": measured("ms", 982.0, p50=970.0, p99=1900.0, count=80),
        "output_token_throughput": measured("tokens/sec", 400.0),
        "total_token_throughput": measured("tokens/sec", 1200.0),
        "output_sequence_length": measured("tokens", 50.0, sum=4000),
        "input_sequence_length": measured("tokens", 100.0, sum=8000),
        "total_osl": measured("tokens", 4000),
        "total_isl": measured("tokens", 8000),
        "benchmark_duration": measured("sec", 10.0),
        "effective_concurrency": measured("requests", 7.8),
        "input_config": {
            "models": {"items": [{"name": "m/one"}]},
            "endpoint": {"type": "chat", "extra": {"ignore_eos": True}},
            "datasets": [{"type": "synthetic", "prompts": {"isl": {"mean": 128.0}, "osl": {"mean": 64.0}}}],
            "phases": [{"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 8}],
        },
        "run_info": {"cli_command": "aiperf profile --model m/one"},
        "error_summary": [],
        "was_cancelled": False,
        "is_complete": True,
        "start_time": "2026-03-01T12:00:00.500000",
    }
    return {**known, **changes}


def usage(tokens: int) -> Record:
    """What AIPerf adds where the server told its usage."""
    return {
        "total_usage_completion_tokens": measured("tokens", tokens),
        "total_usage_prompt_tokens": measured("tokens", 8000),
    }


def spread(mean: float, **more: float) -> Record:
    """One of GuideLLM's distributions."""
    percentiles = {"p50": mean, "p90": mean * 1.5, "p99": mean * 2, "p999": mean * 9}
    whole = {"mean": mean, "median": mean, "std_dev": 0.0, "count": 80, "total_sum": mean * 80, **more}
    return {"successful": {**whole, "percentiles": percentiles}}


def guidellm_benchmark(**changes: Any) -> Record:
    known: Record = {
        "config": {
            "strategy": {"type_": "concurrent", "streams": 8, "max_concurrency": 8},
            "backend": {
                "model": "m/one",
                "request_format": "/v1/chat/completions",
                "api_key": "sk-verysecretkey0000",
            },
            "prefer_response_metrics": True,
        },
        "metrics": {
            "request_totals": {"successful": 80, "incomplete": 0, "errored": 0, "total": 80},
            "requests_per_second": spread(8.0, median=3.1),
            "request_concurrency": spread(7.9),
            "request_latency": spread(0.99),
            "time_to_first_token_ms": spread(90.0),
            "time_per_output_token_ms": spread(19.6),
            "inter_token_latency_ms": spread(18.0),
            "output_tokens_per_second": spread(400.0),
            "tokens_per_second": spread(1200.0),
            "prompt_token_count": spread(100.0),
            "output_token_count": spread(50.0),
        },
        "warnings": [],
        "start_time": 1772366400.0,
        "duration": 10.0,
        "warmup_duration": 0.0,
        "cooldown_duration": 0.0,
    }
    return {**known, **changes}


def guidellm(*benchmarks: Record, version: int = 2) -> Record:
    return {
        "metadata": {"version": version, "guidellm_version": "0.8.1"},
        "config": {"spec": {"data": [{"kind": "synthetic_text"}]}},
        "benchmarks": list(benchmarks) or [guidellm_benchmark()],
    }


def seconds(mean: float) -> Record:
    """One of inference-perf's distributions."""
    return {"mean": mean, "median": mean, "p90": mean * 1.5, "p99": mean * 2, "p99.9": mean * 9}


def inference_perf(**load: Any) -> Record:
    told = {"count": 80, "requested_rate": 8.0, "achieved_rate": 8.0, "schedule_delay": seconds(0.001)}
    return {
        "load_summary": {**told, **load},
        "successes": {
            "count": 80,
            "latency": {
                "request_latency": seconds(0.99),
                "normalized_time_per_output_token": seconds(0.0198),
                "time_per_output_token": seconds(0.018),
                "time_to_first_token": seconds(0.1),
                "inter_token_latency": seconds(0.018),
            },
            "throughput": {
                "input_tokens_per_sec": 800.0,
                "output_tokens_per_sec": 400.0,
                "total_tokens_per_sec": 1200.0,
                "requests_per_sec": 8.0,
            },
            "prompt_len": seconds(100.0),
            "output_len": seconds(50.0),
        },
        "failures": {"count": 0},
    }


def inferencex(**changes: Any) -> Record:
    """Raw: as vLLM's, in seconds and without a unit in the keys."""
    known = {k: v for k, v in vllm().items() if not k.endswith("_ms") and k not in ("failed", "endpoint_type")}
    known |= {"median_ttft": 0.1, "p99_ttft": 0.2, "median_tpot": 0.018, "p99_tpot": 0.036, "median_e2el": 0.98}
    return {**known, **changes}


def inferencex_processed(**changes: Any) -> Record:
    known: Record = {
        "hw": "h200",
        "tp": 8,
        "ep": 1,
        "dp_attention": "false",
        "conc": 8,
        "isl": 1024,
        "osl": 256,
        "model": "m/one",
        "framework": "vllm",
        "precision": "fp8",
        "tput_per_gpu": 150.0,
        "output_tput_per_gpu": 50.0,
        "mean_ttft": 0.1,
        "median_ttft": 0.099,
        "mean_tpot": 0.018,
        "median_tpot": 0.0178,
        "mean_intvty": 55.6,
    }
    return {**known, **changes}


def harness_row(concurrency: int = 8, **changes: Any) -> Record:
    known: Record = {
        "concurrency": concurrency,
        "ok": True,
        "detail": "successful_requests 80/80",
        "metrics": {
            "successful_requests": 80,
            "benchmark_duration_s": 10.0,
            "total_input_tokens": 8000,
            "total_generated_tokens": 4000,
            "request_throughput_req_s": 8.0,
            "output_token_throughput_tok_s": 400.0,
            "mean_ttft_ms": 100.0,
            "median_ttft_ms": 99.0,
            "p99_ttft_ms": 200.0,
            "mean_tpot_ms": 18.0,
            "median_tpot_ms": 17.8,
            "p99_tpot_ms": 30.0,
            "mean_itl_ms": 42.3,
            "median_itl_ms": 42.0,
            "p99_itl_ms": 60.0,
            "spec_acceptance_rate_percent": 67.5,
            "spec_acceptance_length": 2.35,
        },
        "command": ["vllm", "bench", "serve", "--model", "m/one", "--dataset-name", "random", "--num-prompts", "80"],
        "attempts": 1,
    }
    return {**known, **changes}


ALL: dict[str, Any] = {
    "vllm": vllm(),
    "sglang": sglang(),
    "sglang-one-batch": one_batch(),
    "aiperf": aiperf(),
    "guidellm": guidellm(),
    "inference-perf": inference_perf(),
    "inferencex": inferencex(),
    "sm120-harness": [harness_row(1), harness_row(8)],
}


def write(path: Path, *documents: Any) -> Path:
    """One document, or one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(d) for d in documents) + "\n", encoding="utf-8")
    return path
