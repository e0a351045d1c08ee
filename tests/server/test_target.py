"""URLs as people paste them, keys that never show, and the search for a server on this host."""

from __future__ import annotations

import pickle

import pytest
from fake_server import serve

from dsv4bench.errors import UsageError
from dsv4bench.server.launch import free_port
from dsv4bench.server.target import find_target, parse_url


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSV4BENCH_API_KEY", raising=False)


@pytest.mark.parametrize(
    ("text", "base_url", "host", "port", "prefix"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
        ("http://127.0.0.1:8000/v1//", "http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
        ("localhost:8000", "http://localhost:8000", "localhost", 8000, ""),
        ("localhost", "http://localhost", "localhost", 80, ""),
        ("  gpu-7.lab:30000/v1 ", "http://gpu-7.lab:30000", "gpu-7.lab", 30000, ""),
        ("https://api.example.org/v1", "https://api.example.org", "api.example.org", 443, ""),
        ("http://h:1/some/prefix", "http://h:1/some/prefix", "h", 1, "/some/prefix"),
        ("http://h:1/some/prefix/v1/", "http://h:1/some/prefix", "h", 1, "/some/prefix"),
        ("http://h:1/some/v1beta", "http://h:1/some/v1beta", "h", 1, "/some/v1beta"),
        ("http://h:1/v1/chat/completions", "http://h:1", "h", 1, ""),
        ("http://h:1/p/v1/completions", "http://h:1/p", "h", 1, "/p"),
        ("http://[::1]:8000/v1", "http://[::1]:8000", "::1", 8000, ""),
        ("[::1]:8000", "http://[::1]:8000", "::1", 8000, ""),
        ("HTTP://Host:8000", "http://host:8000", "host", 8000, ""),
    ],
)
def test_urls(text: str, base_url: str, host: str, port: int, prefix: str) -> None:
    target = parse_url(text)
    assert (target.base_url, target.host, target.port, target.prefix) == (base_url, host, port, prefix)
    assert target.url("/health") == base_url + "/health"
    assert parse_url(target.base_url) == target


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "http://", "http:///v1", "ftp://h:1", "http://h:port", "http://h:99999", "http://h:0"),
        *("http://h h:1", "http://h:1/a b", "http://::1:8000", "http://h:1?x=1", "http://h:1/#x", "http://[::1"),
        *("http://a\tb:1", "ws://h", "http://h:-1", "http://<host>:8000"),
    ],
)
def test_bad_urls_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url(text)
    assert "\n" not in refused.value.message
    assert refused.value.hint


def test_a_key_in_the_environment_becomes_a_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", " hush ")
    assert parse_url("h:1").headers == {"Authorization": "Bearer hush"}
    assert parse_url("h:1", ["authorization: Token other"]).headers == {"authorization": "Token other"}
    assert parse_url("h:1", ["X-Team: a:b"]).headers == {"Authorization": "Bearer hush", "X-Team": "a:b"}


def test_nothing_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", "hush-env")
    target = parse_url("http://user:hush-url@h:1", ["X-Key: hush-header"])
    for text in (repr(target), str(target), f"{target}", target.base_url):
        assert "hush" not in text
    assert target.has_key
    assert pickle.loads(pickle.dumps(target)) == target
    with pytest.raises(UsageError) as refused:
        parse_url("http://user:hush-url@h:1?q=1")
    assert "hush" not in refused.value.message + refused.value.hint


def test_credentials_in_the_url_become_a_basic_header() -> None:
    target = parse_url("http://user:p%40ss@h:1")
    assert target.base_url == "http://h:1"
    assert target.headers == {"Authorization": "Basic dXNlcjpwQHNz"}


@pytest.mark.parametrize(
    "header", ["no-colon-hush", ": hush", "bad name: hush", "X-A: hush\r\nX-B: 1", "X-A: hush\u00e9"]
)
def test_bad_headers_are_refused(header: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url("h:1", [header])
    assert "hush\u00e9" not in refused.value.message
    assert "\r" not in refused.value.message


def test_a_broken_key_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", "hush\nmore")
    with pytest.raises(UsageError) as refused:
        parse_url("h:1")
    assert "hush" not in refused.value.message
    assert "DSV4BENCH_API_KEY" in refused.value.message


def test_insecure_turns_verification_off() -> None:
    assert parse_url("https://h").verify
    assert not parse_url("https://h", insecure=True).verify


def test_an_option_wins_over_the_environment() -> None:
    env = {"DSV4BENCH_URL": "http://from-env:1"}
    assert find_target("http://option:2/v1", env=env, ports=[]).base_url == "http://option:2"
    assert find_target(None, env=env, ports=[]).base_url == "http://from-env:1"


def test_the_usual_ports_are_tried_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", "hush")
    with serve({"/": (200, "<html>a web site</html>")}) as site, serve({"/v1/models": (200, {"data": []})}) as llm:
        target = find_target(None, env={}, ports=[free_port(), site.port, llm.port])
    assert target.port == llm.port
    assert target.headers == {"Authorization": "Bearer hush"}
    assert all("authorization" not in headers for _, _, headers in llm.seen + site.seen)


def test_a_server_that_wants_a_key_or_cannot_list_is_found() -> None:
    with serve({"/v1/models": (401, {"error": "Unauthorized"})}) as locked:
        assert find_target(None, env={}, ports=[locked.port]).port == locked.port
    with serve({"/v1/models": (500, "oops"), "/health": (200, {"status": "ok"})}) as transformers:
        assert find_target(None, env={}, ports=[transformers.port]).port == transformers.port


def test_nothing_found_says_what_was_tried() -> None:
    port = free_port()
    with serve({"/v1/models": (200, "<html>")}) as site, pytest.raises(UsageError) as refused:
        find_target(None, env={}, ports=[port, site.port])
    assert str(port) in refused.value.message and str(site.port) in refused.value.message
    assert "--demo" in refused.value.hint


def test_which_host() -> None:
    assert parse_url("127.0.0.1:1").on_this_host
    assert parse_url("[::1]:1").on_this_host
    assert not parse_url("192.0.2.7:1").on_this_host  # TEST-NET-1: nobody's
    assert not parse_url("no-such-host.invalid:1").on_this_host
