"""Every definition of a level's numbers on records made by hand; times are in milliseconds here."""

from __future__ import annotations

import random

import msgspec
import pytest

from dsv4bench.load.summary import (
    Numbers,
    mean_in_flight,
    peak_in_flight,
    percentile,
    steady_window,
    summarise,
    tokens_within,
)
from dsv4bench.records.request import ErrorKind, RequestRecord, TokenSource
from dsv4bench.records.workload import Slo

MS = 1_000_000


def rec(send: float, chunks: list[float], n: int | None = None, **fields: object) -> RequestRecord:
    """A completed request: sent at `send` ms, chunks of text at `chunks` ms, `n` tokens by usage (one a chunk)."""
    at = [round(t * MS) for t in chunks]
    known: dict[str, object] = {
        "index": 0,
        "t_send_ns": round(send * MS),
        "t_headers_ns": at[0] if at else None,
        "t_first_chunk_ns": at[0] if at else None,
        "t_first_ns": at[0] if at else None,
        "t_first_content_ns": at[0] if at else None,
        "t_last_ns": at[-1] if at else None,
        "t_end_ns": at[-1] if at else round(send * MS),
        "chunk_ns": at,
        "output_tokens": len(chunks) if n is None else n,
        "prompt_tokens": 10,
        "token_source": TokenSource.USAGE,
        "finish_reason": "length",
        "status": 200,
        "reads": len(chunks),
    }
    return RequestRecord(**{**known, **fields})  # type: ignore[arg-type]


def failed(send: float, end: float, error: str = "http_500", **fields: object) -> RequestRecord:
    known: dict[str, object] = {"error": error, "output_tokens": None, "prompt_tokens": None}
    return rec(send, [], t_end_ns=round(end * MS), token_source=TokenSource.NONE, **{**known, **fields})


def one(r: RequestRecord, concurrency: int | None = 1, slo: Slo | None = None) -> Numbers:
    return summarise([r], concurrency, slo)


# --- percentiles and means ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "p", "rank"),
    [
        *[(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (4, 0.5, 2), (100, 0.5, 50), (5, 0.0, 1), (5, 1.0, 5)],
        *[(10, 0.9, 9), (11, 0.9, 10)],
        *[(1, 0.99, 1), (99, 0.99, 99), (100, 0.99, 99), (101, 0.99, 100), (200, 0.99, 198)],
    ],
)
def test_percentiles_are_values_by_nearest_rank(n: int, p: float, rank: int) -> None:
    values = [float(v) for v in range(n, 0, -1)]  # unsorted on purpose
    assert percentile(values, p) == rank


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.5) is None


def test_percentiles_of_a_level_are_over_completed_requests() -> None:
    records = [rec(0, [ttft, ttft + 10]) for ttft in range(1, 101)] + [failed(0, 1)] * 50
    n = summarise(records, 1)
    assert (n.ttft_p50_s, n.ttft_p90_s, n.ttft_p99_s) == (0.050, 0.090, 0.099)
    assert n.ttft_mean_s == pytest.approx(0.0505)
    assert (n.n_sent, n.n_ok, n.n_err) == (150, 100, 50)


# --- one request ---------------------------------------------------------------------------------------------


def test_ttft_is_the_first_text_and_ttfc_the_first_chunk() -> None:
    n = one(rec(5, [105, 125], t_first_chunk_ns=10 * MS, t_first_content_ns=125 * MS, t_end_ns=300 * MS))
    assert n.ttfc_p50_s == 0.005  # the role chunk
    assert n.ttft_p50_s == 0.100  # reasoning
    assert n.ttft_content_p50_s == 0.120
    assert n.e2e_p50_s == 0.120  # the last token, not the end of the stream
    assert n.e2e_stream_p50_s == 0.295


def test_tpot_with_one_token_a_chunk() -> None:
    n = one(rec(0, [100, 110, 120, 130], n_first=1))
    assert n.tpot_p50_s == n.tpot_mean_s == pytest.approx(0.010)  # 30 ms over 4 − 1 tokens
    assert n.tok_s_per_user == pytest.approx(100.0)
    assert n.ntpot_p50_s == pytest.approx(0.130 / 4)
    assert n.icl_p50_s == pytest.approx(0.010)


