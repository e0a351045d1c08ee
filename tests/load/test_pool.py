"""A whole level, through worker processes: what comes home, and that nobody stays behind."""

from __future__ import annotations

import array
import socket
import sys
import threading
import time
from typing import Any

import pytest
from driving import level
from hostile_server import HEAD, LAST_CHUNK, HostileServer, Seen, Step, chunk, post
from sse_streams import ALL, NORMAL, STREAMS, script

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.load import pool
from dsv4bench.load.messages import Finished, Tick
from dsv4bench.load.pool import Outcome, run_level, worker_count
from dsv4bench.records.request import RequestRecord

TIMES = (
    "t_sched_ns",
    "t_send_ns",
    "t_headers_ns",
    "t_first_chunk_ns",
    "t_first_ns",
    "t_first_content_ns",
    "t_last_ns",
    "t_end_ns",
)
STREAM = HEAD + chunk(b"".join(data for _, data in NORMAL)) + LAST_CHUNK
SLOW: list[Step] = [HEAD, *(step for _, data in NORMAL for step in (0.01, chunk(data))), LAST_CHUNK]


# all behaviours, the whole way


@pytest.fixture(scope="module")
def everything() -> Outcome:
    """Every stream of the collection as one request of one level, three times over."""
    names = list(ALL) * 3
    requests = [post(1, path=f"/{name}/v1/chat/completions")[0] for name in names]
    with HostileServer(lambda seen: script(ALL[seen.path.split("/")[1]])) as server:
        return run_level(level(server.port, slots=20, requests=requests))


@pytest.mark.parametrize("name", ALL)
def test_the_right_answer_over_a_socket(everything: Outcome, name: str) -> None:
    right, names = ALL[name].right, list(ALL)
    for r in everything.records[names.index(name) :: len(names)]:
        assert (r.error, r.output_tokens, str(r.token_source)) == (right.error, right.tokens, right.source)
        assert right.error_text in (r.error_text or "")
        assert (r.finish_reason, r.saw_done, r.chunk_tokens) == (right.finish, right.done, right.counted)
        assert (len(r.icl_s), r.status) == (len(right.gaps_ms), 200)
        if right.ttft_ms is None:
            assert r.ttft_s is None
        else:  # not before the server's own pauses; how long after is the machine's business
            assert r.ttft_s is not None and r.ttft_s * 1e3 >= right.ttft_ms - 1
            assert r.t_headers_ns is not None and r.t_first_ns is not None and r.t_headers_ns <= r.t_first_ns


def test_a_level_of_every_behaviour(everything: Outcome) -> None:
    assert len(STREAMS) == 29
    assert [r.index for r in everything.records] == list(range(3 * len(ALL)))
    assert (everything.unsent, everything.interrupted, everything.server_gone) == (0, False, None)
    assert everything.reads == sum(r.reads for r in everything.records) == len(everything.lag_ns)
    assert everything.timestamps == ("kernel" if sys.platform.startswith("linux") else "user")
    assert 0 <= everything.worker_cpu_frac <= 1.1
    assert abs(everything.start_epoch_s - time.time()) < 600


# several workers


