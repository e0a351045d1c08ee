"""Histograms and thinned telemetry."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import make_cell, make_request, make_sample

from dsv4bench.records.codec import decode, encode
from dsv4bench.records.series import N_BINS, Series, edges_s
from dsv4bench.store.series import MAX_POINTS, cell_series, histogram, thin


def test_edges_span_the_scale() -> None:
    edges = edges_s()
    assert len(edges) == N_BINS + 1
    assert edges[0] == pytest.approx(1e-4) and edges[-1] == pytest.approx(1e3)
    assert edges[20] == pytest.approx(1e-3)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e5, allow_nan=False))))
def test_every_value_is_counted_once_and_in_its_bin(values: list[float | None]) -> None:
    edges, h = edges_s(), histogram(values)
    known = [v for v in values if v is not None]
    assert h.n == len(known) == h.below + h.above + sum(h.counts)
    assert h.below == sum(v < edges[0] for v in known) and h.above == sum(v >= edges[-1] for v in known)
    for i, count in enumerate(h.counts, start=h.first_bin):
        assert count == sum(edges[i] <= v < edges[i + 1] for v in known)
    assert not h.counts or (h.counts[0] and h.counts[-1])


def test_a_cell_from_its_requests() -> None:
    requests = [
        make_request(0, ttft_s=0.1, tpot_s=0.02, n=6),
        make_request(1, ttft_s=0.3, tpot_s=0.02, n=1),
        make_request(2, error="http_500"),
    ]
    s = cell_series(make_cell(), requests, [])
    assert (s.n_requests, s.ttft.n, s.tpot.n, s.icl.n, s.e2e.n) == (3, 2, 1, 5, 2)
    edges = edges_s()
    assert edges[s.icl.first_bin] <= 0.02 < edges[s.icl.first_bin + 1] and s.icl.counts == [5]
    assert s.telemetry is None


@pytest.mark.parametrize("n", [1, 199, 200, 201, 1234])
def test_telemetry_is_thinned_to_means_in_time_order(n: int) -> None:
    samples = [make_sample(float(i), total=50.0 * i, running=float(i), kv_usage_frac=i / n) for i in range(n)]
    t = thin(list(reversed(samples)))
    most = min(n, MAX_POINTS)  # a time on a border may round into the point before
    assert most - 5 <= len(t.t_s) <= most and t.n_samples == n
    assert t.t_s == sorted(t.t_s) and t.t_s == pytest.approx(t.running)
    assert t.kv_usage_frac[-1] == (n - 1) / n  # the maximum, not a mean
    assert t.output_tok_s[0] is None and all(r == pytest.approx(50.0) for r in t.output_tok_s[1:])
    assert t.waiting == [None] * len(t.t_s)
    assert len(t.gpus) == 1 and t.gpus[0].power_w[0] == pytest.approx(100 + t.t_s[0])
    assert t.gpus[0].throttle == (["sw_power_cap"] if n > 6 else [])


def test_gauges_and_gpus_read_by_two_threads_share_their_points() -> None:
    both = [make_sample(float(i), running=1.0) for i in range(60)]
    gauges = [msgspec.structs.replace(s, gpus=[]) for s in both]
    gpus = [msgspec.structs.replace(s, gauges=None, t_s=s.t_s + 0.4) for s in both]
    t = thin(gauges + gpus)
    assert 55 <= len(t.t_s) <= 60 and t.n_samples == 120
    assert None not in t.running[1:-1] and None not in t.gpus[0].power_w[1:-1]


def test_samples_of_one_instant_are_one_point() -> None:
    assert thin([make_sample(1.0), make_sample(1.0)]).t_s == [0.0]


def test_a_restarted_counter_gives_no_rate() -> None:
    t = thin([make_sample(0, total=100), make_sample(1, total=5), make_sample(2, total=25)])
    assert t.output_tok_s == [None, None, 20]


def test_samples_of_other_cells_and_of_an_attempt_given_up_are_left_out() -> None:
    samples = [make_sample(-60), make_sample(0, cell="other"), make_sample(1), make_sample(2)]
    t = cell_series(make_cell(), [], samples).telemetry
    assert t is not None and t.n_samples == 2


def test_the_document_survives_the_codec() -> None:
    cell = cell_series(make_cell(), [make_request()], [make_sample(0.5, running=1.5)])
    back = decode(encode(Series(cells=[cell])), Series, "x")
    assert back.schema == "dsv4bench.series/1" and back.cells[0].ttft == cell.ttft
    assert back.cells[0].telemetry is not None
    assert math.isclose(back.cells[0].telemetry.start_s, 1796083200.5)
