"""https through memory BIOs: the same records, the same stamps, and a certificate that is checked."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from driving import level
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, post, self_signed
from sse_streams import NORMAL, TOKENS

from dsv4bench.errors import MeasuredBad
from dsv4bench.load.pool import run_level
from dsv4bench.records.request import ErrorKind

STREAM = HEAD + chunk(b"".join(data for _, data in NORMAL)) + LAST_CHUNK
SLOW: list[Step] = [HEAD, *(step for _, data in NORMAL for step in (0.01, chunk(data))), LAST_CHUNK]


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Any:
    context = self_signed(tmp_path_factory.mktemp("tls"))
    if context is None:
        pytest.skip("openssl is not installed")
    return context


def test_https_without_verification(https: Any) -> None:
    with HostileServer(lambda _: SLOW, tls=https) as server:
        outcome = run_level(level(server.port, 9, 3, tls=True, verify=False))
    assert [(r.ok, r.output_tokens, len(r.chunk_ns)) for r in outcome.records] == [(True, 8, 8)] * 9
    assert server.connections == 3
    if sys.platform.startswith("linux"):
        assert outcome.timestamps == "kernel"
        assert len(outcome.lag_ns) == outcome.reads
    assert all(r.icl_s and min(r.icl_s) >= 0 for r in outcome.records)


def test_https_large_bodies_both_ways(https: Any) -> None:
    big = b": " + b"x" * (1 << 20) + b"\n\n"
    with HostileServer(lambda _: [HEAD + chunk(big) + STREAM[len(HEAD) :]], tls=https) as server:
        outcome = run_level(level(server.port, slots=2, requests=post(3, size=3 << 20), tls=True, verify=False))
    assert [r.output_tokens for r in outcome.records] == [8] * 3
    assert {len(s.body) for s in server.seen} == {3 << 20}


@pytest.mark.parametrize("end", [End.RESET, End.CLOSE])
def test_https_that_is_cut_or_stale(https: Any, end: End) -> None:
    def reply(seen: Seen) -> list[Step]:
        if int(seen.body) == 1:
            return [HEAD + chunk(TOKENS[0][1]), 0.05, end]
        return [end] if int(seen.body) == 3 and seen.nth > 1 else [STREAM]

    with HostileServer(reply, tls=https) as server:
        outcome = run_level(level(server.port, 5, tls=True, verify=False))
    assert [r.error for r in outcome.records] == [None, ErrorKind.TRUNCATED, None, None, None]
    assert [r.retried for r in outcome.records] == [False, False, False, True, False]


def test_https_with_verification_refuses_an_unknown_certificate(https: Any) -> None:
    with HostileServer(lambda _: [STREAM], tls=https) as server:
        with pytest.raises(MeasuredBad, match=r"certificate verify failed: self[- ]signed certificate") as caught:
            run_level(level(server.port, 4, 2, tls=True))
        assert server.seen == []
    assert "--insecure" in caught.value.hint


def test_https_asked_of_a_server_that_speaks_http() -> None:
    with HostileServer(lambda _: [STREAM]) as server, pytest.raises(MeasuredBad, match=r"(?i)wrong.version"):
        run_level(level(server.port, 4, 2, tls=True, verify=False))
