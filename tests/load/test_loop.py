"""The poll loop against real sockets: how many are in flight, when they are sent, and every rude way to end."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Reply, Seen, Step, chunk, post, whole
from sse_streams import ALL, DONE, NORMAL, ROLE, TAIL, TOKENS, script, text

from dsv4bench.load import loop
from dsv4bench.load.connection import SelectorPoller
from dsv4bench.load.loop import Loop
from dsv4bench.load.messages import Job
from dsv4bench.load.reading import read_record
from dsv4bench.records.request import ErrorKind, RequestRecord

BODY = b"".join(data for _, data in NORMAL)
STREAM = HEAD + chunk(BODY) + LAST_CHUNK
STALL_S = 0.4


def job_for(port: int, n: int = 1, slots: int = 1, requests: list[bytes] | None = None, **more: Any) -> Job:
    requests = post(n) if requests is None else requests
    n = len(requests)
    defaults: dict[str, Any] = {"timeout_s": 30.0}
    return Job(
        host="127.0.0.1",
        port=port,
        slots=slots,
        requests=requests,
        indices=list(range(n)),
        requested=[8] * n,
        **{**defaults, **more},
    )


def drive(job: Job, tick: Callable[[Loop], None] = lambda _: None) -> tuple[Loop, list[RequestRecord]]:
    """Run a job here, in this process: (the loop, its records in the order of requests)."""
    reader, writer = os.pipe()
    try:
        running = Loop(job, reader, lambda _: None, tick)
        running.connect()
        running.run()
    finally:
        os.close(reader)
        os.close(writer)
    records = [read_record(capture, lambda read: read.user_ns, running.start_ns) for capture in running.kept]
    assert running.in_flight == 0 and running.done == len(records)
    return running, sorted(records, key=lambda r: r.index)


def run(reply: Reply, **more: Any) -> tuple[HostileServer, Loop, list[RequestRecord]]:
    with HostileServer(reply) as server:
        running, records = drive(job_for(server.port, **more))
    return server, running, records


def one(steps: list[Step], **more: Any) -> RequestRecord:
    return run(lambda _: steps, **more)[2][0]


# closed loop


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_exactly_c_requests_are_in_flight_until_they_run_out(slots: int) -> None:
    n = 4 * slots

    def reply(seen: Seen) -> list[Step]:
        deadline = time.monotonic() + 20
        while server.in_flight < slots and len(server.seen) < n:  # no answer before C are here at once
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return [STREAM]

    with HostileServer(reply) as server:
        _, records = drive(job_for(server.port, n, slots))
    assert server.peak == slots
    assert server.connections == slots  # opened once, ahead, and used again
    assert [r.index for r in records] == list(range(n))
    assert all(r.ok and not r.retried for r in records)
    assert sorted(int(s.body) for s in server.seen) == list(range(n))


def test_connections_are_open_before_the_clock_starts() -> None:
    with HostileServer(lambda _: [STREAM]) as server:
        reader, writer = os.pipe()
        waiting = Loop(job_for(server.port, 5, 3), reader, lambda _: None, lambda _: None)
        assert waiting.connect() == 3
        assert server.seen == []
        waiting.run()
        os.close(reader)
        os.close(writer)


def test_a_duration_ends_the_sending_and_drains_what_is_in_flight() -> None:
    _, running, records = run(lambda _: [HEAD, 0.15, chunk(BODY) + LAST_CHUNK], n=1000, slots=2, duration_s=0.4)
    assert all(r.ok for r in records)
    assert max(r.t_send_ns for r in records) < 0.4e9 + 100e6
    assert max(r.t_end_ns for r in records) > 0.4e9  # somebody was still reading, and was let finish
    assert running.next == len(records) < 1000


def test_the_other_poller_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "make_poller", SelectorPoller)
    server, _, records = run(lambda _: [HEAD, 0.01, chunk(BODY), LAST_CHUNK], n=12, slots=4)
    assert [r.output_tokens for r in records] == [8] * 12
    assert server.peak == 4


def test_a_request_larger_than_the_socket_s_buffers() -> None:
    size = 12 << 20
    with HostileServer(lambda _: [STREAM]) as server:
        _, records = drive(job_for(server.port, slots=2, requests=post(3, size=size)))
    assert [r.output_tokens for r in records] == [8] * 3
    assert {len(s.body) for s in server.seen} == {size}


# open loop


def test_requests_leave_on_their_schedule_whatever_the_server_does() -> None:
    schedule = [i * 10_000_000 for i in range(40)]
    server, _, records = run(lambda _: [0.3, STREAM], n=40, slots=4, schedule_ns=schedule)
    assert [r.t_sched_ns for r in records] == schedule
    assert all(r.t_send_ns >= s for r, s in zip(records, schedule, strict=True))
    assert all(r.ok and r.ttft_s is not None and r.ttft_s >= 0.3 for r in records)
    assert server.peak > 20  # far beyond the four connections opened ahead: nobody waited for a place
    order = [int(s.body) for s in sorted(server.seen, key=lambda s: s.t_ns)]
    assert order[:4] == [0, 1, 2, 3] and sorted(order) == list(range(40))


def test_a_late_client_catches_up_with_the_schedule_and_says_how_late_it_was() -> None:
    schedule = [i * 20_000_000 for i in range(30)]
    stumbled: list[int] = []

    def stumble(_: Loop) -> None:
        if not stumbled:
            stumbled.append(1)
            time.sleep(0.2)

    with HostileServer(lambda _: [STREAM]) as server:
        _, records = drive(job_for(server.port, 30, 4, schedule_ns=schedule), stumble)
    late = [r.t_send_ns - s for r, s in zip(records, schedule, strict=True)]
    assert max(late) > 150e6  # those whose time came while the client slept
    assert late[-1] < max(late) / 2  # absolute times: nothing adds up
    worst = records[late.index(max(late))]
    assert worst.ttft_s is not None and worst.ttft_s > 0.15  # latency counts from the schedule
    assert worst.t_first_ns is not None and worst.t_first_ns - worst.t_send_ns < worst.ttft_s * 1e9


def test_a_duration_cuts_a_schedule_too() -> None:
    schedule = [i * 50_000_000 for i in range(40)]
    _, running, records = run(lambda _: [STREAM], n=40, slots=4, schedule_ns=schedule, duration_s=0.3)
    assert 4 <= len(records) <= 8
    assert running.next == len(records)


# [DONE], and a socket that stays open

SAID = HEAD + chunk(b"".join(d for _, d in NORMAL[:-1]))


@pytest.mark.parametrize(
    "steps",
    [
        [SAID, chunk(DONE), End.HANG],
        [SAID + chunk(DONE), End.HANG],
        [SAID, chunk(b"data: [DONE]"), End.HANG],  # no line end
        [SAID, chunk(b"data: [DO"), 0.02, chunk(b"NE]\n\n"), End.HANG],
        [SAID, chunk(DONE)[:9], 0.02, chunk(DONE)[9:], End.HANG],
        [SAID, *(step for i in range(len(DONE)) for step in (chunk(DONE[i : i + 1]), 0.005)), End.HANG],
        [SAID + chunk(DONE + b": " + b"x" * 300 + b"\n\n"), End.HANG],  # it is not the last thing said
        [SAID, chunk(DONE), *([0.02, chunk(b": ping\n\n")] * 1500)],  # it goes on with comments
        [b"HTTP/1.1 200 OK\r\n\r\n" + BODY, End.HANG],
        [HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + chunk(BODY.replace(b"\n", b"\r\n")), End.HANG],
    ],
)
def test_a_socket_left_open_after_done_costs_a_moment_not_the_timeout(steps: list[Step]) -> None:
    start = time.monotonic()
    server, _, records = run(lambda _: steps, n=2)
    assert time.monotonic() - start < 10  # the timeout is 30 s
    assert [(r.ok, r.saw_done, r.output_tokens) for r in records] == [(True, True, 8)] * 2
    assert server.connections == 2  # such a connection is not used again


@pytest.mark.parametrize("words", ["[DONE]", "data: [DONE]\n\n", "DONE"])
def test_text_that_says_done_does_not_end_a_slow_stream(words: str) -> None:
    slow = 0.3  # longer than the time a stream gets after [DONE]
    steps: list[Step] = [HEAD + chunk(text("a")), slow, chunk(text(words)), slow, chunk(text("b")), slow]
    r = one([*steps, chunk(text("c", "length") + DONE) + LAST_CHUNK])
    assert (r.ok, len(r.chunk_ns)) == (True, 4)


# silence


@pytest.mark.parametrize(
    ("steps", "chunks"),
    [
        ([End.HANG], 0),
        ([HEAD, End.HANG], 0),
        ([HEAD + chunk(ROLE[1]), End.HANG], 0),
        ([HEAD + chunk(ROLE[1] + TOKENS[0][1]), End.HANG], 1),
        ([HEAD + chunk(TOKENS[0][1]), *([0.05, chunk(b": ping\n\n")] * 600)], 1),  # a live front end, a dead engine
        ([b"HTTP/1.1 200 OK\r\n\r\n" + TOKENS[0][1], *([0.05, b":\r\n\r\n"] * 600)], 1),
    ],
)
def test_a_silent_stream_is_a_stall_and_keeps_what_it_brought(steps: list[Step], chunks: int) -> None:
    start = time.monotonic()
    r = one(steps, timeout_s=STALL_S)
    assert time.monotonic() - start < 10  # the pings go on for 30 s
    assert (r.error, len(r.chunk_ns)) == (ErrorKind.STALLED, chunks)
    assert f"{STALL_S:g} s" in (r.error_text or "")
    assert r.t_end_ns >= STALL_S * 1e9


def test_a_long_stream_that_goes_on_is_no_stall() -> None:
    pauses = [step for _, data in NORMAL[1:] for step in (0.1, chunk(data))]
    r = one([HEAD, chunk(ROLE[1]), *pauses, LAST_CHUNK], timeout_s=STALL_S)
    assert (r.ok, r.output_tokens) == (True, 8)
    assert r.t_end_ns > 2 * STALL_S * 1e9


def test_a_stalled_request_gives_its_place_to_the_next() -> None:
    _, _, records = run(lambda seen: [End.HANG] if seen.number == 1 else [STREAM], n=3, timeout_s=STALL_S)
    assert [r.error for r in records] == [ErrorKind.STALLED, None, None]


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


# other answers


def test_answers_are_counted_by_their_status_with_the_server_s_words() -> None:
    answers = [
        whole(b'{"error":{"message":"slow down"}}', "429 Too Many Requests", extra="Retry-After: 2\r\n"),
        whole(b'{"detail":"warming up"}', "503 Service Unavailable"),
        whole(b"oops", "500 Internal Server Error", extra="Connection: close\r\n"),
        whole(b'{"error":{"message":"out of memory"}}'),
        whole(b"<html>login</html>", kind="text/html"),
        STREAM,
    ]
    server, running, records = run(lambda seen: [answers[int(seen.body) % 6]], n=24, slots=3)
    names = ["http_429", "http_503", "http_500", "in_stream", "bad_response", None]
    assert [r.error for r in records] == names * 4
    said = ["slow down", "warming up", "oops", "out of memory", "<html>login", ""]
    assert all(words in (r.error_text or "") for r, words in zip(records, said * 4, strict=True))
    assert len(server.seen) == 24  # nothing was retried in silence
    assert running.failed == 12  # what the loop can know: the statuses


@pytest.mark.parametrize(
    "steps",
    [
        [whole(BODY)],
        [whole(BODY)[:150], 0.02, whole(BODY)[150:]],
        [b"HTTP/1.1 200 OK\r\n\r\n", 0.02, BODY, End.CLOSE],
        [b"HTTP/1.0 200 OK\r\n\r\n" + BODY, End.CLOSE],
        [b"HTTP/1.1 100 Continue\r\n\r\n", 0.02, STREAM],
        [b"HTTP/1.1 102 Processing\r\n\r\n", 0.02, b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.02, STREAM],
        [STREAM[i : i + 1] for i in range(len(STREAM))],
    ],
)
def test_other_framings(steps: list[Step]) -> None:
    _, _, records = run(lambda _: steps, n=2)
    assert [(r.ok, r.output_tokens, r.status) for r in records] == [(True, 8, 200)] * 2


@pytest.mark.parametrize(
    ("raw", "error"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", ErrorKind.BAD_RESPONSE), (HEAD + b"nonsense\r\n", ErrorKind.BAD_RESPONSE)],
)
def test_nonsense_is_known_at_once(raw: bytes, error: ErrorKind) -> None:
    start = time.monotonic()
    assert one([raw, End.HANG]).error == error
    assert time.monotonic() - start < 10


def test_a_server_that_talks_out_of_turn_loses_its_connection() -> None:
    server, _, records = run(lambda _: [STREAM + STREAM], n=3)
    assert [r.ok for r in records] == [True] * 3
    assert server.connections == 3


@pytest.mark.parametrize("name", ["normal", "error_mid", "truncated", "coalesced", "transformers"])
def test_a_behaviour_over_a_socket(name: str) -> None:
    right = ALL[name].right
    r = one(script(ALL[name], pace=0.2))
    assert (r.error, r.output_tokens, len(r.icl_s)) == (right.error, right.tokens, len(right.gaps_ms))


# stopping


def test_cancelling_keeps_what_was_measured_and_sends_nothing_more() -> None:
    def reply(seen: Seen) -> list[Step]:
        return [STREAM] if seen.number <= 6 else [HEAD + chunk(TOKENS[0][1]), End.HANG]

    def stop(running: Loop) -> None:
        if running.done >= 5 and len(server.seen) >= 9:
            running.cancel()

    with HostileServer(reply) as server:
        running, records = drive(job_for(server.port, 100, 3), stop)
    assert Counter(r.error for r in records) == {None: 6, ErrorKind.CANCELLED: 3}
    assert all(len(r.chunk_ns) == 1 for r in records if r.error)
    assert running.next == 9


def test_what_never_got_a_connection_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CONNECT_TIMEOUT_NS", 200_000_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection and never shakes hands
        port = silent.getsockname()[1]
        running, records = drive(job_for(port, 2, 2, tls=True, verify=False))
        assert [r.error for r in records] == [ErrorKind.REFUSED] * 2
        assert all(0 < r.t_send_ns <= r.t_end_ns for r in records)
        monkeypatch.setattr(loop, "CONNECT_TIMEOUT_NS", 10_000_000_000)
        monkeypatch.setattr(Loop, "connect", lambda _: 0)
        _, records = drive(job_for(port, 2, 2, tls=True, verify=False), Loop.cancel)
        assert [r.error for r in records] == [ErrorKind.CANCELLED] * 2
        assert all(0 < r.t_send_ns <= r.t_end_ns for r in records)
        assert "no connection within" in running.why_not_connected


def test_the_user_s_stamps_alone() -> None:
    with HostileServer(lambda _: [STREAM]) as server:
        running, _ = drive(job_for(server.port, 3, kernel_stamps=False))
    assert all(read.kernel_ns == 0 for capture in running.kept for read in capture.reads)
    assert running.turns_ns and min(running.turns_ns) > 0
