"""How many token ids are there? Told by the user, the server or a local config; else asked, else assumed.

A server that refuses an id outside its vocabulary is asked by bisection, one token a question. That is done only
where the refusal is known to be clean (an id out of range reaches an unchecked GPU gather on some engines).
"""

from __future__ import annotations

import ssl

import httpx

from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.target import Target

ASSUMED = 32_000  # nearly every served model has at least as many
ASKED = (Engine.VLLM, Engine.LLAMACPP, Engine.DSV4BENCH)
TOO_LARGE = 1 << 22
QUESTION_S = 20.0


def find_vocab(option: int | None, info: ServerInfo, target: Target) -> tuple[int, str]:
    """(size, where it comes from: option | server | config | probed | assumed)."""
    if option is not None:
        return option, "option"
    if info.vocab_size is not None:
        return info.vocab_size, info.vocab_source or "server"
    if info.engine in ASKED:
        # as every other call: no proxy sees the key, and the system's trust store counts
        tls: ssl.SSLContext | bool = ssl.create_default_context() if target.verify else False
        with httpx.Client(headers=target.headers, verify=tls, timeout=QUESTION_S, trust_env=False) as client:
            size = _bisect(client, target.url("/v1/completions"), info.model)
        if size is not None:
            return size, "probed"
    return ASSUMED, "assumed"


def _bisect(client: httpx.Client, url: str, model: str) -> int | None:
    """The smallest id that is refused; None when nothing, or everything, is."""
    low, high = 1, TOO_LARGE
    if _accepted(client, url, model, low) is not True or _accepted(client, url, model, high) is not False:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        answer = _accepted(client, url, model, middle)
        if answer is None:
            return None
        low, high = (middle, high) if answer else (low, middle)
    return high


def _accepted(client: httpx.Client, url: str, model: str, token: int) -> bool | None:
    """Whether a prompt of this one id is taken; None when the answer says neither."""
    try:
        reply = client.post(url, json={"model": model, "prompt": [token], "max_tokens": 1, "temperature": 0})
        failed = not reply.is_success or "error" in reply.json()
    except (httpx.HTTPError, ValueError):
        return None
    if reply.status_code >= 500:
        return None
    return not failed
