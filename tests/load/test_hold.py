"""C requests held in decode: every stream counted while it runs, replaced when it ends, and given up for a reason."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

import pytest
from driving import level
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, post, whole

from dsv4bench.errors import MeasuredBad
from dsv4bench.load import pool
from dsv4bench.load.hold import Hold, HoldView
from dsv4bench.load.messages import StreamCount
from dsv4bench.load.pool import Level

GAP_S = 0.01


def token(n: int | None = None) -> bytes:
    event: dict[str, object] = {"choices": [{"index": 0, "text": " w"}]}
    if n is not None:
        event["usage"] = {"completion_tokens": n, "prompt_tokens": 3}
    return chunk(b"data: " + json.dumps(event).encode() + b"\n\n")


def stream(tokens: int, per_chunk: int = 1, counted: bool = True) -> list[Step]:
    steps: list[Step] = [HEAD]
    for i in range(tokens):
        steps += [GAP_S, token((i + 1) * per_chunk if counted else None)]
    end = b'data: {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'
    return [*steps, chunk(end), LAST_CHUNK]


def held(server: HostileServer, c: int, requests: int = 100) -> Level:
    return level(server.port, n=requests, slots=c)


def in_decode(hold: Hold) -> HoldView:
    return hold.wait(lambda now: now.in_decode, hold.concurrency, 20, "first tokens")


def test_all_requests_are_in_decode_and_their_steps_are_counted() -> None:
    with HostileServer(lambda _: stream(5000)) as server, Hold(held(server, 3)) as hold:
        before = in_decode(hold)
        assert len(before.streams) == 3 and before.failed == before.done == 0
        after = hold.wait(lambda now: now.steps_since(before, 1.0), 8, 20, "8 steps")
        outcome = hold.end()
        for i, s in after.streams.items():
            assert s.chunks - before.streams[i].chunks >= 8 and s.tokens == s.chunks
    assert server.peak == 3 and len(server.seen) == 3
    assert {r.error for r in outcome.records} == {"cancelled"}
    seen_by = {r.index: sum(t + outcome.start_ns <= after.at_ns for t in r.chunk_ns) for r in outcome.records}
    assert all(seen_by[i] >= s.chunks for i, s in after.streams.items())  # the records know no less


def test_a_request_that_ends_is_replaced_and_counted() -> None:
    with HostileServer(lambda seen: stream(4 if seen.number <= 2 else 5000)) as server, Hold(held(server, 2)) as hold:
        replaced = hold.wait(lambda now: now.in_decode if now.done >= 2 else 0, 2, 20, "successors")
        assert replaced.failed == 0 and min(replaced.streams) >= 2
        assert [r.ok for r in hold.end().records] == [True, True, False, False]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ([whole(b'{"error": {"message": "queue is full"}}', "503 Service Unavailable")], "http_503: queue is full"),
        ([HEAD, token(1), 0.05, End.RESET], "truncated"),
    ],
)
def test_a_request_that_fails_ends_the_hold(reply: Sequence[Step], why: str) -> None:
    with (
        HostileServer(lambda seen: reply if seen.number == 2 else stream(5000)) as server,
        Hold(held(server, 3)) as hold,
        pytest.raises(MeasuredBad, match=why),
    ):
        hold.wait(lambda _: 0, 1, 20, "never")


def test_a_server_that_dies_ends_the_hold() -> None:
    with HostileServer(lambda _: stream(5000)) as server, Hold(held(server, 2)) as hold:
        in_decode(hold)
        threading.Thread(target=server.die).start()
        with pytest.raises(MeasuredBad, match="could not be held"):
            hold.wait(lambda _: 0, 1, 20, "never")


def test_what_does_not_come_in_time_is_said() -> None:
    def reply(seen: Seen) -> Sequence[Step]:  # a server that runs one request at a time
        return stream(5000) if seen.number == 1 else [HEAD, End.HANG]

    with HostileServer(reply) as server, Hold(held(server, 2)) as hold:
        hold.wait(lambda now: now.in_decode, 1, 20, "one")
        with pytest.raises(MeasuredBad, match=r"first tokens of 2: 1 after 0\.2 s without progress"):
            hold.wait(lambda now: now.in_decode, 2, 0.2, "first tokens of 2")


def test_prompts_that_run_out_are_no_success() -> None:
    with (
        HostileServer(lambda _: stream(2)) as server,
        Hold(held(server, 2, requests=4)) as hold,
        pytest.raises(MeasuredBad, match="the prepared prompts ran out"),
    ):
        hold.wait(lambda _: 0, 1, 20, "never")


def test_two_workers_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "worker_count", lambda _: 2)
    with HostileServer(lambda _: stream(5000)) as server, Hold(held(server, 5)) as hold:
        before = in_decode(hold)
        hold.wait(lambda now: now.steps_since(before, 1.0), 3, 20, "3 steps")
        assert sorted(before.streams) == [0, 1, 2, 3, 4]
        assert len(hold.end().records) == 5


def test_leaving_early_frees_the_server_and_the_workers() -> None:
    with HostileServer(lambda _: stream(5000)) as server:
        with pytest.raises(KeyboardInterrupt), Hold(held(server, 2)) as hold:
            in_decode(hold)
            raise KeyboardInterrupt
        assert all(w.process.poll() is not None for w in hold._workers)
        deadline = time.monotonic() + 20
        while server._open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server._open


def test_nobody_listens() -> None:
    with HostileServer(lambda _: stream(1)) as server:
        port = server.port
    with pytest.raises(MeasuredBad, match="takes no connection"), Hold(level(port, requests=post(1))):
        raise AssertionError


def view(**streams: tuple[int, int | None]) -> HoldView:
    counts = {int(k[1:]): StreamCount(int(k[1:]), *v) for k, v in streams.items()}
    return HoldView(at_ns=0, streams=counts, done=0, failed=0)


@pytest.mark.parametrize(
    ("before", "now", "tokens_a_step", "steps"),
    [
        (view(s0=(5, 5), s1=(7, 7)), view(s0=(9, 9), s1=(10, 10)), 1.0, 3),  # the fewest of any stream
        (view(s0=(5, 5)), view(s0=(7, 15)), 1.0, 10),  # chunks that a slow front end joined
        (view(s0=(5, 10)), view(s0=(9, 20)), 2.5, 4),  # speculation
        (view(s0=(5, 10)), view(s0=(9, 20)), None, 4),  # speculation of which nothing is known
        (view(s0=(5, None)), view(s0=(9, None)), 1.0, 4),  # the server does not count
        (view(s0=(50, 50), s1=(3, 3)), view(s1=(9, 9), s2=(2, 2)), 1.0, 2),  # a successor counts from its start
        (view(s0=(5, 5)), view(), 1.0, 0),
    ],
)
def test_steps_are_the_fewest_of_any_stream(
    before: HoldView, now: HoldView, tokens_a_step: float | None, steps: int
) -> None:
    assert now.steps_since(before, tokens_a_step) == steps
