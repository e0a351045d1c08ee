"""From the reads of one request to its record: 29 behaviours, four dialects, and every other way to fail."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hostile_server import HEAD, LAST_CHUNK, chunk, whole
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sse_streams import (
    ALL,
    DONE,
    FINISH,
    HEAD_MS,
    NORMAL,
    ROLE,
    STREAMS,
    TAIL,
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
)

from dsv4bench.load.reading import Read, read_record
from dsv4bench.records.request import ErrorKind, RequestRecord, TokenSource

BODY = b"".join(data for _, data in NORMAL)


def ms(seconds: float | None) -> Any:
    return None if seconds is None else pytest.approx(seconds * 1e3)


def without_times(r: RequestRecord) -> dict[str, Any]:
    """What must not depend on how the bytes were cut."""
    fields = msgspec.structs.asdict(r)
    for name in [name for name in fields if name.endswith("_ns")]:
        fields[name] = len(fields[name]) if name == "chunk_ns" else fields[name] is None
    for name in ("reads", "merged_reads"):
        del fields[name]
    return fields


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


# one stream, however it is cut


@pytest.mark.parametrize("name", ALL)
def test_a_stream_in_single_bytes_and_in_one_piece(name: str) -> None:
    stream = ALL[name]
    raw = wire(stream)
    expected = without_times(record_of(framed(stream), cut=stream.cut))
    assert without_times(record_of([(1, raw)], cut=stream.cut)) == expected
    assert without_times(record_of([(i, raw[i : i + 1]) for i in range(len(raw))], cut=stream.cut)) == expected


@pytest.mark.parametrize("name", ["one_token", "vllm_running_counts", "error_first", "vllm_engine_death"])
def test_a_stream_cut_at_every_byte(name: str) -> None:
    stream = ALL[name]
    raw = wire(stream)
    expected = without_times(record_of(framed(stream), cut=stream.cut))
    for i in range(1, len(raw)):
        assert without_times(record_of([(1, raw[:i]), (2, raw[i:])], cut=stream.cut)) == expected, raw[:i][-30:]


@st.composite
def a_way_to_send(draw: st.DrawFn) -> tuple[Stream, list[bytes]]:
    """A stream whose body is cut into chunks anywhere, and whose bytes are cut into segments anywhere."""
    stream = ALL[draw(st.sampled_from(sorted(ALL)))]
    body = b"".join(data for _, data in stream.pieces)
    body = body.replace(b"\n", draw(st.sampled_from([b"\n", b"\r\n"]))) if b"\r" not in body else body
    frames = [chunk(part) for part in _parts(draw, body) if part]
    raw = HEAD + b"".join(frames) + (b"" if stream.cut else LAST_CHUNK)
    return stream, [part for part in _parts(draw, raw) if part]


def _parts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=12))
    return [data[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(data)])]


@settings(max_examples=250, deadline=None)
@given(a_way_to_send())
def test_no_segmentation_changes_a_record(way: tuple[Stream, list[bytes]]) -> None:
    stream, segments = way
    got = record_of(list(enumerate(segments, 1)), cut=stream.cut)
    assert without_times(got) == without_times(record_of(framed(stream), cut=stream.cut))


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, len(BODY) - 1), max_size=30))
def test_a_token_has_the_stamp_of_the_read_that_completed_its_event(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(BODY)]
    head = whole(BODY)[: -len(BODY)]
    r = record_of([(0, head), *((i, BODY[a:b]) for i, (a, b) in enumerate(itertools.pairwise(edges), 1))])
    ends = itertools.accumulate(len(data) for _, data in NORMAL)
    read_of = [next(i for i, edge in enumerate(edges) if edge >= end) for end in ends]
    assert [t / 1e6 for t in r.chunk_ns] == read_of[1:9]  # the role chunk comes before them
    assert r.merged_reads == sum(read_of[1:9].count(i) > 1 for i in set(read_of[1:9]))


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


# nothing a server sends may break the reader: one such request would cost the whole level

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
DELTA = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("content", "reasoning", "tool_calls", "function_call", "refusal"), JSON)
)
CHOICE = st.fixed_dictionaries(
    {}, optional={"text": JSON, "delta": DELTA | JSON, "finish_reason": JSON, "message": JSON}
)
USAGE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("completion_tokens", "prompt_tokens", "prompt_tokens_details"), JSON)
)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(CHOICE | JSON, max_size=2) | JSON,
        "usage": USAGE | JSON,
        "error": JSON,
        "object": JSON,
        "message": JSON,
        "timings": st.fixed_dictionaries({"predicted_n": JSON}) | JSON,
        "ts": JSON,
    },
)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENT | JSON, max_size=4), status=st.sampled_from(["200 OK", "500 Oops"]))
@example(events=[{"choices": [{"delta": {"tool_calls": True}}]}], status="200 OK")
def test_any_json_makes_a_record_that_can_be_stored(events: list[Any], status: str) -> None:
    stream = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    for body in (stream + TAIL[0][1] + DONE, json.dumps(events[0] if events else None).encode()):
        r = record_of([(1, whole(body, status))])
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(r), type=RequestRecord) == r


@pytest.mark.parametrize("field", ["error", "x", "choices", "usage"])
@pytest.mark.parametrize("close", [b"", b"]" * 100_000 + b"}"])
def test_deep_nesting_is_a_bad_event_like_another(field: str, close: bytes) -> None:
    bomb = b'data: {"%s":' % field.encode() + b"[" * 100_000 + close + b"\n\n"
    r = record_of([(1, whole(BODY + bomb))])
    assert r.output_tokens == 8


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_make_a_record(segments: list[bytes]) -> None:
    for opening in (b"", HEAD, b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\ndata: "):
        r = read_record(capture_of(list(enumerate([opening, *segments]))), lambda read: read.user_ns, 0)
        assert not r.ok
        msgspec.msgpack.encode(r)


def test_the_stamp_of_a_read_is_the_caller_s_choice() -> None:
    capture = capture_of(framed(ALL["normal"]))
    capture.reads = [Read(read.user_ns - 1_000_000, read.user_ns, read.data) for read in capture.reads]
    assert ms(read_record(capture, lambda read: read.kernel_ns, 0).ttft_s) == 69
