"""Asks a server for greedy outputs, prompt after prompt, with tokens and log-probabilities where it tells them.

Not streamed, one request at a time, temperature 0. The first request finds out which of the further fields the
server takes: `logprobs`, ids instead of texts (vLLM's `return_token_ids`, `return_tokens_as_token_ids`), and
`ignore_eos`; what is refused is left out of all of them and said. Where neither ids nor tokens come back the text is
cut into words, so that a first difference still has a place.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsv4bench.host.redact import redact_text
from dsv4bench.records.outputs import NO_LOGPROBS, REFUSED, Unit
from dsv4bench.records.workload import Endpoint
from dsv4bench.server.calls import Caller, Reply

BEST = 5  # OpenAI's most for completions
REFUSALS = (400, 422)
_BY_ID = "token_id:"

# What is asked beside the bare request, the most missed first; each line is kept or dropped as a whole.
_LOGPROBS: dict[Endpoint, dict[str, Any]] = {
    "completions": {"logprobs": BEST},
    "chat": {"logprobs": True, "top_logprobs": BEST},
}
_EXACT = {"ignore_eos": True}
_IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}


class Answer(NamedTuple):
    """One output; `failure` says why there is none."""

    tokens: list[str]
    unit: Unit
    best: list[dict[str, float]] | None
    failure: str | None = None


class Asked(NamedTuple):
    """The answers in the order of the prompts, and what must be said of them all."""

    answers: list[Answer]
    notes: list[str]


def ask_outputs(
    caller: Caller, model: str, prompts: Sequence[Mapping[str, Any]], osl: int, endpoint: Endpoint
) -> Asked:
    """`prompts`: each the request's own fields (`prompt` or `messages`). Never raises for what a server answers."""
    if not prompts:
        return Asked([], [])
    extra, first = _accepted(caller, endpoint, _body(model, prompts[0], osl))
    if first.failure is not None:
        return Asked([first] * len(prompts), [])
    rest = [_ask(caller, endpoint, _body(model, fields, osl) | extra) for fields in prompts[1:]]
    answers = [first, *rest]
    refused = [name for group in _groups(endpoint) for name in group if name not in extra]
    notes = [f"{REFUSED}{', '.join(refused)}"] if refused else []
    if "ignore_eos" in refused:
        notes.append("a text may end early")
    if any(a.best is None and a.failure is None for a in answers):
        notes.append(NO_LOGPROBS)
    return Asked(answers, notes)


def _body(model: str, fields: Mapping[str, Any], osl: int) -> dict[str, Any]:
    return {"model": model, **fields, "max_tokens": osl, "temperature": 0.0, "stream": False}


def _groups(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [_LOGPROBS[endpoint], _EXACT, _IDS]


def _accepted(caller: Caller, endpoint: Endpoint, body: dict[str, Any]) -> tuple[dict[str, Any], Answer]:
    """The richest set of further fields that is not refused, and the answer to it."""
    groups = _groups(endpoint)
    extra: dict[str, Any] = {}
    reply = Reply(path="", failure="not asked")
    for kept in itertools.product((True, False), repeat=len(groups)):
        extra = {k: v for keep, group in zip(kept, groups, strict=True) if keep for k, v in group.items()}
        reply = _post(caller, endpoint, body | extra)
        if reply.status not in REFUSALS:
            break
    return extra, _read(reply)


def _ask(caller: Caller, endpoint: Endpoint, body: dict[str, Any]) -> Answer:
    return _read(_post(caller, endpoint, body))


def _post(caller: Caller, endpoint: Endpoint, body: dict[str, Any]) -> Reply:
    return caller.post("/v1/chat/completions" if endpoint == "chat" else "/v1/completions", body)


def _read(reply: Reply) -> Answer:
    """An answer in any dialect, or why it is none."""
    found = reply.json() if reply.ok else None
    choices = found.get("choices") if isinstance(found, dict) else None
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        said = redact_text(reply.text[:300].strip())
        return Answer([], "words", None, f"{reply.why_not()}{f': {said}' if said else ''}")
    choice = choices[0]
    logprobs = choice.get("logprobs")
    unit, told = _positions(logprobs if isinstance(logprobs, dict) else {})
    if told:
        return Answer([token for token, _ in told], unit, [best for _, best in told])
    ids = choice.get("token_ids")
    if isinstance(ids, list) and ids:
        return Answer([str(i) for i in ids], "ids", None)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return Answer(re.findall(r"\s*\S+|\s+$", text or ""), "words", None)


def _positions(logprobs: dict[str, Any]) -> tuple[Unit, list[tuple[str, dict[str, float]]]]:
    """(what the tokens are named by, each token with the log-probabilities told at its place), in either form."""
    content = logprobs.get("content")
    if isinstance(content, list):
        entries = [e for e in content if isinstance(e, dict)]
        by_id = all(isinstance(e.get("id"), int) for e in entries)  # llama.cpp
        found = [(_name(e, by_id), _best(e, by_id)) for e in entries]
    else:
        tokens, own, best = (logprobs.get(k) or [] for k in ("tokens", "token_logprobs", "top_logprobs"))
        rows = itertools.zip_longest(tokens, own, best)
        found = [
            (str(token), _finite({**(told or {}), str(token): p})) for token, p, told in rows if token is not None
        ]
        by_id = False
    if found and all(token.startswith(_BY_ID) for token, _ in found):
        found = [(_bare(token), {_bare(t): p for t, p in told.items()}) for token, told in found]
        by_id = True
    return ("ids" if by_id else "tokens"), found


def _best(entry: dict[str, Any], by_id: bool) -> dict[str, float]:
    others = [e for e in entry.get("top_logprobs") or [] if isinstance(e, dict)]
    return _finite({_name(e, by_id): e.get("logprob") for e in [*others, entry]})


def _name(entry: dict[str, Any], by_id: bool) -> str:
    return str(entry["id"] if by_id and "id" in entry else entry.get("token"))


def _bare(token: str) -> str:
    return token.removeprefix(_BY_ID)


def _finite(told: Mapping[str, Any]) -> dict[str, float]:
    """Without what is no number: a barred token's -Infinity, a null."""
    return {t: float(p) for t, p in told.items() if isinstance(p, int | float) and math.isfinite(p)}