@pytest.mark.parametrize("slots", [2, 5])
def test_the_places_of_two_workers_sum_to_c(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    n = 5 * slots

    def reply(seen: Seen) -> list[Step]:
        if seen.number <= slots:
            all_here.wait(20)
        return [STREAM]

    all_here = threading.Barrier(slots)
    monkeypatch.setattr(pool, "worker_count", lambda _: 2)
    ticks: list[Tick] = []
    with HostileServer(reply) as server:
        outcome = run_level(level(server.port, n, slots), lambda tick, _: ticks.append(tick))
    assert outcome.n_workers == 2
    assert (server.peak, server.connections) == (slots, slots)
    assert [r.index for r in outcome.records] == list(range(n))
    assert all(r.ok for r in outcome.records)
    assert sorted(int(s.body) for s in server.seen) == list(range(n))
    assert all(t.in_flight <= slots for t in ticks)


def test_two_workers_share_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of both, on the earlier one's clock, agree with the server about what came when."""
    monkeypatch.setattr(pool, "worker_count", lambda _: 2)
    schedule = [i * 25_000_000 for i in range(16)]
    with HostileServer(lambda _: [STREAM]) as server:
        outcome = run_level(level(server.port, 16, 4, schedule_ns=schedule))
    arrived = {int(s.body): s.t_ns for s in server.seen}
    sent = {r.index: r.t_send_ns for r in outcome.records}
    offsets = [arrived[i] - sent[i] for i in range(16)]
    assert max(offsets) - min(offsets) < 1e9
    for r in outcome.records:
        assert r.t_sched_ns is not None and r.t_first_ns is not None and r.t_last_ns is not None
        assert r.t_sched_ns <= r.t_send_ns <= r.t_first_ns == r.chunk_ns[0] <= r.t_last_ns <= r.t_end_ns
        assert 0 <= r.t_sched_ns - schedule[r.index] < 1e9  # its worker started that much after the first


def test_every_time_of_a_later_worker_moves_by_as_much_as_it_started_later() -> None:
    times: dict[str, Any] = {name: 10 * i for i, name in enumerate(TIMES, 1)}
    full = RequestRecord(index=1, chunk_ns=[70, 75], sent_ns=[3, 4], **times)
    bare = RequestRecord(index=0, t_send_ns=5, t_end_ns=6)
    earlier, later = (finished(start_ns, [r]) for start_ns, r in ((1_000, bare), (1_500, full)))
    outcome = pool.merged([later, earlier], interrupted=False)
    assert outcome.records[0] == bare
    moved: dict[str, Any] = {name: t + 500 for name, t in times.items()}
    assert outcome.records[1] == RequestRecord(index=1, chunk_ns=[570, 575], sent_ns=[503, 504], **moved)
    assert set(TIMES) == {f for f in RequestRecord.__struct_fields__ if f.startswith("t_")}  # none was forgotten
    assert (outcome.start_epoch_s, outcome.wall_s, outcome.cpu_s, outcome.unsent) == (1.0, 2.5, 1.0, 4)
    assert (outcome.worker_cpu_frac, list(outcome.lag_ns), outcome.reads) == (0.5 / 1.5, [7, 7], 6)


@pytest.mark.parametrize(("one", "other", "both"), [("kernel", "kernel", "kernel"), ("kernel", "user", "user")])
def test_stamps_are_the_kernel_s_only_when_all_are(one: str, other: str, both: str) -> None:
    outcome = pool.merged([finished(1, [], one), finished(2, [], other)], interrupted=True)
    assert (outcome.timestamps, outcome.interrupted, outcome.n_workers) == (both, True, 2)


def finished(start_ns: int, records: list[RequestRecord], timestamps: str = "kernel") -> Finished:
    return Finished(
        start_ns=start_ns,
        start_epoch_s=start_ns / 1000,
        records=records,
        timestamps=timestamps,
        lag_ns=array.array("q", [7]).tobytes(),
        reads=3,
        cpu_s=0.5,
        parse_cpu_s=0.1,
        wall_s=start_ns / 1000 + (1.0 if start_ns > 1_000 else 0.5),
        unsent=2,
        reuse=True,
    )


@pytest.mark.parametrize(
    ("slots", "cores", "workers"), [(1, 8, 1), (512, 8, 1), (513, 8, 2), (9999, 8, 7), (600, 1, 1)]
)
def test_how_many_workers(monkeypatch: pytest.MonkeyPatch, slots: int, cores: int, workers: int) -> None:
    monkeypatch.setattr("dsv4bench.load.pool.os.cpu_count", lambda: cores)
    assert worker_count(slots) == workers


def test_progress_is_told_while_it_runs() -> None:
    ticks: list[Tick] = []
    with HostileServer(lambda _: [HEAD, 0.5, chunk(b"".join(d for _, d in NORMAL)), LAST_CHUNK]) as server:
        run_level(level(server.port, 4, 2), lambda tick, _: ticks.append(tick))
    assert any(t.in_flight == 2 and t.sending for t in ticks)
    assert [t.done for t in ticks] == sorted(t.done for t in ticks)


# nothing to talk to


def test_refused_from_the_start_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with pytest.raises(MeasuredBad, match=rf"127\.0\.0\.1:{port} takes no connection: Connection refused") as caught:
        run_level(level(port, 20, 4))
    assert "running" in caught.value.hint


def test_a_host_without_an_address_is_the_user_s_error() -> None:
    with pytest.raises(UsageError, match=r"nowhere\.invalid"):
        run_level(level(80, host="nowhere.invalid"))


def test_a_server_that_dies_leaves_what_was_measured() -> None:
    def reply(seen: Seen) -> list[Step]:
        if seen.number == 9:
            server.die()
        return [STREAM]

    with HostileServer(reply) as server:
        outcome = run_level(level(server.port, 300, 3))
    # nine were answered before; of the three on their way then, each may have arrived or not
    assert 6 <= sum(r.ok for r in outcome.records) <= 12
    assert outcome.server_gone is not None
    assert outcome.unsent == 300 - len(outcome.records) > 250
