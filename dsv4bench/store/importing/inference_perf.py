"""inference-perf `stage_N_lifecycle_metrics.json` (one level) and `summary_lifecycle_metrics.json` (all stages).

Seconds throughout. Their ITL gives every token but the first of a chunk a gap of zero, so it is no ICL.
Request latency ends with the stream. In an open loop their clock starts at the send, ours at the schedule: a stage
whose sends came late is marked. A summary mixes stages of several rates; it is shown and enters no verdict.
"""

from __future__ import annotations

from dsv4bench.metrics import METRICS
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import LITTLE, Draft, Level
from dsv4bench.store.importing.values import count, inner, number

TOOL = "inference-perf"
SUMMARY = "a summary of all stages: rates are mixed in it"
STREAM_END = "this client's request latency ends with the stream: see e2e_stream_p50_s"
PER_TOKEN = "this client's ITL is a gap a token, zero inside a chunk"
CAVEAT = "inference-perf counts latency from the send, also in an open loop"
HELD = 0.9  # achieved / requested rate below which the client did not do what was asked


def is_mine(record: Record) -> bool:
    return {"load_summary", "successes"} <= set(record)


def read(record: Record, where: str) -> list[Level]:
    draft = Draft(record)
    f = draft.fields
    good = inner(record, "successes")
    n_ok, n_err = count(good, "count") or 0, count(inner(record, "failures"), "count") or 0
    f.update(n_ok=n_ok, n_err=n_err, n_sent=n_ok + n_err, token_source=TokenSource.CLIENT)
    for theirs, ours in (("time_to_first_token", "ttft"), ("time_per_output_token", "tpot")):
        found = inner(good, "latency", theirs)
        for quantile, key in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p99", "p99")):
            draft.put(f"{ours}_{quantile}_s", number(found, key))
    draft.put("ntpot_p50_s", number(inner(good, "latency", "normalized_time_per_output_token"), "median"))
    draft.put("e2e_stream_p50_s", number(inner(good, "latency", "request_latency"), "median"))
    draft.not_ours(STREAM_END, "e2e_mean_s", "e2e_p50_s", "e2e_p99_s")
    draft.not_ours(PER_TOKEN, "icl_mean_s", "icl_p50_s", "icl_p99_s")
    _totals(draft, record, n_ok)
    summary = _load(draft, record)
    return [draft.level({}, notes=[LITTLE, CAVEAT, *([SUMMARY] if summary else [])])]


def is_summary(level: Level) -> bool:
    return SUMMARY in level.notes


def _totals(draft: Draft, record: Record, n_ok: int) -> None:
    good = inner(record, "successes")
    throughput = inner(good, "throughput")
    draft.put("output_tok_s", number(throughput, "output_tokens_per_sec"))
    draft.put("total_tok_s", number(throughput, "total_tokens_per_sec"))
    draft.put("request_s", number(throughput, "requests_per_sec"))
    draft.put("isl_mean", number(inner(good, "prompt_len"), "mean"))
    draft.put("osl_mean", number(inner(good, "output_len"), "mean"))
    f = draft.fields
    if "osl_mean" in f and "isl_mean" in f:
        f.update(output_tokens=round(f["osl_mean"] * n_ok), prompt_tokens=round(f["isl_mean"] * n_ok))
    if "request_s" in f:
        f["duration_s"] = n_ok / f["request_s"]
        span = number(inner(good, "latency", "request_latency"), "mean")
        if span is not None:
            f["achieved_batch"] = span * f["request_s"]


def _load(draft: Draft, record: Record) -> bool:
    """The level's coordinates; True when the file is a summary."""
    told = inner(record, "load_summary")
    asked, achieved = number(told, "requested_rate"), number(told, "achieved_rate")
    cap = count(told, "concurrency")
    late = number(inner(told, "schedule_delay"), "p99")
    f = draft.fields
    if late is not None:
        f["queue_client_p99_s"] = max(late, 0.0)
    if asked:
        f["rate_req_s"] = asked
        if achieved is not None and achieved < HELD * asked:
            why = f"sent {achieved:.1f} of the {asked:.1f} requests a second that were asked for"
            draft.invalid(Invalid.CLIENT_SATURATED, why)
        return False
    if cap:
        f["concurrency"] = cap
        return False
    f["rate_req_s"] = f.get("request_s") or 0.0
    draft.about(SUMMARY, *(m.name for m in METRICS))
    return True
