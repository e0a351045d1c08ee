"""A whole sweep against a server of known pace: every cell, exact where counting is exact, and all of it stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import Sweep, sweep

from dsv4bench.load.paced import PacedServer
from dsv4bench.records.experiment import Status
from dsv4bench.records.request import TokenSource
from dsv4bench.records.workload import Slo
from dsv4bench.store.store import Store

OSL, REQUESTS = 6, 6


@pytest.fixture(scope="module")
def paced() -> Iterator[PacedServer]:
    with PacedServer(ttft_s=0.010, itl_s=0.005) as server:
        yield server


@pytest.fixture(scope="module")
def swept(paced: PacedServer, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep(
        paced.url,
        tmp_path_factory.mktemp("swept"),
        concurrency=[1, 3],
        isl=[40],
        osl=OSL,
        requests=REQUESTS,
        repeat=2,
        slo=Slo(ttft_s=30.0, tpot_s=10.0),
        seed=99,
        name="baseline",
        scenario="numbers",
        parent="stock",
        lever="none",
    )


def test_every_level_once_with_repeats_outermost(swept: Sweep) -> None:
    assert [c.cell for c in swept.cells] == [f"r{r}-c{c}-i40" for r in (0, 1) for c in (1, 3)]
    assert [(c.repeat, c.concurrency, c.isl) for c in swept.cells][:3] == [(0, 1, 40), (0, 3, 40), (1, 1, 40)]
    assert swept.result.error is None and not swept.result.interrupted and swept.result.status is Status.COMPLETE


def test_counts_are_exact(swept: Sweep) -> None:
    for c in swept.cells:
        assert (c.n_sent, c.n_ok, c.n_err, c.n_cancelled, c.n_short) == (REQUESTS, REQUESTS, 0, 0, 0)
        assert c.errors == {} and c.error_example is None
        assert c.output_tokens == REQUESTS * OSL and c.osl_mean == OSL and c.osl == OSL
        assert c.prompt_tokens == REQUESTS * c.isl and c.isl_mean == c.isl
        assert c.token_source is TokenSource.USAGE and c.tokens_per_chunk == 1.0
        assert c.peak_in_flight == c.concurrency
        assert c.server_output_tokens == REQUESTS * OSL  # the server's own counter over the level
        assert c.rate_req_s is None and c.queue_client_p99_s is None and c.n_late is None


def test_numbers_belong_together(swept: Sweep) -> None:
    for c in swept.cells:
        assert c.duration_s and c.output_tok_s and c.request_s and c.tpot_mean_s and c.icl_mean_s
        assert c.steady_s and c.achieved_batch and c.concurrency
        assert c.output_tok_s == pytest.approx(REQUESTS * OSL / c.duration_s)
        assert c.request_s == pytest.approx(REQUESTS / c.duration_s)
        assert c.total_tok_s == pytest.approx(REQUESTS * (OSL + c.isl) / c.duration_s)
        assert c.tok_s_per_user == pytest.approx(1 / c.tpot_mean_s)
        assert c.icl_mean_s == pytest.approx(c.tpot_mean_s)  # one token a chunk
        assert 0 < c.achieved_batch <= c.concurrency + 1e-9
        assert c.ttft_p50_s and c.ttft_p99_s and c.e2e_p50_s and c.ttfc_p50_s
        assert c.ttft_p50_s <= c.ttft_p99_s and c.ttft_p50_s < c.e2e_p50_s
        assert c.ttft_p50_s >= 0.010  # a paced server is never early
        assert c.slo_frac == 1.0 and c.goodput_req_s == pytest.approx(c.request_s)
        assert c.client_lag_p99_s is not None and c.client_lag_max_s is not None
        assert c.client_lag_p99_s <= c.client_lag_max_s and c.n_workers == 1


def test_the_workload_and_the_plan_are_recorded(swept: Sweep) -> None:
    e = swept.stored.experiment
    w = e.workload
    assert (w.dataset, w.prompt_kind, w.isl, w.osl, w.seed) == ("random", "token_ids", [40], OSL, 99)
    assert (w.vocab_size, w.vocab_source, w.ignore_eos, w.prefix_share) == (1000, "option", True, 0.0)
    assert w.sent_fields == [
        "ignore_eos",
        "stream_options.continuous_usage_stats",
        "stream_options.include_usage",
    ]
    assert e.workload_fingerprint == w.fingerprint()
    assert (e.config, e.scenario, e.parent, e.lever) == ("baseline", "numbers", "stock", "none")
    assert (e.plan.concurrency, e.plan.isl, e.plan.repeat, e.plan.requests) == ([1, 3], [40], 2, REQUESTS)
    assert e.server.model == "paced" and e.server_on_this_host and e.machine.cores >= 1 and e.tool.version


def test_everything_is_stored(swept: Sweep) -> None:
    (entry,) = Store(swept.out).list()
    assert (entry.id, entry.status, entry.n_cells) == (swept.result.id, Status.COMPLETE, 4)
    stored = swept.stored
    assert [(c.cell, c.n_ok, c.output_tokens) for c in stored.cells()] == [
        (c.cell, c.n_ok, c.output_tokens) for c in swept.cells
    ]
    for c in swept.cells:
        assert c.output_tok_s is not None
        mine = list(stored.requests(c.cell))
        assert len(mine) == REQUESTS and all(r.ok and r.output_tokens == OSL and len(r.chunk_ns) == OSL for r in mine)
    telemetry = stored.telemetry()
    assert {s.cell for s in telemetry} == {c.cell for c in swept.cells}
    assert any(s.gauges is not None and s.gauges.output_tokens_total is not None for s in telemetry)
    series = stored.series()
    assert series is not None and [s.n_requests for s in series.cells] == [REQUESTS] * 4
    assert stored.warnings == []


def test_one_launch_and_its_start(swept: Sweep) -> None:
    launches = swept.stored.experiment.launches
    assert list(launches) == ["L0"] and launches["L0"] is not None
    assert {c.launch for c in swept.cells} == {"L0"}


def test_progress_tells_each_level_and_counts_up(swept: Sweep) -> None:
    assert {p.level_count for p in swept.progress} == {4}
    assert [p.level_index for p in swept.progress] == sorted(p.level_index for p in swept.progress)
    assert {p.total for p in swept.progress} == {REQUESTS}
    assert swept.progress[0].level == "C=1 ISL 40" and swept.progress[-1].level == "C=3 ISL 40 repeat 2"
    assert all(0 <= p.done <= REQUESTS and p.failed == 0 and p.in_flight <= 3 for p in swept.progress)


def test_an_open_loop(paced: PacedServer, tmp_path: Path) -> None:
    swept = sweep(paced.url, tmp_path, rates_req_s=[40.0, 80.0], arrivals="constant", requests=8, osl=4)
    assert [c.cell for c in swept.cells] == ["r0-q40-i16", "r0-q80-i16"]
    for c, rate in zip(swept.cells, (40.0, 80.0), strict=True):
        assert c.concurrency is None and c.rate_req_s == rate
        assert (c.n_sent, c.n_ok) == (8, 8) and c.n_late is not None and c.queue_client_p99_s is not None
        assert c.output_tok_s_steady is None and "open loop" in c.why_null["output_tok_s_steady"]
        scheduled = [r.t_sched_ns for r in swept.stored.requests(c.cell)]
        assert scheduled == [round(i / rate * 1e9) for i in range(8)]
        assert all(r.t_send_ns >= (r.t_sched_ns or 0) for r in swept.stored.requests(c.cell))
    assert swept.stored.experiment.plan.concurrency == []


def test_a_duration_ends_the_sending_and_drains(paced: PacedServer, tmp_path: Path) -> None:
    swept = sweep(paced.url, tmp_path, concurrency=[2], requests=None, duration_s=0.3, osl=4)
    (c,) = swept.cells
    records = list(swept.stored.requests(c.cell))
    assert c.n_ok == c.n_sent == len(records) > 4 and c.n_err == 0
    assert max(r.t_send_ns for r in records) < 0.3e9 + 60e6  # a scan of the loop is 50 ms
    assert all(r.output_tokens == 4 for r in records)  # what was in flight was drained
    assert not any("ran out" in note for note in c.notes)
    assert {p.total for p in swept.progress} == {None}


def test_an_open_loop_of_a_duration_keeps_its_rate(paced: PacedServer, tmp_path: Path) -> None:
    swept = sweep(paced.url, tmp_path, rates_req_s=[50.0], arrivals="constant", requests=None, duration_s=0.2, osl=2)
    assert swept.cells[0].n_sent == 10  # at 0, 20, …, 180 ms


def test_user_stamps_and_kernel_stamps_are_named(swept: Sweep) -> None:
    assert {c.timestamps for c in swept.cells} <= {"kernel", "user"}


def test_chunks_of_several_tokens(tmp_path: Path) -> None:
    with PacedServer(ttft_s=0.005, itl_s=0.003, tokens_per_chunk=4) as server:
        (c,) = sweep(server.url, tmp_path, concurrency=[2], osl=16).cells
    assert c.tokens_per_chunk == 4.0 and c.output_tokens == 4 * 16 and c.token_source is TokenSource.USAGE
    assert c.icl_mean_s and c.tpot_mean_s
    assert c.icl_mean_s / c.tpot_mean_s == pytest.approx(4.0)


def test_a_dry_run_writes_nothing(paced: PacedServer, tmp_path: Path) -> None:
    out = tmp_path / "results"
    swept = sweep(paced.url, out, dry_run=True, concurrency=[1, 2], requests=10)
    assert not out.exists()
    assert swept.cells == [] and swept.result.id is None and swept.progress == []
    assert "2 levels, 20 requests" in swept.result.notes[-1] and "TTFT" in swept.said[-1]


def test_the_warm_up_is_in_no_number(paced: PacedServer, tmp_path: Path) -> None:
    swept = sweep(paced.url, tmp_path, concurrency=[2], warmup=True)
    assert swept.progress[0].level == "C=2 ISL 16 (warm-up)"
    assert swept.cells[0].n_sent == 4 and swept.cells[0].server_output_tokens == 16
