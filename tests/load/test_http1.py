"""The framing of a response, cut at every byte, and what is no response at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.load.http1 import MAX_HEAD_BYTES, FramingError, Response, encode_request

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


def read(*segments: bytes) -> tuple[Response, bytes, bool]:
    """(response, body, whether the last segment completed it); what only follows the framing must agree."""
    response, follower, complete = Response(), Response(), False
    out: list[bytes] = []
    for segment in segments:
        complete = response.feed(segment, out)
        assert follower.feed(segment) is complete
        assert (follower.started, follower.keep_alive) == (response.started, response.keep_alive)
    return response, b"".join(out), complete


@pytest.mark.parametrize(
    ("raw", "body", "keep_alive"),
    [
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello", True),
        (CHUNKED + b"1\r\na\r\nA\r\n\r\n345678\r\n\r\n0\r\n\r\n", b"a\r\n345678\r\n", True),  # CRLF is data, too
        (CHUNKED + b"05 ; name=x\r\nhello\r\n000\r\nX-Trailer: y\r\nZ: z\r\n\r\n", b"hello", True),
        (CONTINUE + CHUNKED + b"2\r\nhi\r\n0\r\n\r\n", b"hi", True),
        (OK + b"content-length:  5 \r\n\r\nhello", b"hello", True),
        (OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (OK + b"Content-Length: 5\r\nConnection: Close\r\n\r\nhello", b"hello", False),
        (OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
        (b"HTTP/1.1 429\r\nContent-Length: 2\r\n\r\nno", b"no", True),  # no reason phrase
    ],
)
def test_a_response_however_it_is_cut(raw: bytes, body: bytes, keep_alive: bool) -> None:
    for segments in [
        [raw],
        *([raw[:i], raw[i:]] for i in range(1, len(raw))),
        [raw[i : i + 1] for i in range(len(raw))],
    ]:
        response, got, complete = read(*segments)
        assert (got, complete, response.complete, response.keep_alive) == (body, True, True, keep_alive)


@pytest.mark.parametrize("raw", [CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", OK + b"Content-Length: 5\r\n\r\nhello"])
def test_a_response_without_its_last_byte_is_not_complete(raw: bytes) -> None:
    for i in range(len(raw)):
        response, _, complete = read(raw[:i])
        assert not complete
        assert response.started is (i > 0)
        assert not response.closed()


def test_without_a_length_the_close_is_the_end() -> None:
    response, body, complete = read(OK + b"\r\n", b"data: a", b"\n\n")
    assert (body, complete, response.keep_alive) == (b"data: a\n\n", False, False)
    assert response.closed() and response.complete


def test_headers_are_found_whatever_their_case() -> None:
    response, _, _ = read(b"HTTP/1.1 503 Busy\r\nRETRY-after: 2\r\nno colon\r\nContent-Length: 0\r\n\r\n")
    assert (response.status, response.headers["retry-after"]) == (503, "2")


def test_an_interim_response_is_not_the_start_of_the_answer() -> None:
    response, _, _ = read(CONTINUE)
    assert (response.status, response.started) == (None, False)


def test_bytes_after_the_end_make_the_connection_unfit() -> None:
    response, body, complete = read(OK + b"Content-Length: 2\r\n\r\nhi" + OK)
    assert (body, complete, response.keep_alive) == (b"hi", True, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",  # another service: no use to wait for the end of its head
        b"\x15\x03\x01\x00\x02\x02\x46",  # an alert: https is spoken there
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 2²0 OK\r\n\r\n".encode("latin-1"),
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\nhello",
        OK + b"Content-Length: 5, 5\r\n\r\nhello",
        OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nhello",
        OK + b"X: " + b"x" * MAX_HEAD_BYTES,
        CHUNKED + b"data: a\n\n\r\n",
        CHUNKED + b"data: a\n\n" * 500,
        CHUNKED + b"-5\r\nhello\r\n",
        CHUNKED + b"-2\r\n",
        CHUNKED + b"\r\nhello\r\n",
    ],
)
def test_what_is_no_response(raw: bytes) -> None:
    for cut in (0, len(CHUNKED)):  # the hot path, without `out`, must see it as well
        for with_body in (True, False):
            response, out = Response(), list[bytes]() if with_body else None
            with pytest.raises(FramingError):
                response.feed(raw[:cut], out)
                response.feed(raw[cut:], out)


SEGMENTS = st.sampled_from(
    [b"\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"5\r\nhell", b"+5\r\nhello\r\n", b"-2\r\n", b"F\r\n"]
)


@given(
    opening=st.sampled_from([b"", OK, CHUNKED, CHUNKED + b"5\r\n", OK + b"Content-Length: 7\r\n\r\n"]),
    segments=st.lists(st.one_of(st.binary(max_size=40), SEGMENTS)),
)
def test_any_bytes_are_a_response_or_a_framing_error(opening: bytes, segments: list[bytes]) -> None:
    response, follower = Response(), Response()
    out: list[bytes] = []
    for segment in [opening, *segments]:
        try:
            complete = response.feed(segment, out)
        except FramingError:
            with pytest.raises(FramingError):
                follower.feed(segment)
            return
        assert complete is response.complete is follower.feed(segment)
    assert len(b"".join(out)) <= len(b"".join(segments))


def test_a_request_is_whole_before_the_clock_starts() -> None:
    raw = encode_request("/v1/completions", "host:8000", {"Authorization": "Bearer k"}, '{"é":1}'.encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert {"Host: host:8000", "Authorization: Bearer k", "Content-Length: 8"} <= set(lines)
    assert body == '{"é":1}'.encode()