def test_tpot_when_the_first_chunk_holds_several_tokens() -> None:
    assert one(rec(0, [100, 112, 124], n=9, n_first=5)).tpot_p50_s == pytest.approx(0.006)  # 24 ms over 9 − 5


def test_tpot_when_the_first_chunks_tokens_are_not_known() -> None:
    """Three even chunks of nine tokens: three came first, six in 24 ms."""
    assert one(rec(0, [100, 112, 124], n=9)).tpot_p50_s == pytest.approx(0.004)


def test_one_token_has_no_tpot() -> None:
    n = one(rec(0, [100]))
    assert n.tpot_p50_s is None and n.tpot_mean_s is None and n.tok_s_per_user is None and n.icl_mean_s is None
    assert n.why_null["tpot_p50_s"] and n.ttft_p50_s == 0.100 and n.n_ok == 1


def test_tokens_that_arrived_at_one_instant_have_no_tpot() -> None:
    coalesced = one(rec(0, [100, 100, 100]))
    assert coalesced.tpot_p50_s is None and coalesced.icl_p50_s == 0.0
    assert one(rec(0, [100], n=8)).tpot_p50_s is None  # all in one chunk


def test_a_request_without_tpot_does_not_weigh_on_the_mean() -> None:
    n = summarise([rec(0, [100]), rec(0, [100, 120])], 1)
    assert n.tpot_mean_s == pytest.approx(0.020) and n.n_ok == 2


@pytest.mark.parametrize("per_chunk", [1, 2, 5])
def test_icl_over_tpot_is_tokens_per_chunk(per_chunk: int) -> None:
    chunks = [100 + 30 * i for i in range(6)]
    n = summarise([rec(0, chunks, n=6 * per_chunk), rec(3, [c + 7 for c in chunks], n=6 * per_chunk)], 2)
    assert n.icl_mean_s is not None and n.tpot_mean_s is not None
    assert n.tokens_per_chunk == per_chunk
    assert n.icl_mean_s / n.tpot_mean_s == pytest.approx(per_chunk)


# --- counts -------------------------------------------------------------------------------------------------


def test_counts_of_each_kind() -> None:
    records = [
        rec(0, [10, 20], n=2),
        failed(0, 5, "http_429"),
        failed(0, 5, "http_429", error_text="slow down"),
        failed(0, 5, ErrorKind.STALLED, error_text="no byte"),
        failed(0, 5, ErrorKind.CANCELLED, error_text="stopped"),
        rec(0, [10], retried=True),
    ]
    n = summarise(records, 1)
    assert (n.n_sent, n.n_ok, n.n_err, n.n_cancelled, n.n_retried) == (6, 2, 3, 1, 1)
    assert n.errors == {"http_429": 2, "stalled": 1}
    assert n.error_example == "slow down"


def test_a_cancelled_request_is_neither_completed_nor_failed() -> None:
    n = summarise([failed(0, 5, ErrorKind.CANCELLED, error_text="stopped")], 1)
    assert (n.n_ok, n.n_err, n.n_cancelled, n.errors, n.error_example) == (0, 0, 1, {}, None)


def test_token_totals_and_sources() -> None:
    usage, chunks = rec(0, [10, 20], n=5), rec(0, [10, 20], token_source=TokenSource.CHUNKS)
    assert summarise([usage, usage], 1).token_source is TokenSource.USAGE
    assert summarise([chunks], 1).token_source is TokenSource.CHUNKS
    mixed = summarise([usage, chunks], 1)
    assert mixed.token_source is TokenSource.MIXED and mixed.output_tokens == 7 and mixed.osl_mean == 3.5
    assert summarise([usage, failed(0, 1)], 1).token_source is TokenSource.USAGE  # a failed one has none
    assert summarise([failed(0, 1)], 1).token_source is TokenSource.NONE


def test_half_a_prompt_total_is_no_total() -> None:
    n = summarise([rec(0, [10, 20]), rec(0, [10, 20], prompt_tokens=None)], 1)
    assert n.prompt_tokens is None and n.total_tok_s is None
    assert n.isl_mean == 10.0 and n.output_tokens == 4


