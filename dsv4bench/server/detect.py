"""Who answers at a URL: engine, version, model, limits, start time, metrics and arguments, in one `ServerInfo`.

The first question is `GET /v1/models`; when nobody answers it, or it needs a key, that is the user's to solve and
a UsageError says how. Everything after it is a courtesy: what the server does not tell is None, and `missing`
says why. Nothing is generated and nothing is changed on the server.
"""

from __future__ import annotations

from typing import Literal

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.calls import Caller, Reply
from dsv4bench.server.dialects import Told, identify
from dsv4bench.server.front_end import ADVICE, FrontEnd, dynamo, listed_front_end
from dsv4bench.server.gauges import parse_gauges
from dsv4bench.server.model_config import vocab_size
from dsv4bench.server.models import ModelCard, ModelList, choose_model, read_models
from dsv4bench.server.target import Target

_METRICS_HINT = {
    Engine.SGLANG: "start SGLang with --enable-metrics",
    Engine.LLAMACPP: "start llama-server with --metrics",
}


def detect(target: Target, model: str | None, timeout_s: float = 5.0) -> ServerInfo:
    """Ask the server who it is; `model` is the name the user gave, if any.

    Raises UsageError when it cannot be reached, needs another key, is still loading, does not serve `model`, or
    tells no model's name and none was given.
    """
    with Caller(target, timeout_s) as caller:
        first = caller.get("/v1/models")
        _refuse_loading(target, first)
        listed = read_models(first)
        told = identify(caller, first, listed)
        chosen, notes = choose_model(model, listed, told.model_name, told.engine)
        front = _front_end(caller, told, listed)
        told.notes += notes + ([f"{front.what}: {ADVICE}"] if front is not None else [])
        if listed.why_none:
            told.missing["models"] = listed.why_none
        started_s, metrics_path = _metrics(caller, told)
    card = listed.card(chosen) or ModelCard(id=chosen)
    size, source = _vocabulary(told, card)
    tokenizer = told.tokenizer or told.model_path or card.root
    longest = told.max_model_len or card.max_model_len
    for name, value in (("max_model_len", longest), ("tokenizer", tokenizer), ("args", told.args)):
        if value is None:
            told.missing.setdefault(name, "the server does not tell it")
    return ServerInfo(
        url=target.base_url,
        engine=told.engine,
        version=told.version,
        model=chosen,
        models=listed.ids,
        max_model_len=longest,
        vocab_size=size,
        vocab_source=source,
        tokenizer=tokenizer,
        process_start_time_s=started_s,
        metrics_path=metrics_path,
        args=told.args,
        missing=told.missing,
        notes=told.notes,
        front_end=front.what if front is not None else None,
        workers=front.workers if front is not None else [],
    )


def _refuse_loading(target: Target, first: Reply) -> None:
    if first.status == 503 and "loading" in first.text[:2000].lower():
        raise UsageError(f"{target.base_url} is still loading its model (503)", "wait until /health answers 200")


def _front_end(caller: Caller, told: Told, listed: ModelList) -> FrontEnd | None:
    """A router or front end, when this looks like one."""
    if told.front_end is not None or told.engine not in (Engine.GENERIC, Engine.SGLANG):
        return told.front_end
    found = listed_front_end(caller)
    return dynamo(caller, listed.owned_by) if found is None and told.engine is Engine.GENERIC else found


def _metrics(caller: Caller, told: Told) -> tuple[float | None, str | None]:
    """The process's start time and the path of its metrics, where they can be read."""
    reply = caller.ask("/metrics")
    if not reply.ok:
        hint = _METRICS_HINT.get(told.engine)
        told.missing["metrics_path"] = reply.why_not() + (f"; {hint}" if hint else "")
        told.missing["process_start_time_s"] = "no metrics"
        return None, None
    try:
        gauges = parse_gauges(reply.text, told.engine)
    except BenchError as e:
        told.missing["metrics_path"] = e.message
        told.missing["process_start_time_s"] = "no metrics"
        return None, None
    if gauges.process_start_time_s is None:
        told.missing["process_start_time_s"] = "the metrics hold no process_start_time_seconds"
    return gauges.process_start_time_s, "/metrics"


def _vocabulary(told: Told, card: ModelCard) -> tuple[int | None, Literal["server", "config"] | None]:
    """The vocabulary's size from the server, else from a config.json that this host can read."""
    if size := told.vocab_size or card.vocab_size:
        return size, "server"
    names = [n for n in (told.model_path, card.root, card.id, told.tokenizer) if n]
    for name in dict.fromkeys(names):
        if found := vocab_size(name):
            size, path = found
            told.notes.append(f"vocabulary size {size} is from {path}")
            return size, "config"
    told.missing["vocab_size"] = "the server does not tell it, and its model directory is not on this host"
    return None, None
