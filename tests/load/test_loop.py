"""The poll loop against real sockets: how many are in flight, when they are sent, and what comes back."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter

import pytest
from driving import drive, job_for, one, run
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, post, whole
from sse_streams import ALL, NORMAL, TOKENS, script

from dsv4bench.load import loop
from dsv4bench.load.connection import SelectorPoller
from dsv4bench.load.loop import Loop
from dsv4bench.records.request import ErrorKind

BODY = b"".join(data for _, data in NORMAL)
STREAM = HEAD + chunk(BODY) + LAST_CHUNK

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
