"""Before the first level: which request fields this server takes, how it counts, how long the sweep will last.

One request goes out with the richest fields; each refusal drops some. Two more in a row, with other prompts on the
now warm server, show whether it keeps connections, and how long one request takes: the sweep lasts between N/C and N
of them.
Probes use prompts of their own, so that no level finds them in a prefix cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.host.redact import redact_text
from dsv4bench.load.pool import run_level
from dsv4bench.load.prompts import Prompt, PromptSource, make_source, text_chars
from dsv4bench.load.requests import field_sets
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.request import ErrorKind, RequestRecord
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Plan
from dsv4bench.runs.options import SweepOptions, levels
from dsv4bench.runs.sending import Sender
from dsv4bench.runs.vocabulary import ASSUMED, find_vocab
from dsv4bench.server.target import Target

PROBE_TOKENS = 32
REFUSED_FIELD = ("http_400", "http_422")


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe learnt. `ttft_s` is of the first ISL; times are of one request alone."""

    sender: Sender
    source: PromptSource
    make_source: Callable[[int], PromptSource]  # the same source with another seed
    dataset: str
    vocab_size: int | None
    vocab_source: str | None
    ttft_s: float
    tpot_s: float
    notes: list[str]


def probe(o: SweepOptions, target: Target, info: ServerInfo, seed: int, say: MessageCallback) -> Probed:
    """Raises UsageError when the server refuses what was asked, MeasuredBad when it gives no token."""
    notes: list[str] = []
    dataset = o.dataset or ("chat" if o.endpoint == "chat" else "random")
    vocab: tuple[int, str] | None = find_vocab(o.vocab, info, target) if dataset == "random" else None
    if vocab is not None and vocab[1] == "assumed":
        notes.append(f"vocabulary size not known: ids below {ASSUMED}; give --vocab N for the whole range")
    make = _maker(o, dataset, vocab)
    source = make(seed)
    sender, record = _negotiate(o, target, info, source)
    if sender is None:
        if o.dataset is not None or dataset != "random":
            raise _refusal(record, info, o)
        notes = ["this server takes no token ids: text prompts, ISL is approximate"]
        dataset, vocab = "chat", None
        make = _maker(o, dataset, None)
        source = make(seed)
        sender, record = _negotiate(o, target, info, source)
        if sender is None:
            raise _refusal(record, info, o)
    more = source.take(2, o.isl[0], o.osl, "probe", "timing")
    later, reuse = _send(sender, more)
    sender = msgspec.structs.replace(sender, reuse=reuse)
    timed = later[-1] if later[-1].ok else record
    if source.kind != "token_ids" and dataset == "chat":
        asked = [*source.take(1, o.isl[0], o.osl, "probe", "fields"), *more]
        make = _calibrated(o, dataset, list(zip(asked, [record, *later], strict=True))) or make
        source = make(seed)
    if o.ignore_eos and not sender.extra.get("ignore_eos"):
        notes.append("this server does not take ignore_eos: outputs may be short")
    return Probed(
        sender=sender,
        source=source,
        make_source=make,
        dataset=dataset,
        vocab_size=vocab[0] if vocab else None,
        vocab_source=vocab[1] if vocab else None,
        ttft_s=timed.ttft_s or 0.0,
        tpot_s=timed.tpot_s or 0.0,
        notes=notes,
    )


def estimate_s(p: Probed, plan: Plan, osl: int) -> tuple[float, float]:
    """(shortest, longest) time of the whole sweep: batching that costs nothing, batching that gains nothing."""
    low = high = 0.0
    for at in levels(plan):
        one = p.ttft_s * at.isl / plan.isl[0] + p.tpot_s * osl
        if at.concurrency is None:
            span = plan.duration_s or requests_of(at.rate_req_s or 1.0, plan) / (at.rate_req_s or 1.0)
            low, high = low + span + one, high + span + one
        elif plan.duration_s is not None:
            low, high = low + plan.duration_s + one, high + plan.duration_s + at.concurrency * one
        else:
            n = plan.requests_at(at.concurrency)
            low, high = low + math.ceil(n / at.concurrency) * one, high + n * one
    return low, high


