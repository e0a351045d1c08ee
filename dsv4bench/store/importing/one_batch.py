"""SGLang `one_batch_server` result.jsonl: one batch of equal requests, sent at once, a line a batch.

`latency` is the whole batch. Output throughput is recomputed over it (theirs leaves the prefill out); their steady
figure is our steady window. `last_ttft` is the last request's, so neither TTFT nor TPOT of a request is told.
"""

from __future__ import annotations

from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.values import count, number, per, text

TOOL = "sglang-one-batch"


def is_mine(record: Record) -> bool:
    timed = {"overall_throughput", "last_ttft", "output_throughput"} & set(record)
    return {"batch_size", "input_len", "output_len", "latency"} <= set(record) and bool(timed)


def read(record: Record, where: str) -> list[Level]:
    draft = Draft(record)
    f = draft.fields
    batch, isl, osl = (count(record, k) or 0 for k in ("batch_size", "input_len", "output_len"))
    latency = number(record, "latency")
    counted = count(record, "total_output_tokens")
    n_out = counted if counted is not None else batch * osl
    done = batch if latency and n_out else 0
    f.update(
        concurrency=batch,
        n_sent=batch,
        n_ok=done,
        n_err=batch - done,
        n_short=count(record, "num_early_stopped") or 0,
    )
    f.update(output_tokens=n_out or None, prompt_tokens=batch * isl, isl_mean=float(isl))
    f["token_source"] = TokenSource.USAGE if counted is not None else TokenSource.NONE
    draft.put("osl_mean", per(n_out, batch))
    draft.put("duration_s", latency)
    draft.put("output_tok_s", per(n_out, latency))
    draft.put("request_s", per(batch, latency))
    draft.put("total_tok_s", number(record, "overall_throughput"))
    draft.put("output_tok_s_steady", number(record, "steady_state_output_throughput"))
    draft.put("steady_s", number(record, "steady_state_window_s"))
    draft.put("accept_length", number(record, "acc_length"), zero="no speculation")
    hit = number(record, "cache_hit_rate")
    if hit is not None and 0 <= hit <= 1:
        f["prefix_hit_frac"] = hit
    if counted is None:
        draft.about("tokens are requested ones: the file counts none", "output_tok_s", "osl_mean")
    first = number(record, "last_ttft")
    if first:
        draft.notes.append(f"the last request's TTFT was {first:.3f} s")
        draft.why["ttft_p50_s"] = "the file tells the last request's only"
    return [draft.level({"dataset": "one batch"}, label=text(record, "run_name"))]
