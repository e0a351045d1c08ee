"""What the clients that descend from vLLM's first benchmark share: vLLM, SGLang, InferenceX, the sm_120 harness.

`{mean,median,p90,p99}_{ttft,tpot,itl}` under each tool's suffix, totals over `completed`, a rate or a cap. Their TPOT
is ours; their ITL is the gap between chunks, our ICL. Peaks counted from chunks (`max_output_tokens_per_s`) or from
one-second buckets (`max_concurrent_requests`) are left out: the first undercounts tokens, the second overcounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft
from dsv4bench.store.importing.values import count, number, per, rate, seconds

QUANTILES = {"mean": ("mean",), "p50": ("p50", "median"), "p90": ("p90",), "p99": ("p99",)}
OURS = {"ttft": "ttft", "tpot": "tpot", "itl": "icl", "e2el": "e2e", "e2e_latency": "e2e"}


def latencies(draft: Draft, record: Mapping[str, Any], theirs: str, unit: str, suffix: str = "_ms") -> None:
    """`{quantile}_{theirs}{suffix}` into our fields; a quantile that is not there stays unknown."""
    for quantile, spelled in QUANTILES.items():
        field = f"{OURS[theirs]}_{quantile}_s"
        for word in spelled:
            value = seconds(number(record, f"{word}_{theirs}{suffix}"), unit)
            if value is not None and field in CELL_FIELDS:
                draft.put(field, value)


CELL_FIELDS = {f"{m}_{q}_s" for m in ("ttft", "tpot", "e2e", "icl") for q in QUANTILES} - {"icl_p90_s", "e2e_p90_s"}


def totals(draft: Draft, record: Record) -> None:
    """Requests, tokens, throughput and the load, of the realised totals."""
    f = draft.fields
    completed = count(record, "completed") or 0
    failed = count(record, "failed")
    asked = count(record, "num_prompts")
    if failed is None:  # files of older versions
        failed = max(asked - completed, 0) if asked is not None else 0
        if asked is None:
            draft.why["n_err"] = "the file counts no failures"
    f.update(n_ok=completed, n_err=failed, n_sent=completed + failed, token_source=TokenSource.USAGE)
    n_in, n_out = count(record, "total_input_tokens"), count(record, "total_output_tokens")
    if completed:
        f.update(prompt_tokens=n_in, output_tokens=n_out)
        draft.put("isl_mean", per(n_in, completed))
        draft.put("osl_mean", per(n_out, completed))
    draft.put("duration_s", number(record, "duration"))
    draft.put("output_tok_s", number(record, "output_throughput"))
    draft.put("request_s", number(record, "request_throughput"))
    goodput = number(record, "request_goodput")
    if goodput is None:
        goodput = number(record, "request_goodput:")  # InferenceX and forks
    if goodput is not None:
        f["goodput_req_s"] = goodput
        draft.notes.append("goodput: the limits are not in the file")
    load(draft, rate(record), count(record, "max_concurrency"))


def load(draft: Draft, rate_req_s: float | None, cap: int | None) -> None:
    """An open loop has a rate; else the cap is the concurrency; without either, every request was sent at once."""
    if rate_req_s is not None:
        draft.fields["rate_req_s"] = rate_req_s
        if cap:
            draft.notes.append(f"at most {cap} requests in flight")
    elif cap:
        draft.fields["concurrency"] = cap
    else:
        draft.fields["concurrency"] = draft.fields["n_sent"]
        draft.notes.append(f"no cap and no rate: all {draft.fields['n_sent']} requests were sent at once")
