"""From the reads of one request to its record: 29 behaviours, four dialects, and every other way to fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hostile_server import HEAD, LAST_CHUNK, chunk, whole
from sse_streams import (
    ALL,
    DONE,
    FINISH,
    HEAD_MS,
    NORMAL,
    ROLE,
    STREAMS,
    TOKENS,
    Stream,
    capture_of,
    chat,
    event,
    framed,
    record_of,
    text,
    usage,
    usage_event,
    wire,
    without_times,
)

from dsv4bench.load.reading import Read, read_record
from dsv4bench.records.request import ErrorKind, TokenSource

BODY = b"".join(data for _, data in NORMAL)


def ms(seconds: float | None) -> Any:
    return None if seconds is None else pytest.approx(seconds * 1e3)


def test_there_are_29_behaviours() -> None:
    assert len(STREAMS) == 29


@pytest.mark.parametrize("name", ALL)
def test_the_right_answer(name: str) -> None:
    stream, right = ALL[name], ALL[name].right
    r = record_of(framed(stream), cut=stream.cut)
    assert ms(r.ttft_s) == right.ttft_ms
    assert ms(r.ttft_content_s) == (right.ttft_ms if right.content_ms == -1 else right.content_ms)
    assert ms(r.ttfc_s) == right.chunk_ms
    assert [pytest.approx(gap * 1e3) for gap in r.icl_s] == right.gaps_ms
    assert (r.output_tokens, str(r.token_source), r.chunk_tokens) == (right.tokens, right.source, right.counted)
    assert ms(r.tpot_s) == (None if right.tpot_ms is None else pytest.approx(right.tpot_ms))
    last_ms = None if right.ttft_ms is None else pytest.approx(right.ttft_ms + sum(right.gaps_ms))
    assert ms(r.e2e_s) == last_ms
    assert ms(r.e2e_stream_s) == (stream.pieces[-1][0] if right.end_ms is None else right.end_ms)
    assert (r.error, r.ok) == (right.error, right.error is None)
    assert right.error_text in (r.error_text or "")
    assert (r.finish_reason, r.saw_done, r.merged_reads) == (right.finish, right.done, right.merged)
    assert (r.status, r.t_headers_ns) == (200, min(HEAD_MS, stream.pieces[0][0]) * 1e6)
    assert r.prompt_tokens == (10 if right.source == "usage" and "timings" not in name else None)


# other ways to say the same


@pytest.mark.parametrize(
    "raw",
    [
        whole(BODY),
        whole(BODY, kind="application/json"),
        b"HTTP/1.1 200 OK\r\n\r\n" + BODY,  # until close
        b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n" + whole(BODY),
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HEAD + chunk(BODY) + b"0\r\nX-Trailer: 1\r\n\r\n",
        HEAD + chunk(b"\xef\xbb\xbf" + BODY) + LAST_CHUNK,
        HEAD + chunk(b"\xef") + chunk(b"\xbb") + chunk(b"\xbf" + BODY) + LAST_CHUNK,
        HEAD + chunk(BODY.rstrip()) + LAST_CHUNK,  # [DONE] without a blank line
        HEAD + chunk(BODY.replace(b"\n", b"\r\n")) + LAST_CHUNK,
        HEAD + chunk(BODY.replace(b"\n", b"\r")) + LAST_CHUNK,
        HEAD + chunk(BODY.replace(b', "choices"', b',\ndata: "choices"')) + LAST_CHUNK,  # two data lines an event
        HEAD + chunk(b": ping\nid: 1\n\n" + BODY.replace(b"data", b"id: 2\n: x\nevent: y\ndata")) + LAST_CHUNK,
        HEAD + chunk(BODY.replace(b'"finish_reason": null', b'"finish_reason": ""')) + LAST_CHUNK,
        HEAD + chunk(BODY.replace(b'"completion_tokens": 8', b'"completion_tokens": 8.0')) + LAST_CHUNK,
        HEAD + chunk(BODY.replace(b'"content": "w1 "', b'"content": "\\ud83d"')) + LAST_CHUNK,  # half a pair
        HEAD + chunk(BODY.replace(b'"index": 0', b'"index": 0, "token_ids": "none"')) + LAST_CHUNK,
    ],
)
def test_the_same_stream_in_other_clothes(raw: bytes) -> None:
    expected = without_times(record_of([(1, wire(ALL["normal"]))]))
    assert without_times(record_of([(1, raw)])) == expected
    for i in range(1, len(raw), 7):
        assert without_times(record_of([(1, raw[:i]), (2, raw[i:])])) == expected


def test_a_carriage_return_and_its_line_feed_in_two_segments() -> None:
    crlf = [(t, data.replace(b"\n", b"\r\n")) for t, data in NORMAL]
    pieces = [piece for t, data in crlf for piece in ((t, chunk(data[:-1])), (t + 5, chunk(data[-1:])))]
    r = record_of([(HEAD_MS, HEAD), *pieces, (230, LAST_CHUNK)])
    assert (r.output_tokens, len(r.chunk_ns), r.error) == (8, 8, None)
    assert ms(r.ttft_s) == 70  # the CR alone ends the line


def test_text_that_says_done_is_text() -> None:
    pieces = [(70.0, text("[DONE]")), (90.0, text("data: [DONE]\n\n")), (110.0, text("x", "length")), (110.0, DONE)]
    r = record_of(framed(Stream(pieces, ALL["normal"].right)))
    assert (len(r.chunk_ns), r.error, r.saw_done) == (3, None, True)


def test_a_stream_ends_when_it_says_so_not_when_its_connection_does() -> None:
    r = record_of([*framed(ALL["normal"])[:-1], (900, LAST_CHUNK)])
    assert (ms(r.e2e_stream_s), r.ok) == (210, True)
    assert ms(record_of([*framed(ALL["no_done"])[:-1], (900, LAST_CHUNK)]).e2e_stream_s) == 900


def test_the_server_s_own_stamps_come_along() -> None:
    pieces = [(10, HEAD), *((t, chunk(text("x", ts=1000 + i))) for i, (t, _) in enumerate(TOKENS))]
    capture = capture_of([*pieces, (210, chunk(text("", "length"))), (210, LAST_CHUNK)])
    assert read_record(capture, lambda read: read.user_ns, 1000).sent_ns == list(range(8))


def test_cached_prompt_tokens_are_read() -> None:
    assert record_of(framed(ALL["sglang"])).cached_tokens == 4


def test_times_count_from_the_start_of_the_level() -> None:
    capture = capture_of(framed(ALL["normal"]))
    capture.t_sched, capture.t_send = 2_000_000, 5_000_000
    r = read_record(capture, lambda read: read.user_ns, 1_000_000)
    assert (r.t_sched_ns, r.t_send_ns, r.t_first_ns, r.t_end_ns) == (1_000_000, 4_000_000, 69_000_000, 209_000_000)
    assert ms(r.ttft_s) == 68  # from the schedule, where there is one


# tokens, counted by whom


def test_usage_of_zero_with_text_is_no_count() -> None:
    r = record_of(framed(Stream([ROLE, *TOKENS, FINISH, (210, usage_event(0)), (210, DONE)], ALL["normal"].right)))
    assert (r.output_tokens, r.token_source, r.error) == (8, TokenSource.CHUNKS, None)


def test_a_first_usage_of_zero_is_no_running_count() -> None:
    role = (50.0, chat({"role": "assistant", "content": ""}, usage=usage(0)))
    last = (230.0, chat({}, "length", usage=usage(8)))
    r = record_of(framed(Stream([role, *TOKENS, last, (230, DONE)], ALL["normal"].right)))
    assert (r.output_tokens, r.chunk_tokens, len(r.chunk_ns), ms(r.tpot_s)) == (8, None, 8, 20)


@pytest.mark.parametrize("count", [-1, 1 << 53, 10**400, "many", [1]])
def test_a_count_that_cannot_be_is_no_count(count: Any) -> None:
    broken = event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": count}})
    r = record_of(framed(Stream([ROLE, *TOKENS, FINISH, (210, broken), (210, DONE)], ALL["normal"].right)))
    assert (r.output_tokens, r.token_source, r.error) == (8, TokenSource.CHUNKS, None)
    msgspec.msgpack.encode(r)


def test_short_output_is_seen_beside_what_was_asked() -> None:
    r = record_of(framed(ALL["short_output"]), requested=8)
    assert (r.output_tokens, r.requested_tokens, r.ok) == (3, 8, True)


# failures, each by its name


@pytest.mark.parametrize(
    ("raw", "error", "said"),
    [
        (whole(b"<html><body>Welcome</body></html>", kind="text/html"), ErrorKind.BAD_RESPONSE, "<html>"),
        (whole(b'{"error":{"message":"no such model"}}'), ErrorKind.IN_STREAM, "no such model"),
        (whole(b'{"error":"plain words"}', kind="application/json"), ErrorKind.IN_STREAM, "plain words"),
        (whole(b'{"object":"error","message":"old manner"}'), ErrorKind.IN_STREAM, "old manner"),
        (whole(b'{"choices":[{"message":{"content":"hi"}}]}'), ErrorKind.BAD_RESPONSE, "without streaming"),
        (whole(event({"choices": [{"message": {"content": "hi"}}]})), ErrorKind.BAD_RESPONSE, "without streaming"),
        (whole(b"event: error\ndata: out of memory\n\n"), ErrorKind.IN_STREAM, "out of memory"),
        (whole(b""), ErrorKind.EMPTY, "no token"),
        (whole(ROLE[1] + FINISH[1] + DONE), ErrorKind.EMPTY, "no token"),
        (whole(usage_event(8) + DONE), ErrorKind.EMPTY, "no token"),  # it counts tokens that it never sent
        (whole(text("a") + text("b") + DONE), ErrorKind.TRUNCATED, "finish_reason"),
        (whole(text("a", "") + text("b", "") + DONE), ErrorKind.TRUNCATED, "finish_reason"),
        (whole(text("a", "abort") + DONE), ErrorKind.FINISH_ERROR, "abort"),
        (whole(BODY.replace(b'"length"', b'"error"')), ErrorKind.FINISH_ERROR, "error"),
        (whole(text("a") + b'data: {"error": {"message": "half \\ud83d"}}\n\n'), ErrorKind.IN_STREAM, "half ?"),
        (HEAD + b"data: not chunked\r\n\r\n", ErrorKind.BAD_RESPONSE, "chunk size"),
        (b"SSH-2.0-OpenSSH\r\n", ErrorKind.BAD_RESPONSE, "status line"),
        (whole(b'{"detail":"Slow down"}', "429 Too Many Requests"), "http_429", "Slow down"),
        (whole(b'{"error":{"message":"warming up"}}', "503 Busy"), "http_503", "warming up"),
        (whole(b"Internal Server Error", "500 Oops", "text/plain"), "http_500", "Internal Server Error"),
        (whole(BODY, "500 Oops"), "http_500", ""),  # tokens under an error status are no success
        (whole(b"\xff\xfe", "502 Bad"), "http_502", ""),
    ],
)
def test_a_failure_has_its_own_name_and_what_the_server_said(raw: bytes, error: str, said: str) -> None:
    for pieces in ([(1.0, raw)], [(float(i), raw[i : i + 1]) for i in range(len(raw))]):
        r = record_of(pieces)
        assert (r.error, r.ok) == (error, False)
        assert said in (r.error_text or "")
        msgspec.msgpack.encode(r)


@pytest.mark.parametrize(
    ("kind", "pieces", "error"),
    [
        (ErrorKind.STALLED, [], ErrorKind.STALLED),
        (ErrorKind.STALLED, [(40, HEAD)], ErrorKind.STALLED),
        (ErrorKind.STALLED, [(40, HEAD), *((t, chunk(d)) for t, d in TOKENS[:2])], ErrorKind.STALLED),
        (ErrorKind.CANCELLED, [(40, HEAD), *((t, chunk(d)) for t, d in TOKENS[:2])], ErrorKind.CANCELLED),
        (ErrorKind.REFUSED, [], ErrorKind.REFUSED),
        (ErrorKind.CLOSED, [], ErrorKind.CLOSED),
        (ErrorKind.TRUNCATED, [(40, HEAD)], ErrorKind.TRUNCATED),
        (ErrorKind.TRUNCATED, [(40, whole(b'{"error":{"message":"x"}}', "503 Busy")[:-9])], "http_503"),
        # the stream was over: what the connection did then changes nothing
        (ErrorKind.TRUNCATED, framed(ALL["normal"])[:-1], None),
        (ErrorKind.STALLED, framed(ALL["no_done"])[:-1], None),
    ],
)
def test_what_the_socket_did(kind: ErrorKind, pieces: list[tuple[float, bytes]], error: str | None) -> None:
    capture = capture_of(pieces)
    capture.error, capture.error_text, capture.t_end = kind, "as it was", 500_000_000
    r = read_record(capture, lambda read: read.user_ns, 0)
    assert r.error == error
    if kind is error:
        assert r.error_text == "as it was"
        assert (r.t_end_ns, len(r.chunk_ns)) == (500_000_000, sum(b'"w' in data for _, data in pieces))


def test_a_cut_line_is_no_token_and_no_error_of_ours() -> None:
    r = record_of([(40, HEAD), (70, chunk(TOKENS[0][1])), (90, chunk(TOKENS[1][1][:40]))], cut=True)
    assert (len(r.chunk_ns), r.error) == (1, ErrorKind.TRUNCATED)


def test_the_stamp_of_a_read_is_the_caller_s_choice() -> None:
    capture = capture_of(framed(ALL["normal"]))
    capture.reads = [Read(read.user_ns - 1_000_000, read.user_ns, read.data) for read in capture.reads]
    assert ms(read_record(capture, lambda read: read.kernel_ns, 0).ttft_s) == 69
