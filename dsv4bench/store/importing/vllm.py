"""vLLM `bench serve` (one object, or one a line with --append-result) and `bench sweep` (run=N.json, summary.json).

`endpoint_type` openai-chat: their TTFT counts the first chunk with choices, also a role chunk without text, which is
our TTFC; on completions it is our TTFT. `spec_decode_acceptance_rate` is a percentage. `date` is local time, written
when the run ended. With --save-detailed the batch is computed from the order of events, and the chunks are counted.
"""

from __future__ import annotations

import re

from dsv4bench.errors import Unanswerable
from dsv4bench.host.redact import redact
from dsv4bench.records.arm import Plain
from dsv4bench.store.importing.details import Details
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import LITTLE, Draft, Level
from dsv4bench.store.importing.openai_clients import latencies, totals
from dsv4bench.store.importing.values import LOCAL, compact_date, count, endpoint, known, number, text

TOOL = "vllm"
ROLE_CHUNK = "this client's TTFT on the chat endpoint counts the role chunk: see ttfc_p50_s"
STANDARD = {
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate"),
    *("burstiness", "max_concurrency", "duration", "completed", "failed", "run_number", "rtfx"),
    *("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"),
}
WRITTEN = re.compile(
    r"(?:total|mean|median|std|p[\d.]+|max_concurrent|max_output|spec_decode|diffusion|probe|rps|request)_|.*_throughput$"
)


def is_mine(record: Record) -> bool:
    told = {"model_id", "tokenizer_id", "endpoint_type", "total_token_throughput"} & set(record)
    return {"completed", "total_output_tokens", "duration"} <= set(record) and bool(told)


def read(record: Record, where: str) -> list[Level]:
    """One run is one level. Raises Unanswerable for a summary of several runs in one object."""
    if isinstance(record.get("output_throughput"), dict):
        raise Unanswerable(f"{where}: means over several runs", "give the file of each run: repeats carry the noise")
    draft = Draft(record)
    kind = endpoint(text(record, "endpoint_type") or text(record, "backend"))
    totals(draft, record)
    for theirs in ("ttft", "tpot", "itl", "e2el"):
        latencies(draft, record, theirs, "ms")
    if kind == "chat":
        first_chunk_is_ttfc(draft)
    draft.put("total_tok_s", number(record, "total_token_throughput"))
    _speculation(draft, record)
    _detailed(draft, record)
    started = compact_date(text(record, "date"))
    if started is not None:
        draft.fields["started_utc"] = started
    facts: dict[str, Plain] = known(
        model=text(record, "model_id"), tokenizer=text(record, "tokenizer_id"), endpoint=kind
    )
    extra = extras(record)
    run = count(record, "run_number")
    label = text(record, "label")
    if label is None and run is not None and extra:
        label = ",".join(f"{k}={v}" for k, v in extra.items())
    notes = [f"said by the file: {', '.join(f'{k}={v}' for k, v in extra.items())}"] if extra else []
    notes += [LOCAL] if started is not None else []
    notes += [LITTLE] if "achieved_batch" in draft.fields and "peak_in_flight" not in draft.fields else []
    launch = extra.get("launch")
    return [draft.level(facts, label=label, run=run, launch_key=None if launch is None else str(launch), notes=notes)]


def extras(record: Record) -> dict[str, Plain]:
    """`--metadata` pairs and a sweep's parameters: top-level keys that no version of the tool writes."""
    plain = {k: v for k, v in record.items() if k not in STANDARD and isinstance(v, str | int | float | bool)}
    clean: dict[str, Plain] = redact({k: v for k, v in plain.items() if not WRITTEN.match(k)})
    return clean


def first_chunk_is_ttfc(draft: Draft) -> None:
    if "ttft_p50_s" in draft.fields:
        draft.fields["ttfc_p50_s"] = draft.fields["ttft_p50_s"]
    draft.not_ours(ROLE_CHUNK, *(f"ttft_{q}_s" for q in ("mean", "p50", "p90", "p99")))


def _speculation(draft: Draft, record: Record) -> None:
    """Acceptance length, and the rate as a note: from the counts where they are, for the rate's unit differs."""
    drafts, offered = number(record, "spec_decode_num_drafts"), number(record, "spec_decode_num_draft_tokens")
    accepted = number(record, "spec_decode_num_accepted_tokens")
    percent = number(record, "spec_decode_acceptance_rate")
    frac = accepted / offered if accepted is not None and offered else None if percent is None else percent / 100
    length = number(record, "spec_decode_acceptance_length")
    if not length and accepted is not None and drafts:
        length = 1 + accepted / drafts
    draft.put("accept_length", length)
    if frac is not None and length:
        draft.notes.append(f"{100 * frac:.1f} % of the drafted tokens accepted")


def _detailed(draft: Draft, record: Record) -> None:
    details = Details(record)
    batch = details.in_flight()
    e2e, request_s = draft.fields.get("e2e_mean_s"), draft.fields.get("request_s")
    if batch is not None:
        draft.fields.update(achieved_batch=batch.mean, decode_batch=batch.decode_mean, peak_in_flight=batch.peak)
    elif e2e is not None and request_s is not None:
        draft.fields["achieved_batch"] = e2e * request_s
    draft.put("tokens_per_chunk", details.tokens_per_chunk())
    if details.errors:
        draft.fields["error_example"] = redact(details.errors[0])
    if batch is None:
        draft.why["peak_in_flight"] = "their peak counts one-second buckets and exceeds the cap"
