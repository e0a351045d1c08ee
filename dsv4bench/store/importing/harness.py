"""The public DeepSeek-V4-Flash harness for sm_120: a list of rows, each a concurrency with vLLM's printed metrics.

Rows hold what `vllm bench serve` printed (milliseconds, percentages) under their own names, and the command. Lengths
come from the totals; of the command only what it sends is read (data set, endpoint, sampling). A row that is not `ok`
is kept as failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.host.redact import redact
from dsv4bench.records.arm import Plain
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.openai_clients import latencies
from dsv4bench.store.importing.values import count, endpoint, inner, known, number, per, text
from dsv4bench.store.importing.vllm import first_chunk_is_ttfc

TOOL = "sm120-harness"


def is_mine(record: Record) -> bool:
    return {"concurrency", "ok", "metrics"} <= set(record)


def read(record: Record, where: str) -> list[Level]:
    draft = Draft(record)
    f, m = draft.fields, inner(record, "metrics")
    words = record.get("command")
    command = [c for c in words if isinstance(c, str)] if isinstance(words, list) else []
    asked = _number_after(command, "--num-prompts")
    n_ok = count(m, "successful_requests") or 0
    failed = count(m, "failed_requests")
    if failed is None:
        failed = max(asked - n_ok, 0) if asked is not None else 0
    f.update(concurrency=count(record, "concurrency"), n_ok=n_ok, n_err=failed, n_sent=n_ok + failed)
    f.update(output_tokens=count(m, "total_generated_tokens"), prompt_tokens=count(m, "total_input_tokens"))
    f["token_source"] = TokenSource.USAGE
    for theirs in ("ttft", "tpot", "itl", "e2el"):
        latencies(draft, m, theirs, "ms")
    if _endpoint(command) == "chat":
        first_chunk_is_ttfc(draft)
    draft.put("duration_s", number(m, "benchmark_duration_s"))
    draft.put("isl_mean", per(f["prompt_tokens"], n_ok))
    draft.put("osl_mean", per(f["output_tokens"], n_ok))
    draft.put("output_tok_s", number(m, "output_token_throughput_tok_s"))
    draft.put("total_tok_s", number(m, "total_token_throughput_tok_s"))
    draft.put("request_s", number(m, "request_throughput_req_s"))
    draft.put("accept_length", number(m, "spec_acceptance_length"))
    percent = number(m, "spec_acceptance_rate_percent")
    if percent is not None:
        draft.notes.append(f"{percent:.1f} % of the drafted tokens accepted")
    if record.get("ok") is not True:
        draft.notes.append(f"the harness says not ok: {redact(text(record, 'detail') or 'no detail')}")
    if (count(record, "attempts") or 1) > 1:
        draft.notes.append(f"attempt {count(record, 'attempts')}")
    return [draft.level(_workload(command), notes=[f"command: {' '.join(redact(command))}"] if command else [])]


def _workload(command: Sequence[str]) -> dict[str, Plain]:
    heat = _after(command, "--temperature")
    return known(
        model=_after(command, "--model"),
        endpoint=_endpoint(command),
        dataset=_after(command, "--dataset-path") or _after(command, "--dataset-name"),
        temperature=float(heat) if heat is not None and heat.replace(".", "", 1).isdecimal() else None,
        ignore_eos="--ignore-eos" in command if command else None,
    )


def _endpoint(command: Sequence[str]) -> str | None:
    if not command:
        return None
    return endpoint(_after(command, "--backend") or _after(command, "--endpoint-type") or "openai")


def _after(command: Sequence[str], flag: str) -> str | None:
    for at, word in enumerate(command):
        if word == flag and at + 1 < len(command):
            return command[at + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _number_after(command: Sequence[str], flag: str) -> int | None:
    word = _after(command, flag)
    return int(word) if word is not None and word.isdecimal() else None