def test_short_outputs() -> None:
    def short(**fields: object) -> int:
        return one(rec(0, [10, 20], **fields)).n_short  # type: ignore[arg-type]

    assert short(requested_tokens=2) == 0
    assert short(requested_tokens=3) == 1
    assert short(requested_tokens=None) == 0  # nothing exact was asked for
    assert short(requested_tokens=3, token_source=TokenSource.CHUNKS) == 0  # chunks are a lower bound
    assert short(requested_tokens=3, token_source=TokenSource.CHUNKS, finish_reason="stop") == 1
    assert summarise([failed(0, 1, requested_tokens=3)], 1).n_short == 0


def test_merged_reads() -> None:
    assert one(rec(0, [10, 20], reads=8, merged_reads=2)).merged_reads_frac == 0.25
    assert one(rec(0, [10, 20], reads=0)).merged_reads_frac is None


# --- throughput ---------------------------------------------------------------------------------------------


def test_whole_run_throughput_is_from_first_send_to_last_token() -> None:
    records = [
        rec(100, [200, 300], t_end_ns=900 * MS),  # the end of the stream does not count
        rec(150, [400, 600]),
        failed(50, 5000),  # sent first; its late end does not count
    ]
    n = summarise(records, 1)
    assert n.duration_s == pytest.approx(0.550)
    assert n.output_tokens == 4 and n.output_tok_s == pytest.approx(4 / 0.550)
    assert n.prompt_tokens == 20 and n.total_tok_s == pytest.approx(24 / 0.550)
    assert n.request_s == pytest.approx(2 / 0.550)


def closed_loop() -> list[RequestRecord]:
    """Two slots, four requests: sends at 0, 10, 100 and 120 ms; each decodes from 20 ms after its send."""
    return [
        rec(0, [20, 40, 60, 80, 100]),
        rec(10, [30, 60, 90, 120]),
        rec(100, [120, 140, 160]),
        rec(120, [140, 170, 200]),
    ]


def test_the_steady_window_is_from_the_first_full_moment_to_the_last_send() -> None:
    records = closed_loop()
    assert steady_window(records, 1) == (0, 120 * MS)
    assert steady_window(records, 2) == (10 * MS, 120 * MS)
    assert steady_window(records, 3) is None  # never three in flight: an end frees its place before the next send
    assert steady_window(records[:2], 2) is None  # nothing was sent while full: no steady time
    assert steady_window([], 1) is None


def test_a_window_of_no_time_is_none() -> None:
    assert steady_window([rec(0, [5, 10]), rec(0.5, [5, 10])], 1) is None  # under a millisecond


def test_steady_throughput_counts_what_arrived_inside() -> None:
    n = summarise(closed_loop(), 2)
    assert n.steady_s == pytest.approx(0.110)
    assert n.steady_frac == pytest.approx(0.110 / 0.200)
    # (10, 120] ms: five, four (120 is inside), one of three, none
    assert n.output_tok_s_steady == pytest.approx(10 / 0.110)


def test_steady_throughput_without_a_steady_window() -> None:
    n = summarise(closed_loop()[:2], 2)
    assert n.output_tok_s_steady is None and n.steady_s is None and n.steady_frac is None
    assert "output_tok_s_steady" in n.why_null
    assert n.achieved_batch is not None  # over the whole run then


def in_step(rounds: int, c: int = 4, tokens: int = 5) -> list[RequestRecord]:
    """C requests start together; each prefill holds all up for 10 ms, then `tokens` steps of 20 ms. The last round
    drains: it is one request, at 10 ms a step, as nothing is sent after it."""
    records, t = [], 0.0
    for _ in range(rounds):
        for i in range(c):
            first = t + 10 * c
            records.append(rec(t + i * 0.001, [first + 20 * k for k in range(1, tokens + 1)], n=tokens))
        t += 10 * c + 20 * tokens
    records.append(rec(t, [t + 20 + 10 * k for k in range(1, tokens + 1)], n=tokens))
    return records


def test_full_load_has_no_edges() -> None:
    short, long = summarise(in_step(3), 4), summarise(in_step(50), 4)
    rate = 4 * 5 / 0.140  # a round: 40 ms of prefill, five steps of 20 ms
    for n in (short, long):
        assert n.full_load_tok_s == pytest.approx(rate, rel=1e-3)
        assert n.full_load_tpot_mean_s == pytest.approx(0.020)
    assert short.full_load_n == 8 and long.full_load_n == 196  # without the first four
    # the figures that it stands beside are bent by the drain in a short level, and agree in a long one
    assert short.tpot_mean_s == pytest.approx((12 * 0.020 + 0.010) / 13)
    assert short.output_tok_s == pytest.approx(65 / 0.490) and long.output_tok_s == pytest.approx(rate, rel=0.01)


