"""A whole level, through worker processes: what comes home, and that nobody stays behind."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_server import HEAD, LAST_CHUNK, End, HostileServer, Seen, Step, chunk, post, self_signed
from sse_streams import ALL, NORMAL, STREAMS, TOKENS, script

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.load import pool
from dsv4bench.load.messages import Finished, Tick
from dsv4bench.load.pool import Level, Outcome, run_level, worker_count
from dsv4bench.records.request import ErrorKind, RequestRecord

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


def level(port: int, n: int = 1, slots: int = 1, requests: list[bytes] | None = None, **more: Any) -> Level:
    requests = post(n) if requests is None else requests
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "tls": False,
        "verify": True,
        "requests": requests,
        "requested": [8] * len(requests),
        "slots": slots,
        "timeout_s": 30.0,
    }
    return Level(**{**fields, **more})


def wait_until(true: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{pid}\n" in status.read_text():
                found.append(int(status.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


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
    outcome = pool._merge([later, earlier], interrupted=False)
    assert outcome.records[0] == bare
    moved: dict[str, Any] = {name: t + 500 for name, t in times.items()}
    assert outcome.records[1] == RequestRecord(index=1, chunk_ns=[570, 575], sent_ns=[503, 504], **moved)
    assert set(TIMES) == {f for f in RequestRecord.__struct_fields__ if f.startswith("t_")}  # none was forgotten
    assert (outcome.start_epoch_s, outcome.wall_s, outcome.cpu_s, outcome.unsent) == (1.0, 2.5, 1.0, 4)
    assert (outcome.worker_cpu_frac, list(outcome.lag_ns), outcome.reads) == (0.5 / 1.5, [7, 7], 6)


@pytest.mark.parametrize(("one", "other", "both"), [("kernel", "kernel", "kernel"), ("kernel", "user", "user")])
def test_stamps_are_the_kernel_s_only_when_all_are(one: str, other: str, both: str) -> None:
    outcome = pool._merge([finished(1, [], one), finished(2, [], other)], interrupted=True)
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
    assert 6 <= sum(r.ok for r in outcome.records) <= 9  # what was on its way then may have arrived or not
    assert outcome.server_gone is not None
    assert outcome.unsent == 300 - len(outcome.records) > 250


# the processes


IN_A_PROCESS = """
import json, sys
from dsv4bench.load.pool import Level, run_level
from hostile_server import post

def tick(t, elapsed):
    print(json.dumps([t.in_flight, t.done]), flush=True)

outcome = run_level(Level(host="127.0.0.1", port=int(sys.argv[1]), tls=False, verify=True, requests=post(50),
                          requested=[8] * 50, slots=3, timeout_s=60), tick)
print(json.dumps({"interrupted": outcome.interrupted, "unsent": outcome.unsent,
                  "errors": [r.error for r in outcome.records],
                  "chunks": [len(r.chunk_ns) for r in outcome.records]}))
"""


def level_in_a_process(port: int) -> subprocess.Popen[str]:
    """run_level in the main thread of a process of its own, in its own group."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    command = [sys.executable, "-c", IN_A_PROCESS, str(port)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": path}
    )


def six_then_silence(seen: Seen) -> list[Step]:
    return [STREAM] if seen.number <= 6 else [HEAD + chunk(TOKENS[0][1] + TOKENS[1][1]), End.HANG]


def wait_for_progress(process: subprocess.Popen[str], done: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line) == [3, done]:
            return
    raise AssertionError("it ended before that")


