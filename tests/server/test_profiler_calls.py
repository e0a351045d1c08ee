"""A server's profiler over HTTP: the body that each engine takes, what its answers mean, and where its files go."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from fake_server import Answer, FakeServer, serve

from dsv4bench.errors import BenchError, MeasuredBad, UsageError
from dsv4bench.records.server import Engine, ServerInfo, Worker
from dsv4bench.server.profiler_setup import (
    ask_for_workers,
    folder_told,
    how_to_enable,
    ranks_expected,
    require_profiler,
)
from dsv4bench.server.profiling import HttpProfiler, ProfilerAsk
from dsv4bench.server.target import parse_url

HEALTH: dict[str, Answer] = {"/health": (200, "")}


def info(engine: Engine, url: str = "http://h:1", **more: Any) -> ServerInfo:
    return ServerInfo(url=url, engine=engine, model="m", **more)


def profiler(server: FakeServer, engine: Engine, start_timeout_s: float = 5.0, **ask: Any) -> HttpProfiler:
    return HttpProfiler(
        parse_url(server.url),
        info(engine, server.url),
        ProfilerAsk(**{"steps": 20, "bound": 90, **ask}),
        start_timeout_s,
    )


def taken(bodies: list[dict[str, Any]]) -> Answer:
    """An endpoint that keeps the bodies it gets."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        bodies.append(json.loads(handler.rfile.read(int(handler.headers.get("Content-Length", 0))) or b"{}"))
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.mark.parametrize("engine", [Engine.SGLANG, Engine.DSV4BENCH])
def test_sglang_s_json(engine: Engine) -> None:
    bodies: list[dict[str, Any]] = []
    with serve({"POST /start_profile": taken(bodies)}) as server:
        profiler(server, engine, folder="/t").start()
        profiler(server, engine, gpu_only=True).start()
        profiler(server, engine, by_stage=True).start()
    first, gpu, staged = bodies
    assert first["output_dir"] == "/t" and first["activities"] == ["CPU", "GPU"] and not first["profile_by_stage"]
    assert first["num_steps"] == 90  # the client ends the window; these end one whose client is gone
    assert gpu["activities"] == ["GPU"] and "output_dir" not in gpu
    assert staged["profile_by_stage"] and staged["profile_stages"] == ["decode"] and staged["num_steps"] == 20


def test_vllm_s_optional_body() -> None:
    bodies: list[dict[str, Any]] = []
    with serve({"POST /start_profile": taken(bodies)}) as server:
        profiler(server, Engine.VLLM, prefix="c8", folder="/ignored").start()
    assert bodies == [{"profile_prefix": "c8", "max_iterations": 90}]


@pytest.mark.parametrize(
    ("engine", "answer", "kind", "words"),
    [
        (Engine.VLLM, (404, {"detail": "Not Found"}), UsageError, "started without a profiler"),
        (Engine.SGLANG, (404, {"detail": "Not Found"}), UsageError, "has no /start_profile"),
        (Engine.SGLANG, (403, {"error": {"message": "admin"}}), UsageError, "answered 403: admin"),
        (Engine.SGLANG, (500, "Internal Server Error"), UsageError, "answered 500: Internal Server Error"),
        (Engine.DSV4BENCH, (400, {"error": {"message": "a profile is already running"}}), UsageError, "already"),
    ],
)
def test_a_start_that_is_refused(engine: Engine, answer: Answer, kind: type[BenchError], words: str) -> None:
    with serve({"POST /start_profile": answer}) as server, pytest.raises(kind, match=words) as caught:
        profiler(server, engine).start()
    assert caught.value.hint


