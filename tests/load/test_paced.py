from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import pairwise
from typing import Any

import pytest

from dsv4bench.errors import BenchError
from dsv4bench.load.paced import PacedServer
from dsv4bench.load.paced_wire import parse_ask

ITL_NS = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[PacedServer]:
    with PacedServer(ttft_s=0.002, itl_s=ITL_NS / 1e9) as running:
        yield running


def connect(server: PacedServer) -> HTTPConnection:
    return HTTPConnection(server.url.removeprefix("http://"), timeout=20)


def ask(connection: HTTPConnection, body: Any, path: str = "/v1/completions", **headers: str) -> tuple[int, bytes]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, raw, {k.replace("_", "-"): v for k, v in headers.items()})
    reply = connection.getresponse()
    return reply.status, reply.read()


def events(raw: bytes) -> list[Any]:
    """The events of a stream, which must end with [DONE]."""
    lines = [line for line in raw.split(b"\n\n") if line]
    assert all(line.startswith(b"data: ") for line in lines)
    assert lines[-1] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


def stream(server: PacedServer, body: dict[str, Any], path: str = "/v1/completions", **headers: str) -> list[Any]:
    status, raw = ask(connect(server), {"stream": True, **body}, path, **headers)
    assert status == 200
    return events(raw)


def steps_ns(chunks: list[Any]) -> set[int]:
    dues = [chunk["due"] for chunk in chunks]
    return {b - a for a, b in pairwise(dues)}


def get(server: PacedServer, path: str) -> tuple[int, str]:
    connection = connect(server)
    connection.request("GET", path)
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def test_a_completion_is_its_tokens_on_an_exact_schedule(server: PacedServer) -> None:
    before_ns = time.monotonic_ns()
    chunks = stream(server, {"prompt": [5, 6, 7], "max_tokens": 6})
    assert [c["choices"][0]["text"] for c in chunks] == [" tick"] * 6
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 5 + ["length"]
    assert steps_ns(chunks) == {ITL_NS}
    assert chunks[0]["due"] >= before_ns + 2_000_000
    assert all(c["due"] <= c["ts"] <= time.monotonic_ns() for c in chunks)
    assert not any("usage" in c for c in chunks)


def test_usage_comes_at_the_end_in_an_event_without_choices(server: PacedServer) -> None:
    chunks = stream(server, {"prompt": [1] * 50, "max_tokens": 3, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 50, "completion_tokens": 3, "total_tokens": 53}
    assert len(chunks) == 4


def test_usage_as_it_goes(server: PacedServer) -> None:
    chunks = stream(
        server, {"prompt": "two words", "max_tokens": 3, "stream_options": {"continuous_usage_stats": True}}
    )
    assert [(c["usage"]["completion_tokens"], c["usage"]["total_tokens"]) for c in chunks] == [(1, 3), (2, 4), (3, 5)]


def test_a_chat_begins_with_a_role_and_no_text(server: PacedServer) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is it"}]
    body = {"messages": messages, "max_completion_tokens": 2, "stream_options": {"include_usage": True}}
    role, *tokens, usage = stream(server, body, "/v1/chat/completions")
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [t["choices"][0]["delta"] for t in tokens] == [{"content": " tick"}] * 2
    assert role["ts"] < tokens[0]["due"]
    assert usage["usage"]["prompt_tokens"] == 5


def test_headers_set_the_pace_of_one_request(server: PacedServer) -> None:
    chunks = stream(server, {"prompt": [1], "max_tokens": 4}, X_TTFT_us="0", X_ITL_us="300")
    assert steps_ns(chunks) == {300_000}
    assert ask(connect(server), {"prompt": [1]}, X_ITL_us="-1")[0] == 400


def test_a_reply_in_one_piece(server: PacedServer) -> None:
    status, raw = ask(connect(server), {"prompt": "a b", "max_tokens": 3})
    reply = json.loads(raw)
    assert status == 200
    assert reply["choices"] == [{"index": 0, "text": " tick tick tick", "finish_reason": "length"}]
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    _, raw = ask(connect(server), {"messages": [{"role": "user", "content": "a"}]}, "/v1/chat/completions")
    assert json.loads(raw)["choices"][0]["message"]["content"] == " tick" * 16


def test_the_name_of_the_model_comes_back_whatever_is_in_it(server: PacedServer) -> None:
    name = 'org/100%(ts)d "é"'
    assert {c["model"] for c in stream(server, {"prompt": [1], "max_tokens": 2, "model": name})} == {name}


def test_one_connection_serves_many_requests_even_when_they_are_sent_ahead(server: PacedServer) -> None:
    connection = connect(server)
    for n in (1, 3):
        status, raw = ask(connection, {"prompt": [1], "max_tokens": n, "stream": True})
        assert (status, len(events(raw))) == (200, n)
    request = b"GET /health HTTP/1.1\r\n\r\n"
    body = b'{"prompt":[1],"max_tokens":2}'
    request += b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    request += b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert raw_exchange(server, request).count(b"HTTP/1.1 200 OK") == 3


def raw_exchange(server: PacedServer, request: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(request)
        got = b""
        while data := sock.recv(65536):
            got += data
    return got


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"prompt":""}',
        b'{"prompt":[[1]]}',
        b'{"prompt":["a"]}',
        b'{"prompt":[1],"max_tokens":0}',
        b"\xff",
    ],
)
def test_a_bad_body_is_refused_and_the_connection_lives_on(server: PacedServer, body: bytes) -> None:
    connection = connect(server)
    status, raw = ask(connection, body)
    assert status == 400
    assert json.loads(raw)["error"]["message"]
    assert ask(connection, {"prompt": [1], "max_tokens": 1})[0] == 200


