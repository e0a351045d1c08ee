"""Request bodies: which fields ask a server for exactly OSL tokens and for exact counts, and what a refusal drops.

Servers differ in what they accept: vLLM and SGLang count tokens at every chunk when asked, llama.cpp does so in its
`timings`, transformers serve rejects unknown fields with 422. `field_sets` gives the richest body first; the probe
goes down the list until one is accepted, and the workload records which fields were sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4bench.load.prompts import Prompt
from dsv4bench.records.server import Engine
from dsv4bench.records.workload import Endpoint

_USAGE = {"stream_options": {"include_usage": True}}
_COUNTED = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
_EXACT = {"ignore_eos": True}


def field_sets(engine: Engine, ignore_eos: bool) -> list[dict[str, Any]]:
    """Extra request fields to try, richest first; the last one is the bare OpenAI request."""
    exact = _EXACT if ignore_eos else {}
    if engine is Engine.TRANSFORMERS:
        return [{}]
    if engine is Engine.LLAMACPP:
        return [{**exact, **_USAGE, "timings_per_token": True}, {**exact, **_USAGE}, _USAGE, {}]
    return [{**exact, **_COUNTED}, {**exact, **_USAGE}, _COUNTED, _USAGE, {}]


def body(
    prompt: Prompt, model: str, extra: dict[str, Any], *, temperature: float = 0.0, max_tokens: int | None = None
) -> bytes:
    """The JSON body of one streaming request. `max_tokens` overrides the prompt's own OSL (warm-up, probes)."""
    fields = {
        "model": model,
        "stream": True,
        "max_tokens": max_tokens or prompt.osl,
        "temperature": temperature,
        **prompt.fields,
        **extra,
    }
    return msgspec.json.encode(fields)


def api_path(prefix: str, endpoint: Endpoint) -> str:
    return f"{prefix}/v1/{'chat/completions' if endpoint == 'chat' else 'completions'}"


def sent_names(extra: dict[str, Any]) -> list[str]:
    """Flat names of the extra fields, for the workload's record."""
    names = []
    for key, value in extra.items():
        names += [f"{key}.{inner}" for inner in value] if isinstance(value, dict) else [key]
    return sorted(names)
