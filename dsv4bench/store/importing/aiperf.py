"""AIPerf `profile_export_aiperf.json`, schema 1.x: one profile is one level; each metric carries its unit.

By definition, not by name: their `inter_token_latency` is our TPOT, their `inter_chunk_latency` our ICL. Their output
length is counted by the client's tokenizer; where the server's usage is there too and differs, tokens and throughput
are taken from usage, and TPOT (which was divided by the other count) is shown but enters no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv4bench.host.redact import redact
from dsv4bench.records.arm import Plain
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.openai_clients import load
from dsv4bench.store.importing.values import LOCAL, count, inner, known, number, per, seconds, text

TOOL = "aiperf"
LATENCIES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "icl",
    "request_latency": "e2e",
}
QUANTILES = {"mean": "avg", "p50": "p50", "p90": "p90", "p99": "p99"}
ABSENT = {"icl_p90_s", "e2e_p90_s"}  # not fields of a cell
COUNTS_DIFFER = 0.005
AT_ONCE = "0: all tokens of a request came at one instant"


def is_mine(record: Record) -> bool:
    return "aiperf_version" in record or {"schema_version", "input_config"} <= set(record)


def read(record: Record, where: str) -> list[Level]:
    draft = Draft(record)
    f = draft.fields
    config = inner(record, "input_config")
    n_ok = count(inner(record, "request_count"), "avg") or 0
    n_err = count(inner(record, "error_request_count"), "avg") or sum(_errors(record).values())
    f.update(n_ok=n_ok, n_err=n_err, n_sent=n_ok + n_err, errors=_errors(record))
    for tag, ours in LATENCIES.items():
        _latency(draft, record, tag, ours)
    if number(inner(record, "inter_token_latency"), "p50") == 0:
        why = "all tokens came at one instant in half of the requests: the client read whole answers at once"
        draft.invalid(Invalid.CLIENT_SATURATED, why)
    content = inner(record, "time_to_first_output_token")
    draft.put("ttft_content_p50_s", seconds(number(content, "p50"), text(content, "unit") or ""))
    draft.put("request_s", number(inner(record, "request_throughput"), "avg"))
    draft.put("achieved_batch", number(inner(record, "effective_concurrency"), "avg"))
    duration = inner(record, "benchmark_duration")
    draft.put("duration_s", seconds(number(duration, "avg"), text(duration, "unit") or ""))
    goodput = inner(record, "goodput")
    if number(goodput, "avg") is not None:
        f["goodput_req_s"] = number(goodput, "avg")
    _tokens(draft, record, n_ok)
    rate_req_s, cap = _load(config)
    load(draft, rate_req_s, cap)
    if text(record, "start_time"):
        f["started_utc"] = record["start_time"]
    if record.get("was_cancelled") is True:
        draft.invalid(Invalid.INTERRUPTED, "AIPerf says the run was cancelled")
    whole = record.get("was_cancelled") is not True and record.get("is_complete") is not False
    return [
        draft.level(_workload(config), hardware=_hardware(record), complete=whole, notes=[LOCAL, *_command(record)])
    ]


def _latency(draft: Draft, record: Record, tag: str, ours: str) -> None:
    metric = inner(record, tag)
    for quantile, key in QUANTILES.items():
        field = f"{ours}_{quantile}_s"
        if field not in ABSENT:
            draft.put(field, seconds(number(metric, key), text(metric, "unit") or ""), zero=AT_ONCE)


def _tokens(draft: Draft, record: Record, n_ok: int) -> None:
    """From usage where the server told it, else the client's own count."""
    client = count(inner(record, "total_osl"), "avg") or count(inner(record, "output_sequence_length"), "sum")
    usage = count(inner(record, "total_usage_completion_tokens"), "avg")
    n_in = count(inner(record, "total_usage_prompt_tokens"), "avg") or count(inner(record, "total_isl"), "avg")
    n_out = usage or client
    duration = draft.fields.get("duration_s")
    draft.fields.update(
        output_tokens=n_out, prompt_tokens=n_in, token_source=TokenSource.USAGE if usage else TokenSource.CLIENT
    )
    draft.put("isl_mean", per(n_in, n_ok) or number(inner(record, "input_sequence_length"), "avg"))
    draft.put("osl_mean", per(n_out, n_ok))
    differ = bool(usage and client and abs(client / usage - 1) > COUNTS_DIFFER)
    if differ and duration and usage:
        draft.put("output_tok_s", usage / duration)
        draft.put("total_tok_s", (usage + n_in) / duration if n_in else None)
    else:
        draft.put("output_tok_s", number(inner(record, "output_token_throughput"), "avg"))
        draft.put("total_tok_s", number(inner(record, "total_token_throughput"), "avg"))
    gaps = count(inner(record, "inter_chunk_latency"), "count")
    if gaps and n_out:
        draft.put("tokens_per_chunk", n_out / (gaps + n_ok))
    if differ and usage and client:
        why = f"the client counted {client} output tokens, the server {usage}: throughput is by the server's count"
        draft.about(f"{why}, TPOT by the client's", *(f"tpot_{q}_s" for q in QUANTILES))


def _load(config: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """Rate and cap of the profiling phase; versions before the phases had them in `loadgen`."""
    phases = config.get("phases")
    listed = [p for p in phases if isinstance(p, dict)] if isinstance(phases, list) else []
    profiling = [p for p in listed if p.get("kind", p.get("name")) in ("profiling", None)] or listed
    at: Mapping[str, Any] = profiling[0] if profiling else inner(config, "loadgen")
    return number(at, "rate") or number(at, "request_rate"), count(at, "concurrency")


def _workload(config: Mapping[str, Any]) -> dict[str, Plain]:
    names = [n for n in _values(config.get("models"), "name") if isinstance(n, str)]
    datasets = config.get("datasets")
    first = datasets[0] if isinstance(datasets, list) and datasets and isinstance(datasets[0], dict) else {}
    extra = inner(config, "endpoint", "extra")
    ignore = extra.get("ignore_eos")
    kind = text(inner(config, "endpoint"), "type")
    return known(
        model=names[0] if names else None,
        tokenizer=text(inner(config, "tokenizer"), "name"),
        endpoint=kind,
        dataset=text(first, "type"),
        temperature=number(extra, "temperature"),
        ignore_eos=ignore if isinstance(ignore, bool) else None,
    )


def _hardware(record: Record) -> dict[str, Plain] | None:
    """GPU names, where its telemetry saw some; it may have watched another host than the server's."""
    names = sorted(n for n in _values(inner(record, "telemetry_data", "endpoints"), "gpu_name") if isinstance(n, str))
    return {"gpus": ", ".join(names), "n_gpus": len(names)} if names else None


def _values(at: Any, key: str) -> Iterator[Any]:
    """Every value under `key`, at any depth."""
    if isinstance(at, dict):
        if key in at:
            yield at[key]
        at = list(at.values())
    if isinstance(at, list):
        for value in at:
            yield from _values(value, key)


def _errors(record: Record) -> dict[str, int]:
    """Kind to count, of `error_summary`."""
    rows = record.get("error_summary")
    found: dict[str, int] = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            details = inner(row, "error_details")
            kind = text(details, "type") or str(details.get("code") or "error")
            found[redact(kind)] = found.get(kind, 0) + (count(row, "count") or 0)
    return found


def _command(record: Record) -> list[str]:
    command = text(inner(record, "run_info"), "cli_command")
    return [f"command: {redact(command)}"] if command else []
