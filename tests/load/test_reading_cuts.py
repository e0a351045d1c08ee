"""No way to cut a stream into chunks and segments changes its record; nothing a server sends breaks the reader."""

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
    NORMAL,
    TAIL,
    Stream,
    capture_of,
    framed,
    record_of,
    wire,
    without_times,
)

from dsv4bench.load.reading import read_record
from dsv4bench.records.request import RequestRecord

BODY = b"".join(data for _, data in NORMAL)


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