def hang(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(20)
    handler.rfile.read(1 << 20)  # until the client has gone


def test_a_start_that_hangs_or_is_cut() -> None:
    with (
        serve({"POST /start_profile": hang}) as server,
        pytest.raises(MeasuredBad, match=r"no answer within 0\.3 s"),
    ):
        profiler(server, Engine.SGLANG, start_timeout_s=0.3).start()
    with pytest.raises(MeasuredBad, match="start_profile"):
        profiler(server, Engine.SGLANG).start()  # nobody is there any more


@pytest.mark.parametrize(
    ("engine", "answer", "state"),
    [
        (Engine.SGLANG, (200, "Stop profiling.\n"), "stopped"),
        (Engine.VLLM, (200, ""), "stopped"),
        (Engine.SGLANG, (500, "Internal Server Error"), "over"),  # it had stopped by itself
        (Engine.SGLANG, (400, "Profiling is not in progress. Call /start_profile first."), "over"),
        (Engine.VLLM, (500, "Internal Server Error"), "failed"),
        (Engine.DSV4BENCH, (200, "Stop profiling: /t.json.gz\n"), "stopped"),
        (Engine.DSV4BENCH, (200, "Stop profiling: /t.json.gz\nit ended by itself after 9 steps\n"), "over"),
        (Engine.DSV4BENCH, (500, {"error": {"message": "the trace was not written"}}), "failed"),
        (Engine.SGLANG, (503, "busy"), "failed"),
        (Engine.SGLANG, hang, "hung"),
    ],
)
def test_what_a_stop_means(engine: Engine, answer: Answer, state: str) -> None:
    with serve({"POST /stop_profile": answer, **HEALTH}) as server:
        stopped = profiler(server, engine).stop(0.3 if answer is hang else 5)
    assert stopped.state == state and stopped.ended == (state in ("stopped", "over"))
    assert "\n" not in stopped.line


def test_a_server_that_is_gone_cannot_be_told() -> None:
    with serve({}) as server:
        pass
    stopped = profiler(server, Engine.SGLANG).stop(2)
    assert stopped.state == "gone" and "it is gone" in stopped.line


def test_the_admin_key_replaces_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_url("http://h:1", ["authorization: Bearer user"])
    assert target.for_control({}) is target
    assert target.for_control({"DSV4BENCH_ADMIN_KEY": "root"}).headers == {"Authorization": "Bearer root"}
    with pytest.raises(UsageError, match="DSV4BENCH_ADMIN_KEY"):
        target.for_control({"DSV4BENCH_ADMIN_KEY": "a\nb"})


# before any load


def test_a_front_end_is_not_profiled() -> None:
    front = info(Engine.SGLANG, front_end="a router over 2 workers", workers=[Worker(), Worker(url="http://w:1")])
    with pytest.raises(UsageError, match="a router over 2 workers") as caught:
        require_profiler(parse_url("http://h:1"), front)
    assert caught.value.hint == "name the worker to profile: --role decode=http://w:1; its workers: http://w:1"
    assert "http://HOST:PORT" in ask_for_workers(info(Engine.GENERIC, front_end="a dynamo front end"))


def test_engines_without_a_profiler() -> None:
    with pytest.raises(UsageError, match="no profiler that can be called") as caught:
        require_profiler(parse_url("http://h:1"), info(Engine.LLAMACPP))
    assert "--with nsys --launch" in caught.value.hint


def test_the_page_of_a_vllm_tells() -> None:
    def page(*paths: str) -> dict[str, Answer]:
        return {"/openapi.json": (200, {"paths": {path: {} for path in paths}})}

    with serve(page("/v1/models")) as server, pytest.raises(UsageError, match="without a profiler"):
        require_profiler(parse_url(server.url), info(Engine.VLLM, version="0.14.0"))
    for routes in (page("/v1/models", "/start_profile"), {}):  # it has one; it does not tell
        with serve(routes) as server:
            require_profiler(parse_url(server.url), info(Engine.VLLM))


@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("0.32.0", False, True),
        ("v0.13.1", False, True),
        ("0.12.9", True, False),
        (None, True, True),
        ("0.1.dev9", True, True),
    ],
)
def test_the_line_that_enables_a_profiler(version: str | None, old: bool, new: bool) -> None:
    line = how_to_enable(info(Engine.VLLM, version=version))
    assert ("VLLM_TORCH_PROFILER_DIR=" in line, "--profiler-config" in line) == (old, new)


@pytest.mark.parametrize(
    ("args", "command", "environment", "folder"),
    [
        ({"profiler_config": {"profiler": "torch", "torch_profiler_dir": "/a"}}, [], {}, "/a"),
        ({"vllm_config": "ProfilerConfig(profiler='torch', torch_profiler_dir='/b/c', x=1)"}, [], {}, "/b/c"),
        ({"env": {"VLLM_TORCH_PROFILER_DIR": "/d"}}, [], {}, "/d"),
        (
            None,
            ["vllm", "serve", "m", "--profiler-config", '{"profiler":"torch","torch_profiler_dir":"./p"}'],
            {},
            "./p",
        ),
        (None, ["vllm", "serve", "--profiler-config.torch_profiler_dir", "/e"], {}, "/e"),
        (None, ["vllm", "serve", "m"], {"VLLM_TORCH_PROFILER_DIR": "f"}, "f"),
        (None, ["vllm", "serve", "m"], {}, None),
    ],
)
def test_where_a_vllm_writes(
    args: dict[str, Any] | None, command: list[str], environment: dict[str, str], folder: str | None
) -> None:
    assert folder_told(info(Engine.VLLM, args=args), command, environment) == folder


@pytest.mark.parametrize(
    ("engine", "args", "ranks"),
    [
        (Engine.DSV4BENCH, None, 1),
        (Engine.SGLANG, {"tp_size": 4, "pp_size": 2, "dp_size": 1}, 8),
        (Engine.SGLANG, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        (Engine.SGLANG, {"tp_size": 2, "dp_size": 3}, 6),
        (Engine.SGLANG, None, None),
        (Engine.VLLM, {"parallel_config": {"world_size": 4, "data_parallel_size": 2}}, 8),
        (Engine.VLLM, {"parallel_config": "a repr"}, None),
    ],
)
def test_how_many_ranks_write(engine: Engine, args: dict[str, Any] | None, ranks: int | None) -> None:
    assert ranks_expected(info(engine, args=args)) == ranks