def staggered(rounds: int, lengths: random.Random, sigma: float, c: int = 8) -> list[RequestRecord]:
    """C slots, each with one request after another: 20 ms of prefill while it is alone at it, then 10 ms a token.

    The first C are prefilled one after the other, so the k-th waits k·20 ms: what never happens again.
    """
    ends, records = [0.0] * c, []
    for n in range(c * rounds):
        slot = min(range(c), key=lambda i: ends[i])
        sent = ends[slot] if n >= c else n * 0.0001
        first = sent + 20 * (n + 1 if n < c else 1)
        tokens = max(2, round(lengths.lognormvariate(3.5, sigma)))
        records.append(rec(sent, [first + 10 * k for k in range(tokens)], n=tokens))
        ends[slot] = first + 10 * (tokens - 1)
    return records


@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.5])
def test_the_first_wave_of_prefills_is_not_full_load(sigma: float) -> None:
    true = summarise(staggered(400, random.Random(1), sigma), 8).full_load_tok_s
    assert true is not None
    found = [summarise(staggered(8, random.Random(seed), sigma), 8) for seed in range(40)]
    ours = [n.full_load_tok_s / true - 1 for n in found if n.full_load_tok_s is not None]
    theirs = [(n.output_tok_s or 0.0) / true - 1 for n in found]
    assert len(ours) == 40 and abs(sum(ours) / 40) < 0.02
    assert sum(theirs) / 40 < -0.04  # ramp and drain in it


@pytest.mark.parametrize("records", [in_step(1), in_step(2), closed_loop()[:2], []])
def test_without_two_rounds_under_full_load_there_is_no_figure(records: list[RequestRecord]) -> None:
    n = summarise(records, 4)
    assert n.full_load_tok_s is None and n.full_load_n is None and n.full_load_tpot_mean_s is None
    assert not records or "full_load_tok_s" in n.why_null


def test_where_lengths_vary_four_rounds_are_asked_for() -> None:
    def rounds(sigma: float) -> list[bool]:
        lengths = random.Random(7)
        return [summarise(staggered(r, lengths, sigma), 8).full_load_tok_s is not None for r in (5, 9)]

    assert rounds(0.1) == [True, True] and rounds(0.8) == [False, True]


def test_a_failure_under_full_load_leaves_no_figure() -> None:
    records = in_step(3)
    records[5] = failed(records[5].t_send_ns / MS, records[5].t_end_ns / MS)
    assert summarise(records, 4).full_load_tok_s is None


def test_tokens_inside_a_window_are_even_over_chunks_or_as_the_server_counted() -> None:
    even = rec(0, [10, 20, 30], n=9)
    assert tokens_within([even], (5 * MS, 20 * MS)) == 6.0
    counted = rec(0, [10, 20, 30], n=9, chunk_tokens=[1, 2, 6])
    assert tokens_within([counted], (5 * MS, 20 * MS)) == 3
    assert tokens_within([counted], (10 * MS, 30 * MS)) == 8  # the lower bound is outside, the upper inside
    assert tokens_within([even, counted], (0, 30 * MS)) == 18.0
    assert tokens_within([failed(0, 10)], (0, 30 * MS)) == 0.0


# --- the batch ----------------------------------------------------------------------------------------------


def test_achieved_batch_is_the_integral_of_requests_in_flight() -> None:
    # window (10, 120) ms: request 1 90 ms, request 2 110 ms, request 3 20 ms
    assert summarise(closed_loop(), 2).achieved_batch == pytest.approx((90 + 110 + 20) / 110)


def test_decode_batch_is_the_same_between_first_and_last_token() -> None:
    # from 20, 30 and 120 ms on: request 1 80 ms, request 2 90 ms of the window's 110
    assert summarise(closed_loop(), 2).decode_batch == pytest.approx((80 + 90) / 110)


def test_in_an_open_loop_the_batch_is_over_the_whole_run() -> None:
    n = summarise([rec(0, [50, 100]), rec(50, [100, 200])], None)
    assert n.achieved_batch == pytest.approx((100 + 150) / 200)
    assert n.steady_s is None and "open loop" in n.why_null["output_tok_s_steady"]


