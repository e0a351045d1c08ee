"""[DONE] on a socket that stays open, and silence: when a stream is over that does not end."""

from __future__ import annotations

import time

import pytest
from driving import one, run
from hostile_server import HEAD, LAST_CHUNK, End, Step, chunk
from sse_streams import DONE, NORMAL, ROLE, TOKENS, text

from dsv4bench.records.request import ErrorKind

BODY = b"".join(data for _, data in NORMAL)
STREAM = HEAD + chunk(BODY) + LAST_CHUNK

STALL_S = 0.4

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