@pytest.mark.parametrize("whole_group", [False, True])
def test_one_interrupt_keeps_what_was_measured(whole_group: bool) -> None:
    with HostileServer(six_then_silence) as server:
        process = level_in_a_process(server.port)
        wait_for_progress(process, 6)
        if whole_group:  # what a terminal's Ctrl-C does: the workers get it too
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    outcome = json.loads(said.splitlines()[-1])
    assert (outcome["interrupted"], outcome["unsent"]) == (True, 41)
    assert sorted(map(str, outcome["errors"])) == ["None"] * 6 + ["cancelled"] * 3
    assert sorted(outcome["chunks"]) == [2] * 3 + [8] * 6


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it looks for the worker in /proc")
def test_a_killed_parent_leaves_no_worker() -> None:
    with HostileServer(six_then_silence) as server:
        process = level_in_a_process(server.port)
        wait_for_progress(process, 6)
        (worker,) = children_of(process.pid)
        assert is_alive(worker)
        process.kill()
        process.communicate(timeout=20)
        wait_until(lambda: not is_alive(worker))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it looks for the worker in /proc")
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_killed_worker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, n_workers: int) -> None:
    monkeypatch.setattr(pool, "worker_count", lambda _: n_workers)
    before = set(children_of(os.getpid()))
    workers: set[int] = set()

    def kill_one() -> None:
        wait_until(lambda: server.in_flight >= 2)
        workers.update(set(children_of(os.getpid())) - before)
        os.kill(min(workers), signal.SIGKILL)

    with HostileServer(lambda _: [HEAD + chunk(TOKENS[0][1]), End.HANG]) as server:
        killer = threading.Thread(target=kill_one)
        killer.start()
        with pytest.raises(MeasuredBad, match=r"a load worker ended unexpectedly \(exit code -9\)"):
            run_level(level(server.port, 20, 2))
        killer.join()
    assert len(workers) == n_workers
    assert not any(is_alive(pid) for pid in workers)


def test_a_worker_that_cannot_start_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.load.pool.sys.executable", "/bin/false")
    with HostileServer(lambda _: [STREAM]) as server, pytest.raises(MeasuredBad, match="exit code 1"):
        run_level(level(server.port, requests=post(1, size=1 << 20)))  # more than a pipe holds


# https


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Any:
    context = self_signed(tmp_path_factory.mktemp("tls"))
    if context is None:
        pytest.skip("openssl is not installed")
    return context


def test_https_without_verification(https: Any) -> None:
    with HostileServer(lambda seen: SLOW if seen.nth < 4 else [*SLOW[:-1], LAST_CHUNK], tls=https) as server:
        outcome = run_level(level(server.port, 9, 3, tls=True, verify=False))
    assert [(r.ok, r.output_tokens, len(r.chunk_ns)) for r in outcome.records] == [(True, 8, 8)] * 9
    assert server.connections == 3
    if sys.platform.startswith("linux"):
        assert outcome.timestamps == "kernel"
        assert len(outcome.lag_ns) == outcome.reads
    assert all(r.icl_s and min(r.icl_s) >= 0 for r in outcome.records)


def test_https_large_bodies_both_ways(https: Any) -> None:
    big = b": " + b"x" * (1 << 20) + b"\n\n"
    with HostileServer(lambda _: [HEAD + chunk(big) + STREAM[len(HEAD) :]], tls=https) as server:
        outcome = run_level(level(server.port, slots=2, requests=post(3, size=3 << 20), tls=True, verify=False))
    assert [r.output_tokens for r in outcome.records] == [8] * 3
    assert {len(s.body) for s in server.seen} == {3 << 20}


@pytest.mark.parametrize("end", [End.RESET, End.CLOSE])
def test_https_that_is_cut_or_stale(https: Any, end: End) -> None:
    def reply(seen: Seen) -> list[Step]:
        if int(seen.body) == 1:
            return [HEAD + chunk(TOKENS[0][1]), 0.05, end]
        return [end] if int(seen.body) == 3 and seen.nth > 1 else [STREAM]

    with HostileServer(reply, tls=https) as server:
        outcome = run_level(level(server.port, 5, tls=True, verify=False))
    assert [r.error for r in outcome.records] == [None, ErrorKind.TRUNCATED, None, None, None]
    assert [r.retried for r in outcome.records] == [False, False, False, True, False]


def test_https_with_verification_refuses_an_unknown_certificate(https: Any) -> None:
    with HostileServer(lambda _: [STREAM], tls=https) as server:
        with pytest.raises(MeasuredBad, match=r"certificate verify failed: self[- ]signed certificate") as caught:
            run_level(level(server.port, 4, 2, tls=True))
        assert server.seen == []
    assert "--insecure" in caught.value.hint


def test_https_asked_of_a_server_that_speaks_http() -> None:
    with HostileServer(lambda _: [STREAM]) as server, pytest.raises(MeasuredBad, match=r"(?i)wrong.version"):
        run_level(level(server.port, 4, 2, tls=True, verify=False))