def test_what_is_not_there_and_what_it_cannot_read(server: PacedServer) -> None:
    assert get(server, "/v2/models")[0] == 404
    assert get(server, "/v1/completions")[0] == 404
    assert raw_exchange(server, b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").startswith(
        b"HTTP/1.1 411 "
    )


def test_models_health_and_metrics(server: PacedServer) -> None:
    assert get(server, "/health") == (200, "")
    assert json.loads(get(server, "/v1/models")[1])["data"][0]["id"] == "paced"
    before = metrics(server)
    stream(server, {"prompt": [1, 2], "max_tokens": 5})
    after = metrics(server)
    assert after["dsv4bench:generation_tokens_total"] - before["dsv4bench:generation_tokens_total"] == 5
    assert after["dsv4bench:prompt_tokens_total"] - before["dsv4bench:prompt_tokens_total"] == 2
    assert after["dsv4bench:num_requests_running"] == 0
    assert after["process_start_time_seconds"] == before["process_start_time_seconds"] > 1e9


def metrics(server: PacedServer) -> dict[str, float]:
    lines = get(server, "/metrics")[1].splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_it_tells_its_own_lateness() -> None:
    with PacedServer(ttft_s=0.0, itl_s=0.0005) as server:
        chunks = stream(server, {"prompt": [1], "max_tokens": 40})
        stats = server.stats(reset=True)
        late_us = sorted((c["ts"] - c["due"]) / 1e3 for c in chunks)
        assert (stats.events, stats.requests, stats.in_flight) == (40, 1, 0)
        assert (stats.late_p50_us, stats.late_p99_us, stats.late_max_us) == (late_us[19], late_us[39], late_us[39])
        again = server.stats()
        assert (again.events, again.requests, again.late_p50_us) == (0, 0, None)


def test_chunks_of_many_tokens_keep_the_time_per_token() -> None:
    with PacedServer(ttft_s=0.0, itl_s=ITL_NS / 1e9, tokens_per_chunk=4) as server:
        chunks = stream(server, {"prompt": [1], "max_tokens": 10, "stream_options": {"continuous_usage_stats": True}})
        assert [c["choices"][0]["text"].count("tick") for c in chunks] == [4, 4, 2]
        assert [c["usage"]["completion_tokens"] for c in chunks] == [4, 8, 10]
        assert steps_ns(chunks) == {4 * ITL_NS}
        assert metrics(server)["dsv4bench:generation_tokens_total"] == 10


def test_aligned_streams_emit_at_the_same_instants() -> None:
    with PacedServer(ttft_s=0.003, itl_s=0.002, align=True) as server:
        for _ in range(2):
            chunks = stream(server, {"prompt": [1], "max_tokens": 4})
            assert {c["due"] % 2_000_000 for c in chunks} == {0}
            assert steps_ns(chunks) == {2_000_000}


def test_a_slow_reader_loses_nothing() -> None:
    n = 60_000  # some 10 MB: more than the sockets' buffers hold
    with PacedServer(ttft_s=0.0, itl_s=0.0) as server:
        connection = connect(server)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": n, "stream": True}))
        reply = connection.getresponse()
        wait_until(lambda: server.stats().blocked_sends > 0)
        assert len(events(reply.read())) == n


def test_a_client_that_leaves_is_forgotten() -> None:
    with PacedServer(ttft_s=0.0, itl_s=0.001) as server:
        connection = connect(server)
        connection.request(
            "POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 10**6, "stream": True})
        )
        connection.getresponse().read(10)
        assert server.stats().in_flight == 1
        connection.close()
        wait_until(lambda: server.stats().in_flight == 0)
        generated = metrics(server)["dsv4bench:generation_tokens_total"]
        stream(server, {"prompt": [1], "max_tokens": 20})
        assert metrics(server)["dsv4bench:generation_tokens_total"] == generated + 20


def wait_until(true: Any) -> None:
    for _ in range(2000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def test_it_ends_when_its_parent_lets_go() -> None:
    command = [sys.executable, "-m", "dsv4bench.load.paced", "--until-stdin-ends"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(BenchError, match="tokens-per-chunk"):
        PacedServer(ttft_s=0.0, itl_s=0.0, tokens_per_chunk=0).start()


def test_it_needs_the_standard_library_only() -> None:
    code = "import sys, dsv4bench.load.paced; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert "dsv4bench" in said
    assert set(said.split()) <= {*sys.stdlib_module_names, "__main__", "dsv4bench"}


@pytest.mark.parametrize(
    ("body", "n"),
    [
        ('{"prompt":[1]}', 1),
        ('{"prompt": [1, 2,\n 3] , "max_tokens": 4}', 3),
        ('{"a":[7,8],"prompt"\t:\t[ 1,2 ]}', 2),
        ('{"prompt":"one two three"}', 3),
        ('{"prompt":"say \\"prompt\\":[1,2] now"}', 3),
        ('{"user":"prompt","prompt":[1,2]}', 2),
        ('{"user":"prompt","prompt":"a b","logit":[1,2,3]}', 2),
    ],
)
def test_the_length_of_a_prompt(body: str, n: int) -> None:
    assert parse_ask("/v1/completions", body.encode()).prompt_tokens == n
