"""Can a server bound a window of nsys itself? Told by its command before it starts, and by itself once it runs."""

from __future__ import annotations

import json
import shlex
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from fake_server import Answer, serve

from dsv4bench.errors import UsageError
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.profiler_setup import refuse_range, require_range
from dsv4bench.server.profiling import HttpProfiler, ProfilerAsk
from dsv4bench.server.target import parse_url

FLAG = """--profiler-config '{"profiler": "cuda"}'"""
WITH_PROFILER: Answer = (200, {"paths": {"/start_profile": {}}})
WITHOUT: Answer = (200, {"paths": {"/health": {}}})


def info(engine: Engine, url: str = "http://h:1", **more: Any) -> ServerInfo:
    return ServerInfo(url=url, engine=engine, model="m", **more)


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (f"vllm serve M {FLAG}", {}),
        ("vllm serve M --profiler-config.profiler cuda", {}),
        ("python -m vllm.entrypoints.openai.api_server --profiler-config.profiler=cuda", {}),
        ("vllm serve M", {"VLLM_TORCH_CUDA_PROFILE": "1"}),
        ("vllm serve --config settings.yaml", {}),
        ("python -m sglang.launch_server --model-path M", {"SGLANG_PROFILE_V2": "0"}),
        ("dsv4bench serve --device cuda", {}),
        ("/x/python -m dsv4bench serve --device=cuda", {}),
        ("bash start.sh", {"SGLANG_PROFILE_V2": "1"}),
    ],
)
def test_commands_that_may_bound_a_window(command: str, environment: dict[str, str]) -> None:
    refuse_range(shlex.split(command), environment)


@pytest.mark.parametrize(
    ("command", "environment", "message", "hint"),
    [
        ("vllm serve M --port 1", {}, "without a profiler", f"add  {FLAG}"),
        ("/opt/vllm serve M", {"VLLM_TORCH_CUDA_PROFILE": "0"}, "without a profiler", "VLLM_TORCH_CUDA_PROFILE=1"),
        (
            """python -m vllm.x --profiler-config '{"profiler":"torch","torch_profiler_dir":"/t"}' --config c""",
            {"VLLM_TORCH_CUDA_PROFILE": "1"},
            "the torch profiler",
            f"give it  {FLAG}",
        ),
        ("python -m sglang.launch_server", {"SGLANG_PROFILE_V2": "true"}, "cannot be stopped", "without SGLANG_PRO"),
        ("python -m dsv4bench serve --port 1", {}, "no cudaProfilerStart", "--device cuda"),
        ("dsv4bench serve --device cpu", {}, "no cudaProfilerStart", "--device cuda"),
    ],
)
def test_commands_that_cannot_are_refused_before_they_start(
    command: str, environment: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        refuse_range(shlex.split(command), environment)
    assert hint in caught.value.hint and "--range server" in caught.value.message


@pytest.mark.parametrize(
    ("engine", "page", "seen", "message", "hint"),
    [
        (Engine.VLLM, WITHOUT, {}, "without a profiler", FLAG),
        (Engine.VLLM, WITH_PROFILER, {"command": ["x", "--profiler-config.profiler", "torch"]}, "torch", FLAG),
        (Engine.VLLM, WITH_PROFILER, {"args": {"profiler_config": {"profiler": "proton"}}}, "proton", FLAG),
        (Engine.SGLANG, WITH_PROFILER, {"environment": {"SGLANG_PROFILE_V2": "1"}}, "stopped", "without SGLANG"),
        (Engine.SGLANG, WITHOUT, {}, "has no /start_profile", "newer"),
        (Engine.LLAMACPP, WITH_PROFILER, {}, "no call", "--range outside"),
        (Engine.GENERIC, WITH_PROFILER, {}, "no call", "--range outside"),
    ],
)
def test_a_running_server_that_cannot(
    engine: Engine, page: Answer, seen: dict[str, Any], message: str, hint: str
) -> None:
    args = seen.pop("args", None)
    with serve({"/openapi.json": page}) as server, pytest.raises(UsageError, match=message) as caught:
        require_range(parse_url(server.url), info(engine, server.url, args=args), **seen)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("engine", "seen"),
    [
        (Engine.VLLM, {"args": {"profiler_config": {"profiler": "cuda", "torch_profiler_dir": ""}}}),
        (Engine.VLLM, {"environment": {"VLLM_TORCH_CUDA_PROFILE": "1"}}),
        (Engine.VLLM, {}),  # it has a profiler, of which nothing tells the kind: found out by the window
        (Engine.SGLANG, {}),
        (Engine.DSV4BENCH, {}),
    ],
)
def test_a_running_server_that_can(engine: Engine, seen: dict[str, Any]) -> None:
    args = seen.pop("args", None)
    with serve({"/openapi.json": WITH_PROFILER}) as server:
        require_range(parse_url(server.url), info(engine, server.url, args=args), **seen)


def test_a_front_end_is_told_apart() -> None:
    with serve({"/openapi.json": WITH_PROFILER}) as server, pytest.raises(UsageError, match="a router"):
        require_range(parse_url(server.url), info(Engine.VLLM, server.url, front_end="a router"))


@pytest.mark.parametrize("engine", [Engine.SGLANG, Engine.DSV4BENCH, Engine.VLLM])
def test_what_a_server_is_asked_for(engine: Engine) -> None:
    bodies: list[bytes] = []

    def start(handler: BaseHTTPRequestHandler) -> None:
        bodies.append(handler.rfile.read(int(handler.headers.get("Content-Length", 0))))
        handler.send_response(422 if engine is Engine.VLLM else 200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serve({"POST /start_profile": start, "/health": (200, "")}) as server:
        ask = ProfilerAsk(steps=20, bound=None, capture_range=True, folder="/t", gpu_only=True)
        profiler = HttpProfiler(parse_url(server.url), info(engine, server.url), ask, 5.0)
        if engine is Engine.VLLM:
            with pytest.raises(UsageError, match="422"):
                profiler.start()
            assert bodies == [b""], "how it profiles was fixed at its start, and nothing is asked twice"
            return
        profiler.start()
    (body,) = map(json.loads, bodies)
    assert body == {"activities": ["CUDA_PROFILER"], "profile_by_stage": False}, "until it is told to stop"


def test_one_that_had_stopped_says_no_steps() -> None:
    answers: dict[str, Answer] = {"POST /stop_profile": (500, "Profiling is not in progress"), "/health": (200, "")}
    with serve(answers) as server:
        ask = ProfilerAsk(steps=20, bound=None, capture_range=True)
        stopped = HttpProfiler(parse_url(server.url), info(Engine.SGLANG, server.url), ask).stop(5.0)
    assert stopped.state == "over" and stopped.line == "the server had stopped profiling by itself"