def test_a_failed_request_was_in_flight_too() -> None:
    n = summarise([rec(0, [50, 100]), failed(0, 50)], None)
    assert n.achieved_batch == pytest.approx(1.5)
    assert n.decode_batch == pytest.approx(0.5)


def test_mean_in_flight_clips_to_its_window() -> None:
    assert mean_in_flight([(0, 10), (5, 30), (40, 50)], (10, 20)) == 1.0
    assert mean_in_flight([], (10, 20)) == 0.0
    assert mean_in_flight([(0, 10)], None) is None
    assert mean_in_flight([(0, 10)], (5, 5)) is None


def test_peak_is_from_event_order_and_an_end_frees_its_place_first() -> None:
    assert peak_in_flight(closed_loop()) == 2  # sends at 100 and 120 ms are at the very ends of others
    assert peak_in_flight([rec(0, [10]), rec(5, [20]), rec(9, [15])]) == 3
    assert peak_in_flight([]) == 0


# --- SLO ----------------------------------------------------------------------------------------------------


def test_goodput_counts_requests_within_every_limit() -> None:
    records = [
        rec(0, [100, 110, 120]),
        rec(0, [101, 110, 120]),  # TTFT over
        rec(0, [100, 115, 130]),  # TPOT over
        failed(0, 10),
    ]
    n = summarise(records, 4, Slo(ttft_s=0.100, tpot_s=0.010))
    assert n.slo_frac == 0.25  # of all that were sent
    assert n.goodput_req_s == pytest.approx(1 / 0.130)
    assert summarise(records, 4, Slo(e2e_s=0.120)).slo_frac == 0.5
    assert summarise(records, 4).slo_frac is None and summarise(records, 4).goodput_req_s is None


def test_one_token_keeps_a_tpot_limit() -> None:
    assert one(rec(0, [100]), slo=Slo(tpot_s=0.001)).slo_frac == 1.0


# --- open loop ----------------------------------------------------------------------------------------------


def test_open_loop_latencies_start_at_the_schedule() -> None:
    late = rec(30, [100, 110], t_sched_ns=10 * MS)
    prompt = rec(50.5, [90, 110], t_sched_ns=50 * MS)
    n = summarise([late, prompt], None)
    assert n.ttft_p50_s == pytest.approx(0.040) and n.ttft_p99_s == pytest.approx(0.090)
    assert n.e2e_p99_s == pytest.approx(0.100)
    assert n.queue_client_p99_s == pytest.approx(0.020)
    assert n.n_late == 1  # half a millisecond is not late
    assert n.duration_s == pytest.approx(0.080)  # the run itself is from the first send


def test_a_closed_loop_has_no_schedule() -> None:
    n = one(rec(0, [10, 20]))
    assert n.queue_client_p99_s is None and n.n_late is None


# --- nothing to say -----------------------------------------------------------------------------------------

COUNTS = {"n_sent", "n_ok", "n_err", "n_cancelled", "n_retried", "n_short", "errors", "error_example"}
SPANS = {"duration_s", "steady_s", "steady_frac", "achieved_batch", "peak_in_flight"}  # the attempts' own


def test_all_failed_is_none_everywhere_and_never_zero() -> None:
    """Sends spread over time, so that there is a steady window: with no token there is still no throughput."""
    n = summarise([failed(10 * i, 10 * i + 15) for i in range(6)], 1)
    assert n.n_ok == 0 and n.n_err == 6 and n.steady_s is not None
    rest = msgspec.structs.asdict(n)
    for name in COUNTS | SPANS | {"token_source", "why_null"}:
        del rest[name]
    assert set(rest.values()) == {None}
    assert n.why_null["*"] == "no request completed"


def test_all_failed_keeps_no_limit() -> None:
    """With limits asked for, no good request is a measured zero."""
    n = summarise([failed(0, 10)], 1, Slo(ttft_s=1.0))
    assert n.slo_frac == 0.0 and n.goodput_req_s == 0.0


def test_no_requests_at_all() -> None:
    n = summarise([], 1)
    assert n.n_sent == n.peak_in_flight == 0 and n.duration_s is None and n.achieved_batch is None
    assert n.slo_frac is None and summarise([], 1, Slo(ttft_s=1.0)).slo_frac is None
