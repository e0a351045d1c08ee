"""Connections that are cut, stale, refused or gone: what is retried, what is failed, and when it is enough."""

from __future__ import annotations

import os
import socket
from collections import Counter
from typing import Any

import pytest
from driving import drive, job_for, run
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, whole
from sse_streams import NORMAL, ROLE, TAIL, TOKENS

from dsv4bench.load.loop import Loop
from dsv4bench.records.request import ErrorKind

BODY = b"".join(data for _, data in NORMAL)
STREAM = HEAD + chunk(BODY) + LAST_CHUNK

# connections that end


@pytest.mark.parametrize("end", [End.RESET, End.CLOSE])
@pytest.mark.parametrize(
    ("before", "chunks"),
    [
        (HEAD[:20], 0),
        (HEAD, 0),
        (HEAD + chunk(ROLE[1]), 0),
        (HEAD + chunk(ROLE[1] + TOKENS[0][1] + TOKENS[1][1]), 2),
        (HEAD + chunk(TOKENS[0][1])[:-30], 0),
        (whole(BODY)[:-300], 7),
    ],
)
def test_a_cut_stream_is_truncated_and_keeps_what_it_brought(before: bytes, chunks: int, end: End) -> None:
    server, _, records = run(lambda seen: [before, 0.05, end] if seen.number == 1 else [STREAM], n=2)
    assert [r.error for r in records] == [ErrorKind.TRUNCATED, None]
    assert (len(records[0].chunk_ns), records[0].retried) == (chunks, False)  # a byte was here: no second try
    assert len(server.seen) == 2


def test_a_cut_after_the_end_of_the_stream_changes_nothing() -> None:
    _, _, records = run(lambda _: [HEAD + chunk(BODY), 0.02, End.RESET], n=3)
    assert [(r.ok, r.output_tokens) for r in records] == [(True, 8)] * 3


@pytest.mark.parametrize("end", [End.RESET, End.CLOSE])
def test_a_stale_connection_is_opened_again_and_its_request_sent_once_more(end: End) -> None:
    server, running, records = run(lambda seen: [end] if seen.nth == 4 else [STREAM], n=9)
    assert all(r.ok for r in records)
    assert [r.retried for r in records] == [False, False, False, True, False, False, True, False, False]
    assert [int(s.body) for s in server.seen] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8]
    assert running.reuse


def test_the_wait_for_a_resent_request_counts_from_its_first_send() -> None:
    _, _, records = run(lambda seen: [0.2, End.CLOSE] if seen.nth == 2 else [STREAM], n=2)
    assert records[1].retried and records[1].ttft_s is not None and records[1].ttft_s >= 0.2


def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    with HostileServer(lambda _: [STREAM], close_after=0.1) as server:
        _, records = drive(job_for(server.port, 3, schedule_ns=[0, 400_000_000, 800_000_000]))
    assert [(r.ok, r.retried) for r in records] == [(True, False)] * 3
    assert (server.connections, len(server.seen)) == (3, 3)


def test_a_hundred_requests_a_connection_cost_no_failure() -> None:
    limit = 10
    server, running, records = run(
        lambda seen: [STREAM, End.CLOSE] if seen.nth == limit else [STREAM], n=100, slots=3
    )
    assert all(r.ok for r in records)
    assert running.reuse
    assert 8 <= sum(r.retried for r in records) + 1 <= server.connections <= 13


def test_a_server_that_closes_each_time_while_it_offers_keep_alive_is_not_offered_any_more() -> None:
    server, running, records = run(lambda _: [STREAM, End.CLOSE], n=20, slots=2)
    assert all(r.ok for r in records)
    assert not running.reuse
    assert sum(r.retried for r in records) <= 2
    assert server.connections == 20


def test_what_an_earlier_level_has_shown_is_kept() -> None:
    server, _, records = run(lambda _: [STREAM], n=4, reuse=False)
    assert all(r.ok for r in records)
    assert server.connections == 4


def test_connection_close_is_believed() -> None:
    closing = STREAM.replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n")
    server, running, records = run(lambda _: [closing, 0.05], n=3)
    assert (server.connections, [r.retried for r in records], running.reuse) == (3, [False] * 3, True)


def test_closed_before_the_first_byte_twice_is_a_failure() -> None:
    server, _, records = run(lambda seen: [End.CLOSE] if seen.body.strip() == b"1" else [STREAM], n=3)
    assert [r.error for r in records] == [None, ErrorKind.CLOSED, None]
    assert (records[1].retried, "twice" in (records[1].error_text or "")) == (True, True)
    assert Counter(int(s.body) for s in server.seen) == {0: 1, 1: 2, 2: 1}


# a server that is gone


def test_a_server_that_dies_is_not_hammered() -> None:
    def reply(seen: Seen) -> list[Step]:
        if seen.number == 12:
            server.die()
        return [HEAD + chunk(TOKENS[0][1]), 0.02, chunk(b"".join(d for _, d in [*TOKENS[1:], *TAIL])) + LAST_CHUNK]

    with HostileServer(reply) as server:
        running, records = drive(job_for(server.port, 500, 4))
    found = Counter(str(r.error) for r in records)
    assert found["None"] >= 8 and found["refused"] >= 4
    assert set(found) <= {"None", "refused", "truncated", "closed"}
    assert running.server_gone is not None and f"127.0.0.1:{server.port}" in running.server_gone
    assert len(records) < 30 and running.next == len(records)
    assert all(r.t_send_ns > 0 for r in records)


def test_a_proxy_that_closes_for_a_dead_server_is_not_hammered_either() -> None:
    server, running, records = run(lambda _: [End.CLOSE], n=500, slots=4)
    assert {r.error for r in records} == {ErrorKind.CLOSED}
    assert running.server_gone is not None
    assert len(server.seen) < 30


def test_an_answer_of_any_kind_shows_that_the_server_lives() -> None:
    busy = whole(b"busy", "503 Service Unavailable")
    _, running, records = run(lambda seen: [End.CLOSE] if int(seen.body) % 3 else [busy], n=12)
    assert [r.error for r in records] == ["http_503", "closed", "closed"] * 4  # a third in a row would be the limit
    assert running.server_gone is None


def test_refused_from_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    reader, writer = os.pipe()
    trying = Loop(job_for(port, 5, 3), reader, lambda _: None, lambda _: None)
    assert (trying.connect(), trying.why_not_connected) == (0, "Connection refused")
    os.close(reader)
    os.close(writer)


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(_: str, port: int, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr("dsv4bench.load.connection.socket.getaddrinfo", found)
    with HostileServer(lambda _: [STREAM]) as server:
        _, records = drive(job_for(server.port))
    assert records[0].ok
