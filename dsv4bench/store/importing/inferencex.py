"""InferenceX: raw files like vLLM's with seconds in place of milliseconds, and processed ones, per GPU.

A processed file divides throughput by the number of GPUs, renames keys without a unit (seconds), adds `*_intvty`
(1/TPOT, not read) and drops the counts: how many requests succeeded is then unknown. Only files of one node with
`tp` GPUs are multiplied back; of a disaggregated set-up no throughput is taken.
"""

from __future__ import annotations

from dsv4bench.records.arm import Plain
from dsv4bench.store.importing.documents import Record
from dsv4bench.store.importing.level import Draft, Level
from dsv4bench.store.importing.openai_clients import latencies, totals
from dsv4bench.store.importing.values import LOCAL, compact_date, count, known, number, text

TOOL = "inferencex"
DROPPED = "a processed file drops the counts"


def is_mine(record: Record) -> bool:
    return _processed(record) or ("completed" in record and bool({"median_tpot", "median_ttft"} & set(record)))


def _processed(record: Record) -> bool:
    return "tput_per_gpu" in record and "conc" in record


def read(record: Record, where: str) -> list[Level]:
    draft = Draft(record)
    for theirs in ("ttft", "tpot", "itl", "e2el"):
        latencies(draft, record, theirs, "s", suffix="")
    if _processed(record):
        return [_per_gpu(draft, record)]
    totals(draft, record)
    draft.put("total_tok_s", number(record, "total_token_throughput"))
    into, out = number(record, "input_throughput"), draft.fields.get("output_tok_s")
    if "total_tok_s" not in draft.fields and into and out:
        draft.put("total_tok_s", into + out)
    started = compact_date(text(record, "date"))
    if started is not None:
        draft.fields["started_utc"] = started
    facts = known(model=text(record, "model_id"), tokenizer=text(record, "tokenizer_id"))
    return [draft.level(facts, notes=[LOCAL] if started is not None else [])]


def _per_gpu(draft: Draft, record: Record) -> Level:
    gpus = count(record, "tp")
    split = record.get("disagg") in (True, "true") or record.get("is_multinode") in (True, "true")
    draft.fields["concurrency"] = count(record, "conc")
    draft.why |= dict.fromkeys(("n_ok", "n_sent", "n_err"), DROPPED)
    draft.notes.append(f"{DROPPED}: 0 requests stands for an unknown number")
    isl, osl = number(record, "isl"), number(record, "osl")
    if isl:
        draft.notes.append(f"asked for ISL {isl:g}, OSL {osl or 0:g}; the realised lengths are not told")
    if gpus and not split:
        draft.put("total_tok_s", _times(number(record, "tput_per_gpu"), gpus))
        draft.put("output_tok_s", _times(number(record, "output_tput_per_gpu"), gpus))
    else:
        why = "throughput is per GPU and the number of GPUs is not told"
        draft.not_ours(why, "total_tok_s", "output_tok_s")
    hardware: dict[str, Plain] | None = None
    if text(record, "hw"):
        hardware = known(gpus=text(record, "hw"), n_gpus=gpus)
    told = known(**{k: record.get(k) for k in ("framework", "precision", "tp", "ep", "dp_attention", "mtp")})
    notes = [f"said by the file: {', '.join(f'{k}={v}' for k, v in told.items())}"] if told else []
    return draft.level(known(model=text(record, "model")), hardware=hardware, notes=notes, asked_isl=isl)


def _times(value: float | None, n: int) -> float | None:
    return None if value is None else value * n
