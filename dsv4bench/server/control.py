"""Calls that steer or question a known server between levels: flush the prefix cache, read its document again.

They never raise: a refusal must not lose a measurement that is already taken. A caller that needs the flush tells
the user when it gets False. Profiler calls are not here.
"""

from __future__ import annotations

from typing import Any

from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.calls import Caller
from dsv4bench.server.dialects import arguments, ask_server_info
from dsv4bench.server.target import Target


def flush_prefix_cache(target: Target, info: ServerInfo, timeout_s: float = 10.0) -> bool:
    """Empty the prefix cache; False when the engine cannot, refuses (requests in flight), or does not answer.

    vLLM has the call in development mode only, and says {"success": false} with a 200 when it refused; older
    versions answer a bare 200 in either case, which is taken as a yes.
    """
    paths = {
        Engine.SGLANG: "/flush_cache",
        Engine.DSV4BENCH: "/flush_cache",
        Engine.VLLM: "/reset_prefix_cache",
    }
    path = paths.get(info.engine)
    if path is None:
        return False
    with Caller(target, timeout_s) as caller:
        reply = caller.post(path)
    found = reply.json()
    return reply.ok and not (isinstance(found, dict) and found.get("success") is False)


def server_info(target: Target, info: ServerInfo, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """The server's arguments as it reports them now, redacted; None when it does not tell."""
    if info.engine not in (Engine.SGLANG, Engine.VLLM, Engine.DSV4BENCH):
        return None
    with Caller(target, timeout_s) as caller:
        found, _ = ask_server_info(caller)
        if found is not None and info.engine is Engine.VLLM:
            structured = caller.ask("/server_info?config_format=json").json()
            found = structured if isinstance(structured, dict) else found
    return None if found is None else arguments(info.engine, found)
