"""Every dialect of a server is recognised, and every way not to answer is told in words."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from fake_server import serve

from dsv4bench.errors import UsageError
from dsv4bench.records.codec import encode
from dsv4bench.records.server import Engine, ServerInfo, Worker
from dsv4bench.server.detect import detect
from dsv4bench.server.launch import free_port
from dsv4bench.server.target import parse_url

VLLM_LIST = {
    "object": "list",
    "data": [{"id": "tiny", "owned_by": "vllm", "root": "/nope/tiny", "max_model_len": 2048}],
}
VLLM_METRICS = (
    200,
    "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\nvllm:num_requests_running 0.0\n",
)


@pytest.fixture(autouse=True)
def no_key_and_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DSV4BENCH_API_KEY", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def ask(routes: dict[str, Any], model: str | None = None, software: str = "fake", prefix: str = "") -> ServerInfo:
    with serve({prefix + k: v for k, v in routes.items()}, software) as fake:
        return detect(parse_url(fake.url + prefix + "/v1"), model, timeout_s=2)


def refusal(routes: dict[str, Any], model: str | None = None) -> UsageError:
    with pytest.raises(UsageError) as refused:
        ask(routes, model)
    assert "\n" not in refused.value.message
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("prefix", ["", "/some/prefix"])
def test_vllm(prefix: str) -> None:
    routes = {"/v1/models": (200, VLLM_LIST), "/version": (200, {"version": "0.32.0"}), "/metrics": VLLM_METRICS}
    info = ask(routes, prefix=prefix)
    assert (info.engine, info.version, info.model, info.max_model_len) == (Engine.VLLM, "0.32.0", "tiny", 2048)
    assert info.url.endswith(prefix)
    assert info.process_start_time_s == 1.7e9
    assert info.metrics_path == "/metrics"
    assert info.tokenizer == "/nope/tiny"
    assert "VLLM_SERVER_DEV_MODE" in info.missing["args"]
    assert "vocab_size" in info.missing
    assert encode(info)


def test_vllm_in_development_mode_tells_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 129280}}))
    config = {
        "model_config": {"model": str(tmp_path), "tokenizer": "tok", "max_model_len": 4096, "hf_token": "hush"},
        "speculative_config": None,
        "instance_id": "17",
    }
    routes = {
        "/v1/models": (200, VLLM_LIST),
        "/version": (200, {"version": "0.32.0"}),
        "/server_info": (200, {"vllm_config": "model='x'", "vllm_env": {}}),
        "/server_info?config_format=json": (
            200,
            {"vllm_config": config, "vllm_env": {"VLLM_API_KEY": "hush", "VLLM_X": "1"}},
        ),
    }
    info = ask(routes)
    assert info.args is not None
    assert "hush" not in str(info)
    assert info.args["env"]["VLLM_X"] == "1"
    assert "instance_id" not in info.args
    assert info.tokenizer == "tok"
    assert info.max_model_len == 4096
    assert (info.vocab_size, info.vocab_source) == (129280, "config")
    assert str(tmp_path) in info.notes[0]
    assert "--enable-metrics" not in info.missing["metrics_path"]


def test_sglang() -> None:
    document = {
        "model_path": "org/model",
        "tokenizer_path": "org/tok",
        "served_model_name": "served",
        "context_length": 8192,
        "tp_size": 8,
        "api_key": "hush",
        "admin_api_key": "hush",
        "disaggregation_mode": "decode",
        "version": "0.5.23",
        "internal_states": [{"last_gen_throughput": 3.1}],
    }
    listed = {"data": [{"id": "served", "owned_by": "sglang", "root": "served", "max_model_len": 8192}]}
    info = ask({"/v1/models": (200, listed), "/server_info": (200, document)})
    assert (info.engine, info.version, info.model) == (Engine.SGLANG, "0.5.23", "served")
    assert (info.max_model_len, info.tokenizer) == (8192, "org/tok")
    assert info.args is not None
    assert info.args["tp_size"] == 8
    assert info.args["api_key"] == "***"
    assert "internal_states" not in info.args
    assert "--enable-metrics" in info.missing["metrics_path"]
    assert any("decode worker" in n for n in info.notes)


def test_older_sglang_and_a_broken_model_list() -> None:
    document = {"model_path": "org/model", "version": "0.4.1", "tp_size": 1, "internal_states": []}
    info = ask({"/v1/models": (500, "oops"), "/get_server_info": (200, document)})
    assert (info.engine, info.version, info.model) == (Engine.SGLANG, "0.4.1", "org/model")
    assert "500" in info.missing["models"]


def test_sglang_whose_document_is_guarded() -> None:
    listed = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 10}]}
    routes = {
        "/v1/models": (200, listed),
        "/server_info": (403, {}),
        "/model_info": (200, {"model_path": "p", "tokenizer_path": "t"}),
    }
    info = ask(routes)
    assert info.engine is Engine.SGLANG
    assert "403" in info.missing["version"]
    assert "403" in info.missing["args"]
    assert info.tokenizer == "t"


def test_routers_are_noted() -> None:
    listed = {"data": [{"id": "m", "owned_by": "sglang"}]}
    info = ask({"/v1/models": (200, listed), "/workers": (200, {"workers": [{}, {}]})})
    assert any("router over 2 workers" in n for n in info.notes)
    assert info.front_end == "a router over 2 workers" and info.workers == [Worker(), Worker()]
    named = {"workers": [{"url": "http://w:1", "worker_type": "decode"}, "http://w:2"]}
    info = ask({"/v1/models": (200, listed), "/workers": (200, named)})
    assert info.workers == [Worker(url="http://w:1", role="decode"), Worker(url="http://w:2")]
    pair = {
        "prefill": [{"model_path": "p", "version": "0.5", "host": "0.0.0.0", "port": 1}],
        "decode": [{"model_path": "p", "version": "0.5", "host": "10.0.0.9", "port": 2}],
        "internal_states": [],
    }
    info = ask({"/v1/models": (200, listed), "/server_info": (200, pair)})
    assert any("front end of 2 workers" in n for n in info.notes)
    assert info.version == "0.5"
    assert info.workers == [Worker(role="prefill"), Worker(url="http://10.0.0.9:2", role="decode")]
    health = {"status": "healthy", "instances": [{}, {}, {}]}
    info = ask({"/v1/models": (200, {"data": [{"id": "m", "owned_by": "nvidia"}]}), "/health": (200, health)})
    assert info.engine is Engine.GENERIC
    assert any("dynamo front end over 3" in n for n in info.notes)


def test_llamacpp() -> None:
    meta = {"n_vocab": 1024, "n_ctx": 1024}
    listed = {"models": [], "data": [{"id": "tiny", "aliases": ["small"], "owned_by": "llamacpp", "meta": meta}]}
    props = {
        "default_generation_settings": {"n_ctx": 1024, "params": {"top_k": 40}},
        "total_slots": 4,
        "model_alias": "tiny",
        "model_path": "/m/tiny.gguf",
        "build_info": "b11434-abc",
        "media_marker": "<__media_random__>",
    }
    routes = {"/v1/models": (200, listed), "/props": (200, props), "/metrics": (501, {"error": {}})}
    info = ask(routes, software="llama.cpp")
    assert (info.engine, info.version, info.model) == (Engine.LLAMACPP, "b11434-abc", "tiny")
    assert (info.max_model_len, info.vocab_size, info.vocab_source) == (1024, 1024, "server")
    assert info.args is not None and info.args["total_slots"] == 4
    assert "random" not in str(info.args)
    assert "--metrics" in info.missing["metrics_path"]
    assert ask(routes, model="small", software="llama.cpp").model == "small"


def test_our_own_server() -> None:
    document = {
        "engine": "dsv4bench",
        "version": "0.1.0",
        "preset": "tiny",
        "kernels": "fallback",
        "vocab_size": 512,
        "args": {"layers": 4},
    }
    metrics = (200, "process_start_time_seconds 5\ndsv4bench:num_requests_running 0\n")
    info = ask(
        {
            "/v1/models": (200, {"data": [{"id": "t", "owned_by": "dsv4bench"}]}),
            "/server_info": (200, document),
            "/metrics": metrics,
        }
    )
    assert (info.engine, info.version, info.vocab_size) == (Engine.DSV4BENCH, "0.1.0", 512)
    assert info.args == {"layers": 4, "preset": "tiny", "kernels": "fallback"}
    assert info.process_start_time_s == 5


def test_transformers_serve() -> None:
    page = {"paths": {"/load_model": {}, "/v1/chat/completions": {}}}
    routes = {
        "/v1/models": (500, "Internal Server Error"),
        "/health": (200, {"status": "ok"}),
        "/openapi.json": (200, page),
    }
    info = ask(routes, model="./m")
    assert (info.engine, info.model, info.version) == (Engine.TRANSFORMERS, "./m", None)
    assert "--model" in refusal(routes).hint
    routes["/v1/models"] = (200, {"data": [{"id": "a/x", "owned_by": "a"}, {"id": "b/y", "owned_by": "b"}]})
    assert "a/x, b/y" in refusal(routes).message
    assert ask(routes, model="./local").model == "./local"


def test_a_version_page_of_another_engine_is_not_vllm() -> None:
    listed = {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}
    info = ask({"/v1/models": (200, listed), "/version": (200, {"version": "1.2"})})
    assert (info.engine, info.version) == (Engine.GENERIC, "1.2")


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"detail": "Not Found"}),
        (500, "oops"),
        (200, "<html>welcome</html>"),
        (200, {"data": [{"name": "no id"}, {"id": 7}, "x", None]}),
        (200, {"data": None}),
        (200, []),
        (200, "null"),
        (200, b"\xff\xfe\x00"),
        (200, ""),
        (200, "[" * 100_000),
    ],
)
def test_a_list_that_names_no_model_needs_the_option(answer: Any) -> None:
    assert "--model" in refusal({"/v1/models": answer}).hint
    info = ask({"/v1/models": answer}, model="mine")
    assert (info.engine, info.model, info.models) == (Engine.GENERIC, "mine", [])
    assert "/v1/models" in info.missing["models"]


def test_a_huge_list_is_read_or_given_up() -> None:
    rows = [{"id": f"m{i}", "pad": "x" * 1000} for i in range(10_000)]
    info = ask({"/v1/models": (200, {"data": rows})})
    assert info.model == "m0"
    assert len(info.models) == 10_000
    assert "m4 and 9995 more" in info.notes[0]
    info = ask({"/v1/models": (200, b" " * (17 << 20))}, model="mine")
    assert "16 MiB" in info.missing["models"]


def test_a_wrong_name_is_refused_with_the_served_ones() -> None:
    error = refusal({"/v1/models": (200, VLLM_LIST)}, model="nope")
    assert "'nope'" in error.message and "tiny" in error.message


def test_the_first_of_several_is_taken_and_noted() -> None:
    routes = {"/v1/models": (200, {"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "vllm"}]})}
    info = ask(routes)
    assert info.model == "a"
    assert any("2 models (a, b)" in n for n in info.notes)
    assert ask(routes, model="b").notes == []


def test_a_hub_id_is_looked_up_in_the_local_cache(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--org--model"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc\n")
    (folder / "snapshots" / "abc" / "config.json").write_text('{"vocab_size": 4242}')
    info = ask({"/v1/models": (200, {"data": [{"id": "served", "owned_by": "vllm", "root": "org/model"}]})})
    assert (info.vocab_size, info.vocab_source) == (4242, "config")


def test_metrics_behind_a_redirect_and_a_login_page_instead() -> None:
    routes: dict[str, Any] = {
        "/v1/models": (200, VLLM_LIST),
        "/metrics": (307, "", {"Location": "/metrics/"}),
        "/metrics/": VLLM_METRICS,
    }
    assert ask(routes).process_start_time_s == 1.7e9
    routes["/metrics"] = (302, "", {"Location": "http://192.0.2.7/login"})  # must not be asked: our key goes along
    assert "302" in ask(routes).missing["metrics_path"]
    routes["/metrics"] = (200, "<html>login</html>")
    info = ask(routes)
    assert info.metrics_path is None
    assert "Prometheus" in info.missing["metrics_path"]


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def guard(handler: BaseHTTPRequestHandler) -> None:
        good = handler.headers.get("Authorization") == "Bearer hush"
        raw = json.dumps(VLLM_LIST if good else {"error": "Unauthorized"}).encode()
        handler.send_response(200 if good else 401)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    error = refusal({"/v1/models": guard})
    assert "no key was sent" in error.message
    assert "DSV4BENCH_API_KEY" in error.hint
    monkeypatch.setenv("DSV4BENCH_API_KEY", "wrong")
    error = refusal({"/v1/models": guard})
    assert "not accepted" in error.message
    assert "wrong" not in error.message + error.hint
    monkeypatch.setenv("DSV4BENCH_API_KEY", "hush")
    assert ask({"/v1/models": guard}).model == "tiny"
    assert "403" in refusal({"/v1/models": (403, {})}).message


def test_a_server_that_is_loading() -> None:
    error = refusal({"/v1/models": (503, {"error": {"message": "Loading model", "code": 503}})})
    assert "loading" in error.message


def _detect(url: str, timeout_s: float = 0.5) -> UsageError:
    with pytest.raises(UsageError) as refused:
        detect(parse_url(url), None, timeout_s=timeout_s)
    assert "\n" not in refused.value.message
    return refused.value


def test_nothing_listens_and_no_such_host() -> None:
    assert "connection refused" in _detect(f"http://127.0.0.1:{free_port()}").message
    error = _detect("http://no-such-host.invalid:8000", timeout_s=20)
    assert "no-such-host.invalid" in error.message and "resolved" in error.message


@pytest.fixture
def raw_server() -> Iterator[Any]:
    """A TCP server whose behaviour at each connection is a function."""
    server = socket.create_server(("127.0.0.1", 0))
    behave: list[Any] = []

    def loop() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=behave[0], args=(connection,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()

    def start(function: Any) -> str:
        behave.append(function)
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_a_server_that_never_answers(raw_server: Any) -> None:
    held: list[socket.socket] = []
    error = _detect(raw_server(held.append))
    assert "accepted the connection but did not answer GET /v1/models within 0.5 s" in error.message
    assert held


def test_a_server_that_drips_for_ever_is_cut_off(raw_server: Any) -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(4096)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            pass

    assert "did not answer" in _detect(raw_server(drip)).message


def test_a_server_that_hangs_up_or_speaks_another_protocol(raw_server: Any) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.close()

    address = raw_server(speak)
    assert "no HTTP answer" in _detect(address).message
    error = _detect(f"https://{address}")
    assert "TLS" in error.message and "http://" in error.hint


def test_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    import ssl
    import subprocess

    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "k"), "-out", str(tmp_path / "c")]
    try:
        subprocess.run(command + files, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    with serve({"/v1/models": (200, VLLM_LIST)}, tls=context) as fake:
        url = fake.url.replace("http://", "https://")
        error = _detect(url, timeout_s=5)
        assert "certificate" in error.message and "--insecure" in error.hint
        assert detect(parse_url(url, insecure=True), None).model == "tiny"
        assert "https" in _detect(fake.url).hint
