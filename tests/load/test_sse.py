"""Server-sent events: every line end, every split, every line that carries nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.load.sse import BOM, SseParser


def parse(*segments: bytes, flush: bool = True) -> list[bytes]:
    """The data of every event that these segments bring."""
    parser = SseParser()
    events = [data for segment in segments for _, data in parser.feed(segment)]
    return events + [data for _, data in parser.flush()] if flush else events


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(i % (len(data) + 1) for i in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),  # line ends mixed
        (b"data:{}\n\n", [b"{}"]),  # no space
        (b"data:  a \n\n", [b" a "]),  # one space goes, the others are the text's own
        (b"data: a\ndata: b\n\n", [b"a\nb"]),  # two data lines, one event
        (b"data\n\n", [b""]),
        (b": ping\n\ndata: a\n\n:\n\n:keep-alive\n\n", [b"a"]),
        (b"id: 7\n\ndata: a\n\n", [b"a"]),  # an id alone is no event
        (b": ping\nid: 7\n\n", []),
        (b"event: message\nid: 7\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"dataset: x\nnonsense\ndata: a\n\n", [b"a"]),
        (b"\n\n\n\ndata: a\n\n\n\n", [b"a"]),
        (BOM + b"data: a\n\n", [b"a"]),
        (b"data: " + BOM + b"\n\n", [BOM]),  # only the first bytes of a stream are a BOM
        ("data: a\u2028b\u0085c\x0bd\x1ce\n\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce".encode()]),
        (b"data: [DONE]", [b"[DONE]"]),  # no line end, no blank line
        (b"data: a\n\ndata: [DONE]\n", [b"a", b"[DONE]"]),
        (b"", []),
    ],
)
def test_the_events_of_a_stream_however_it_is_cut(stream: bytes, events: list[bytes]) -> None:
    assert parse(stream) == events
    for i in range(len(stream) + 1):
        assert parse(stream[:i], stream[i:]) == events
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == events


def test_an_event_waits_for_its_blank_line_and_no_longer() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [(b"", b"a")]  # the CR ends the line; its LF may follow
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [(b"", b"b")]
    assert parser.flush() == []


def test_the_name_of_an_event_belongs_to_that_event_only() -> None:
    parser = SseParser()
    assert parser.feed(b"event: error\ndata: a\n\ndata: b\n\nevent: lost\n\ndata: c\n\n") == [
        (b"error", b"a"),
        (b"", b"b"),
        (b"", b"c"),
    ]


LINES = st.sampled_from(
    [b"data: x", b"data:y ", b"data", b": ping", b":", b"id: 1", b"event: e", b"", b"", "data: \u2028é".encode(), BOM]
)


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12),
    bom=st.booleans(),
    at=st.lists(st.integers(0, 200), max_size=8),
)
def test_no_way_to_cut_a_stream_changes_its_events(
    lines: list[tuple[bytes, bytes]], bom: bool, at: list[int]
) -> None:
    stream = (BOM if bom else b"") + b"".join(line + end for line, end in lines)
    assert parse(*cut(stream, at)) == parse(stream)