def requests_of(rate_req_s: float, plan: Plan) -> int:
    """Requests of an open-loop level: as asked, else the duration's, else half a minute's."""
    if plan.requests is not None:
        return plan.requests
    return max(round(rate_req_s * (plan.duration_s or 30.0)), 16 if plan.duration_s is None else 1)


def _maker(
    o: SweepOptions, dataset: str, vocab: tuple[int, str] | None, chars_per_token: float = 4.0
) -> Callable[[int], PromptSource]:
    return lambda seed: make_source(
        endpoint=o.endpoint,
        dataset=dataset,
        seed=seed,
        vocab_size=vocab[0] if vocab else None,
        prefix_share=o.prefix_share,
        chars_per_token=chars_per_token,
    )


def _negotiate(
    o: SweepOptions, target: Target, info: ServerInfo, source: PromptSource
) -> tuple[Sender | None, RequestRecord]:
    """The first field set that is answered; (None, the last refusal) when even the bare request is refused."""
    prompt = source.take(1, o.isl[0], o.osl, "probe", "fields")[0]
    record: RequestRecord | None = None
    for extra in field_sets(info.engine, o.ignore_eos):
        sender = _sender(o, target, info, extra)
        record = _one(sender, prompt)
        if record.ok:
            return sender, record
        if record.error not in REFUSED_FIELD:
            break
    assert record is not None
    if record.error in REFUSED_FIELD:
        return None, record
    raise _refusal(record, info, o)


def _sender(o: SweepOptions, target: Target, info: ServerInfo, extra: dict[str, Any]) -> Sender:
    return Sender(
        target=target,
        model=info.model,
        endpoint=o.endpoint,
        extra=extra,
        temperature=o.temperature,
        timeout_s=o.timeout_s,
        exact_osl=o.ignore_eos,
    )


def _one(sender: Sender, prompt: Prompt) -> RequestRecord:
    return _send(sender, [prompt])[0][0]


def _send(sender: Sender, prompts: list[Prompt]) -> tuple[list[RequestRecord], bool]:
    """One after the other: (their records, whether connections may be reused)."""
    outcome = run_level(sender.level(prompts, 1, max_tokens=min(prompts[0].osl, PROBE_TOKENS)))
    if outcome.interrupted or not outcome.records:
        raise KeyboardInterrupt
    return outcome.records, outcome.reuse


def _calibrated(
    o: SweepOptions, dataset: str, sent: list[tuple[Prompt, RequestRecord]]
) -> Callable[[int], PromptSource] | None:
    """The same source with the server's own characters a token, over all probes: passages differ in language."""
    told = [(text_chars(p), r.prompt_tokens) for p, r in sent if r.prompt_tokens]
    chars, tokens = sum(c for c, _ in told), sum(t for _, t in told)
    return _maker(o, dataset, None, chars / tokens) if chars and tokens else None


def _refusal(record: RequestRecord, info: ServerInfo, o: SweepOptions) -> UsageError | MeasuredBad:
    """What to say when the probe failed: whose fault it is, and what to try."""
    text = redact_text(record.error_text or "")
    what = f"{info.url}: the probe request failed: {record.error}" + (f": {text}" if text else "")
    lowered = text.lower()
    if record.error in ("http_401", "http_403"):
        return UsageError(what, "put the key into DSV4BENCH_API_KEY")
    if record.error == "http_404" and "model" not in lowered:
        other = "completions" if o.endpoint == "chat" else "chat"
        return UsageError(what, f"this server has no {o.endpoint} endpoint there; try --endpoint {other}")
    if "model" in lowered and ("exist" in lowered or "not found" in lowered):
        return UsageError(what, f"served models: {', '.join(info.models) or 'not told'}; choose with --model")
    if "vocabulary" in lowered or "token id" in lowered:
        return UsageError(what, "give the vocabulary's size with --vocab N")
    if record.error in REFUSED_FIELD:
        return UsageError(what, "see the server's message; --isl, --osl, --dataset and --endpoint shape the request")
    if record.error == ErrorKind.STALLED:
        return MeasuredBad(what, "is the server still loading? --timeout S waits longer")
    return MeasuredBad(what, "no token came back; see the server's log")
