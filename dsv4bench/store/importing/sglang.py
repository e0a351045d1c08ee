"""SGLang `bench_serving --output-file`: one object a line, with a bare Infinity for an unlimited rate.

Their E2E ends with the last line, usage and [DONE] included: our e2e_stream. Their ITL is our ICL on the OpenAI
backends only: the native backend spreads each gap over its tokens, and with speculation the client tokenises again.
`server_info` is kept as the server's arguments without secrets and without what changes from second to second. A run
without a first token, or whose text tokenises to nothing, is refused: empty streams were credited requested tokens.
"""

from __future__ import annotations

from typing import Any

from dsv4bench.errors import Unanswerable
from dsv4bench.host.redact import is_secret_name, redact
from dsv4bench.records.arm import Plain
from dsv4bench.store.facts import flat
from dsv4bench.store.importing.details import Details
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.openai_clients import latencies, totals
from dsv4bench.store.importing.values import count, endpoint, inner, known, model_name, number, text

TOOL = "sglang"
NATIVE = {"sglang", "sglang-native", "sglang-embedding"}
UNSTABLE = {"internal_states", "status", "random_seed", "host", "port", "nccl_port"}
CAVEAT = "SGLang's client opens a connection a request (inside TTFT) and ends TPOT with the stream's last line"
STREAM_END = "this client's E2E ends with usage and [DONE]: see e2e_stream_p50_s"
SPREAD = "this backend spreads a gap over the tokens of its chunk, so its ITL is no ICL"


def is_mine(record: Record) -> bool:
    own = {"dataset_name", "total_output_tokens_retokenized", "mean_e2e_latency_ms", "total_throughput"} & set(record)
    return {"completed", "total_output_tokens", "duration"} <= set(record) and bool(own)


def read(record: Record, where: str) -> list[Level]:
    """One line is one level. Raises Unanswerable for a run that streamed nothing."""
    _refuse_empty_streams(record, where)
    draft = Draft(record)
    backend = text(record, "backend") or ""
    details = Details(record)
    totals(draft, record)
    for theirs in ("ttft", "tpot", "itl", "e2e_latency"):
        latencies(draft, record, theirs, "ms")
    draft.put("e2e_stream_p50_s", draft.fields.get("e2e_p50_s"))
    draft.not_ours(STREAM_END, "e2e_mean_s", "e2e_p50_s", "e2e_p99_s")
    draft.put("total_tok_s", number(record, "total_throughput"))
    draft.put("achieved_batch", number(record, "concurrency"))
    draft.put("accept_length", number(record, "accept_length"))
    if backend in NATIVE or "accept_length" in draft.fields:
        draft.not_ours(SPREAD, "icl_mean_s", "icl_p50_s", "icl_p99_s")
    draft.put("tokens_per_chunk", details.tokens_per_chunk())
    draft.why["peak_in_flight"] = "their peak counts one-second buckets and exceeds the cap"
    _failures(draft, details)
    return [
        draft.level(
            _workload(record),
            label=text(record, "tag"),
            server=server(record),
            launch_key=_launch(record),
            notes=[CAVEAT],
        )
    ]


def _refuse_empty_streams(record: Record, where: str) -> None:
    if not count(record, "completed"):
        return  # a level without success, which the arm reports
    silent = number(record, "mean_ttft_ms") == 0 and number(record, "mean_itl_ms") == 0
    nothing = (
        count(record, "total_output_tokens_retokenized") == 0 and (count(record, "total_output_tokens") or 0) > 0
    )
    if silent or nothing:
        why = "TTFT and ITL are 0" if silent else "the text has 0 tokens"
        raise Unanswerable(
            f"{where}: {count(record, 'completed')} requests counted as successes, but {why}",
            "the streams were empty or errors (look into the server's log); measure again",
        )


def _failures(draft: Draft, details: Details) -> None:
    empty = details.without_first_token()
    f = draft.fields
    if details.errors:
        f.update(n_err=len(details.errors), n_sent=f["n_ok"] + len(details.errors))
        f["error_example"] = redact(details.errors[0])
        draft.why.pop("n_err", None)
    if empty:
        f.update(n_ok=f["n_ok"] - empty, n_err=f["n_err"] + empty)
        why = f"{empty} successes carried no token and were credited the requested ones: throughput is too high"
        draft.about(why, "output_tok_s", "total_tok_s", "ttft_mean_s", "ttft_p50_s", "osl_mean")


def _workload(record: Record) -> dict[str, Plain]:
    info = inner(record, "server_info")
    dataset = text(record, "dataset_name")
    ratio = number(record, "random_range_ratio")
    if dataset is not None and dataset.startswith("random") and ratio is not None:
        dataset = f"{dataset}, range ratio {ratio:g}"
    return known(
        model=model_name(text(info, "served_model_name") or text(info, "model_path")),
        endpoint=endpoint(text(record, "backend")),
        dataset=dataset,
    )


def server(record: Record) -> dict[str, Plain] | None:
    """Engine, version and arguments, flat; None when the file holds none."""
    info = inner(record, "server_info")
    if not info:
        return None
    kept = {k: v for k, v in info.items() if k not in UNSTABLE and not is_secret_name(k)}
    clean: dict[str, Any] = redact(kept)
    return {"engine": "sglang", **flat(clean)}


def _launch(record: Record) -> str | None:
    """SGLang draws its seed when it starts, unless it was given one."""
    seed = count(inner(record, "server_info"), "random_seed")
    return None if seed is None else f"random_seed {seed}"
