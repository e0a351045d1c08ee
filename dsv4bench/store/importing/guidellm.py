"""GuideLLM `benchmarks.json` version 2: each benchmark is one level. Version 1 is refused by name.

By definition, not by name: `inter_token_latency_ms` is our TPOT and `time_per_output_token_ms` is NTPOT, for it holds
the TTFT. Both distributions count tokens, not requests. `request_latency` is in seconds and ends with the stream.
`requests_per_second.mean` is the rate; its median is that of a time-weighted distribution. t0 is the header's write,
so connecting and waiting for a connection are outside. p999 is the 99.9th percentile.
"""

from __future__ import annotations

from typing import Any

from dsv4bench.errors import SchemaError
from dsv4bench.host.redact import redact
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.openai_clients import load
from dsv4bench.store.importing.values import count, endpoint, epoch_date, inner, known, number, text

TOOL = "guidellm"
STREAM_END = "this client's request latency ends with the stream: see e2e_stream_p50_s"
CAVEAT = "GuideLLM's TTFT starts when the header is written: connecting and waiting for a connection are outside"
UNEVEN = 0.02
OPEN = {"constant", "poisson", "async", "incremental", "trace"}


def is_mine(record: Record) -> bool:
    return isinstance(record.get("benchmarks"), list) and ("metadata" in record or "args" in record)


def read(record: Record, where: str) -> list[Level]:
    """Raises SchemaError for a report of another version than 2."""
    version = inner(record, "metadata").get("version", 1)
    if version != 2:
        raise SchemaError(
            f"{where}: GuideLLM report version {version}; version 2 is read", "run GuideLLM 0.6 or newer"
        )
    data = inner(record, "config", "spec").get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    return [_level(b, text(first, "kind")) for b in record["benchmarks"] if isinstance(b, dict)]


def _level(b: Record, dataset: str | None) -> Level:
    draft = Draft(b)
    f = draft.fields
    requests = inner(b, "metrics", "request_totals")
    n_ok, n_err, cut = (count(requests, k) or 0 for k in ("successful", "errored", "incomplete"))
    f.update(n_ok=n_ok, n_err=n_err, n_cancelled=cut, n_sent=n_ok + n_err + cut)
    _latencies(draft, b)
    _tokens(draft, b)
    draft.put("request_s", number(_of(b, "requests_per_second"), "mean"))
    draft.put("achieved_batch", number(_of(b, "request_concurrency"), "mean"))
    _throughput(draft, b)
    strategy = inner(b, "config", "strategy")
    kind = text(strategy, "type_") or ""
    cap = count(strategy, "streams") or (1 if kind == "synchronous" else count(strategy, "max_concurrency"))
    load(draft, number(strategy, "rate") if kind in OPEN else None, None if kind in OPEN else cap)
    started = epoch_date(number(b, "start_time"))
    if started is not None:
        f["started_utc"] = started
    told = b.get("warnings")
    for warning in told if isinstance(told, list) else []:
        if isinstance(warning, dict) and text(warning, "message"):
            draft.notes.append(f"GuideLLM warns: {redact(warning['message'])}")
    backend = inner(b, "config", "backend")
    kind_of_prompt = endpoint(text(backend, "request_format"))
    return draft.level(known(model=text(backend, "model"), endpoint=kind_of_prompt, dataset=dataset), notes=[CAVEAT])


def _of(b: Record, metric: str) -> Any:
    """The distribution over successful requests."""
    return inner(b, "metrics", metric, "successful")


def _latencies(draft: Draft, b: Record) -> None:
    for metric, ours in (("time_to_first_token_ms", "ttft"), ("inter_token_latency_ms", "tpot")):
        found = _of(b, metric)
        percentiles = inner(found, "percentiles")
        draft.put(f"{ours}_mean_s", _ms(number(found, "mean")))
        draft.put(f"{ours}_p50_s", _ms(number(found, "median")))
        draft.put(f"{ours}_p90_s", _ms(number(percentiles, "p90")))
        draft.put(f"{ours}_p99_s", _ms(number(percentiles, "p99")))
    draft.put("ntpot_p50_s", _ms(number(_of(b, "time_per_output_token_ms"), "median")))
    draft.put("ttft_content_p50_s", _ms(number(_of(b, "time_to_first_output_token_ms"), "median")))
    draft.put("e2e_stream_p50_s", number(_of(b, "request_latency"), "median"))
    draft.not_ours(STREAM_END, "e2e_mean_s", "e2e_p50_s", "e2e_p99_s")
    lengths = _of(b, "output_token_count")
    mean, spread = number(lengths, "mean"), number(lengths, "std_dev")
    if mean and spread is not None and spread > UNEVEN * mean:
        why = "answers differ in length and this tool weights TPOT by tokens, not by requests"
        draft.about(why, "tpot_mean_s", "tpot_p50_s", "tpot_p90_s", "tpot_p99_s", "ntpot_p50_s")


def _tokens(draft: Draft, b: Record) -> None:
    for metric, field, mean in (
        ("prompt_token_count", "prompt_tokens", "isl_mean"),
        ("output_token_count", "output_tokens", "osl_mean"),
    ):
        found = _of(b, metric)
        draft.fields[field] = count(found, "total_sum")
        draft.put(mean, number(found, "mean"))
    usage = inner(b, "config").get("prefer_response_metrics") is True
    draft.fields["token_source"] = TokenSource.USAGE if usage else TokenSource.CLIENT
    draft.put("tokens_per_chunk", number(_of(b, "output_tokens_per_iteration"), "mean"))


def _throughput(draft: Draft, b: Record) -> None:
    """Their window is trimmed of warm-up and cool-down; only without either is it the whole run."""
    window = number(b, "duration")
    tok_s, total = number(_of(b, "output_tokens_per_second"), "mean"), number(_of(b, "tokens_per_second"), "mean")
    if number(b, "warmup_duration") or number(b, "cooldown_duration"):
        draft.put("output_tok_s_steady", tok_s)
        draft.put("steady_s", window)
        draft.why["output_tok_s"] = "the file holds the trimmed window only: see output_tok_s_steady"
    else:
        draft.put("output_tok_s", tok_s)
        draft.put("total_tok_s", total)
        draft.put("duration_s", window)


def _ms(value: float | None) -> float | None:
    return None if value is None else value / 1e3
