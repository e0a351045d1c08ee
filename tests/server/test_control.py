"""Flushing the prefix cache and reading the document again, as each engine answers."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import serve

from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.control import flush_prefix_cache, server_info
from dsv4bench.server.launch import free_port
from dsv4bench.server.target import parse_url


def _info(url: str, engine: Engine) -> ServerInfo:
    return ServerInfo(url=url, engine=engine, model="m")


@pytest.mark.parametrize(
    ("engine", "route", "answer", "expected"),
    [
        (Engine.SGLANG, "POST /flush_cache", (200, "Cache flushed."), True),
        (Engine.SGLANG, "POST /flush_cache", (400, "requests in flight"), False),
        (Engine.DSV4BENCH, "POST /flush_cache", (200, {"success": True}), True),
        (Engine.VLLM, "POST /reset_prefix_cache", (200, {"success": True}), True),
        (Engine.VLLM, "POST /reset_prefix_cache", (200, {"success": False}), False),
        (Engine.VLLM, "POST /reset_prefix_cache", (200, ""), True),
        (Engine.VLLM, "POST /flush_cache", (200, ""), False),  # not in development mode: 404
        (Engine.GENERIC, "POST /flush_cache", (200, ""), False),
    ],
)
def test_flush(engine: Engine, route: str, answer: Any, expected: bool) -> None:
    with serve({route: answer}) as fake:
        assert flush_prefix_cache(parse_url(fake.url), _info(fake.url, engine)) is expected
        if engine is Engine.GENERIC:
            assert fake.paths == []


def test_a_dead_server_is_a_no_and_no_error() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert flush_prefix_cache(parse_url(url), _info(url, Engine.SGLANG), timeout_s=1) is False
    assert server_info(parse_url(url), _info(url, Engine.SGLANG), timeout_s=1) is None


def test_the_document_is_redacted_and_without_volatile_values() -> None:
    document = {"tp_size": 8, "api_key": "hush", "version": "0.5", "internal_states": [{"x": 1}]}
    with serve({"/server_info": (200, document)}) as fake:
        found = server_info(parse_url(fake.url), _info(fake.url, Engine.SGLANG))
    assert found == {"tp_size": 8, "api_key": "***", "version": "0.5"}


def test_a_failing_document_after_the_run_is_none() -> None:
    for answer in [(404, {}), (500, "x"), (200, "<html>"), (200, [])]:
        with serve({"/server_info": answer, "/get_server_info": answer}) as fake:
            assert server_info(parse_url(fake.url), _info(fake.url, Engine.SGLANG)) is None
