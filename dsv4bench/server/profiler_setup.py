"""Can this server be profiled over HTTP, and where will its traces lie? Asked before any load is sent.

A vLLM has a profiler only when it was started with one, and then writes into a folder that was fixed there. SGLang
and our own server take the folder with the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.calls import Caller
from dsv4bench.server.target import Target

START, STOP = "/start_profile", "/stop_profile"
PROFILED = (Engine.SGLANG, Engine.VLLM, Engine.DSV4BENCH)
NEW_FORM = (0, 13)  # vLLM versions from here on take --profiler-config


def require_profiler(target: Target, info: ServerInfo) -> None:
    """Whether there is a profiler to call, as far as it can be told without calling it.

    Raises UsageError with what to do: another method, the workers' URLs, the flag that is missing.
    """
    if info.front_end is not None:
        raise UsageError(f"{info.url} is {info.front_end}: it has no profile of its own", ask_for_workers(info))
    if info.engine not in PROFILED:
        raise UsageError(
            f"{info.url} ({info.engine}) has no profiler that can be called over HTTP",
            "record it from outside: --with nsys --launch 'its command', or --with pm for the tensor pipe alone",
        )
    with Caller(target) as caller:
        page = caller.ask("/openapi.json").json()
    paths = page.get("paths") if isinstance(page, dict) else None
    if isinstance(paths, dict) and paths and START not in paths:
        raise absent(info)


def ask_for_workers(info: ServerInfo) -> str:
    """The option that names the workers, with their addresses where the front end tells them."""
    known = [w for w in info.workers if w.url]
    decode = [w for w in known if w.role == "decode"] or [w for w in known if w.role is None]
    shown = decode[0].url if decode else "http://HOST:PORT"
    listed = ", ".join(f"{w.url}{f' ({w.role})' if w.role else ''}" for w in known)
    return f"name the worker to profile: --role decode={shown}" + (f"; its workers: {listed}" if known else "")


def how_to_enable(info: ServerInfo) -> str:
    """The line that gives a vLLM of this version a profiler."""
    new = """vllm serve … --profiler-config '{"profiler": "torch", "torch_profiler_dir": "/tmp/vllm_profile"}'"""
    old = "VLLM_TORCH_PROFILER_DIR=/tmp/vllm_profile vllm serve …"
    version = _version(info.version)
    if version is None:
        return f"start it with  {new}  (before 0.13:  {old})"
    return f"start it with  {new if version >= NEW_FORM else old}"


def ranks_expected(info: ServerInfo) -> int | None:
    """How many processes write a trace, where the server tells its parallelism."""
    args = info.args or {}
    if info.engine is Engine.DSV4BENCH:
        return 1
    if info.engine is Engine.SGLANG and _whole(args.get("tp_size")):
        replicas = 1 if args.get("enable_dp_attention") else _whole(args.get("dp_size")) or 1
        return (_whole(args.get("tp_size")) or 1) * (_whole(args.get("pp_size")) or 1) * replicas
    parallel = args.get("parallel_config")
    if info.engine is Engine.VLLM and isinstance(parallel, dict) and _whole(parallel.get("world_size")):
        return (_whole(parallel.get("world_size")) or 1) * (_whole(parallel.get("data_parallel_size")) or 1)
    return None


def folder_told(
    info: ServerInfo, command: Sequence[str] = (), environment: dict[str, str] | None = None
) -> str | None:
    """Where a vLLM writes its traces: from its own arguments, else from how its process was started."""
    for text in (str(info.args or ""), " ".join(command)):
        found = re.search(r"torch_profiler_dir[\"']?\s*[=:\s]\s*[\"']?([^\"',}\s]+)", text)
        if found:
            return found.group(1)
    told = (info.args or {}).get("env")
    variables = {**(told if isinstance(told, dict) else {}), **(environment or {})}
    folder = variables.get("VLLM_TORCH_PROFILER_DIR")
    return str(folder) if folder else None


def absent(info: ServerInfo) -> UsageError:
    """There is no such endpoint: the line that gives the server one."""
    if info.engine is Engine.VLLM:
        return UsageError(f"{info.url}: this vLLM was started without a profiler", how_to_enable(info))
    return UsageError(f"{info.url} has no {START}", "a newer version has; or --with nsys --launch 'its command'")


def _version(text: str | None) -> tuple[int, int] | None:
    """Major and minor; a development build says 0.1.dev, which tells nothing."""
    found = re.match(r"v?(\d+)\.(\d+)", text or "")
    return (int(found.group(1)), int(found.group(2))) if found and ".dev" not in (text or "")[:8] else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
