"""Can this server be profiled over HTTP, and where will its traces lie? Asked before any load is sent.

A vLLM has a profiler only when it was started with one, and then writes into a folder that was fixed there. SGLang
and our own server take the folder with the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.calls import Caller
from dsv4bench.server.target import Target

START, STOP = "/start_profile", "/stop_profile"
PROFILED = (Engine.SGLANG, Engine.VLLM, Engine.DSV4BENCH)
NEW_FORM = (0, 13)  # vLLM versions from here on take --profiler-config
CUDA_FLAG = """--profiler-config '{"profiler": "cuda"}'"""
CUDA_VARIABLE = "VLLM_TORCH_CUDA_PROFILE"  # before 0.13
STAGED_VARIABLE = "SGLANG_PROFILE_V2"  # profiles by stage only, and cannot be stopped
_OUTSIDE = "--range outside needs nothing of the server"


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


def require_range(
    target: Target, info: ServerInfo, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> None:
    """Whether this running server can be made to call cudaProfilerStart and cudaProfilerStop, as far as it tells.

    `command` and `environment` are its process's, where they can be seen. Raises UsageError with the flag to add.
    """
    if info.engine not in PROFILED:
        raise UsageError(
            f"--range server: {info.url} ({info.engine}) has no call that makes it run cudaProfilerStart", _OUTSIDE
        )
    if info.engine is Engine.VLLM:
        told = _vllm_profiler([str(info.args or "")], {}) or _vllm_profiler(command, environment or {})
        if told not in (None, "cuda"):
            raise _other_profiler(told)
    if info.engine is Engine.SGLANG:
        _refuse_staged(environment or {})
    try:
        require_profiler(target, info)
    except UsageError as error:
        raise _other_profiler(None) if info.engine is Engine.VLLM and info.front_end is None else error from None


def refuse_range(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Before a server is started, which may take minutes: raises UsageError where its command rules a range out.

    A command that starts it in a way of its own (a script, a settings file) is judged once the server runs.
    """
    names = [Path(word).name for word in command]
    if "vllm" in names or any(word.startswith("vllm.") for word in command):
        told = _vllm_profiler(command, environment)
        by_file = any(word.partition("=")[0] == "--config" for word in command)
        if told not in (None, "cuda") or (told is None and not by_file):
            raise _other_profiler(told)
    elif any(word.partition(".")[0] == "sglang" for word in names):
        _refuse_staged(environment)
    elif "dsv4bench" in names and "serve" in names and not re.search(r"--device[= ]cuda\b", " ".join(command)):
        raise UsageError("--range server: without a GPU there is no cudaProfilerStart", "add  --device cuda")


def _vllm_profiler(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Which profiler a vLLM was given: cuda, torch, proton; None where nothing tells."""
    found = re.search(r"\bprofiler[\"']?\s*[=:\s]\s*[\"']?(cuda|torch|proton)\b", " ".join(command))
    if found:
        return found.group(1)
    return "cuda" if environment.get(CUDA_VARIABLE) == "1" else None


def _other_profiler(told: str | None) -> UsageError:
    has = "was started without a profiler" if told is None else f"was given the {told} profiler"
    return UsageError(
        f"--range server: this vLLM {has} and does not call cudaProfilerStart",
        f"{'add' if told is None else 'give it'}  {CUDA_FLAG}  (before 0.13: {CUDA_VARIABLE}=1); {_OUTSIDE}",
    )


def _refuse_staged(environment: Mapping[str, str]) -> None:
    if only_by_stage(environment):
        raise UsageError(
            f"--range server: with {STAGED_VARIABLE} an SGLang's profile cannot be stopped",
            f"start it without {STAGED_VARIABLE}; {_OUTSIDE}",
        )


def only_by_stage(environment: Mapping[str, str]) -> bool:
    """Whether an SGLang with these variables takes only profiles by stage: of others its scheduler dies."""
    return environment.get(STAGED_VARIABLE, "").lower() in ("1", "true", "yes", "on")


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
