"""A held window's arithmetic: how many tokens to ask for, TPOT inside it, tokens a step, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from dsv4bench.load.hold import HoldView
from dsv4bench.load.messages import StreamCount
from dsv4bench.load.pool import Outcome
from dsv4bench.records.breakdown import Steps
from dsv4bench.records.capture import Captured, Moment
from dsv4bench.records.request import RequestRecord, TokenSource
from dsv4bench.records.server import Gauges
from dsv4bench.runs.live_notes import elsewhere, note_line, note_of, reference_of, tokens_a_step
from dsv4bench.runs.profile_captures import beside_trace
from dsv4bench.runs.steady import Steady, Window, _window, osl_for

MS = 1_000_000


def steady(**fields: Any) -> Steady:
    given: dict[str, Any] = {"sender": None, "take": None, "isl": 1024, "steps": 30, "timeout_s": 5.0}
    return Steady(**{**given, "gauges": lambda: None, "tpot_s": 0.01, "tokens_a_step": 1.0, **fields})


def record(chunks_ms: list[float], tokens: list[int] | None = None, index: int = 0) -> RequestRecord:
    return RequestRecord(
        index=index,
        t_send_ns=0,
        t_end_ns=10**12,
        chunk_ns=[round(t * MS) for t in chunks_ms],
        chunk_tokens=tokens,
        token_source=TokenSource.USAGE if tokens else TokenSource.CHUNKS,
        error="cancelled",
    )


def window(records: list[RequestRecord], low_ms: float, high_ms: float, s: Steady, recorded: bool = True) -> Window:
    outcome = Outcome(
        records=records,
        start_ns=0,
        start_epoch_s=0.0,
        timestamps="kernel",
        lag_ns=None,
        reads=0,
        worker_cpu_frac=0.0,
        cpu_s=0.0,
        parse_cpu_s=0.0,
        wall_s=0.0,
        n_workers=1,
        unsent=0,
        reuse=True,
        interrupted=False,
        server_gone=None,
        notes=[],
    )
    ends = [
        HoldView(at_ns=round(t * MS), streams={0: StreamCount(0, n, n)}, done=0, failed=0)
        for t, n in ((low_ms, 1), (high_ms, 31))
    ]
    captured = Captured(method="torch", opened=Moment(0, 0), closed=Moment(10**9, 10**9)) if recorded else None
    return _window(s, ends[0], ends[1], 1.0, captured, outcome, [])


def test_enough_tokens_that_no_request_ends_inside() -> None:
    osl, why = osl_for(steady(), 16)
    filling = 16 * 2  # each prompt is two chunks, between which others decode
    assert osl > filling + 2 * 30 + 5.0 / 0.01 and why == ""
    assert osl_for(steady(tokens_a_step=3.0), 16)[0] > 2 * osl - 5.0 / 0.01 - 100
    assert osl_for(steady(max_model_len=1200), 16) == (175, ": the model's length leaves 175 output tokens")
    assert osl_for(steady(tpot_s=1e-9), 1)[0] <= 16_384


def test_tpot_is_of_the_tokens_inside_the_window() -> None:
    quick = record([i * 10.0 for i in range(100)])
    slow = record([i * 30.0 for i in range(40)], index=1)
    inside = window([quick, slow], 99, 401, steady(), recorded=False)
    assert inside.tpot_s == pytest.approx((10 + 30) / 2 / 1e3) and inside.tokens_per_chunk == 1.0
    merged = record([100.0, 130.0, 160.0], [3, 3, 3])  # three tokens a chunk
    assert window([merged], 0, 400, steady()).tpot_s == pytest.approx(0.010)
    assert window([record([100.0])], 0, 400, steady()).tpot_s is None


def test_a_recorded_window_counts_no_more_than_its_steps() -> None:
    """A recorder that stopped by itself stops the engine while it writes: that is no decode step."""
    chunks = [i * 10.0 for i in range(31)] + [5000.0 + i * 10 for i in range(5)]
    found = window([record(chunks)], -1, 6000, steady())
    assert found.tpot_s == pytest.approx(0.010) and found.notes == []
    early = [i * 10.0 for i in range(20)] + [5000.0 + i * 10 for i in range(15)]
    paused = window([record(early)], -1, 6000, steady())
    assert paused.tpot_s == pytest.approx(0.010)
    assert paused.notes == ["a pause of 4.8 s inside the window (the recorder's own) is not in TPOT"]
    assert (window([record(early)], -1, 6000, steady(), recorded=False).tpot_s or 0) > 0.1  # nothing excuses it there


def test_a_late_chunk_of_many_tokens_is_no_pause() -> None:
    late = record([0.0, 10.0, 20.0, 1020.0, 1030.0], [1, 1, 1, 100, 1])
    found = window([late], -1, 2000, steady(steps=200))
    assert found.tpot_s == pytest.approx(1.030 / 103) and found.notes == []


def test_the_capture_carries_its_steps() -> None:
    found = window([record([i * 10.0 for i in range(100)])], 0, 400, steady())
    assert found.captured is not None
    assert (found.captured.steps_asked, found.captured.steps_seen, found.steps_seen) == (30, 30, 30)


def drafts(drafted: float, accepted: float) -> dict[str, float]:
    return {"spec_drafts_total": drafted, "spec_accepted_total": accepted}


@pytest.mark.parametrize(
    ("before", "after", "per_chunk", "told"),
    [
        (
            {"spec_drafts_total": 0, "spec_accepted_total": 0},
            {"spec_drafts_total": 100, "spec_accepted_total": 150},
            1,
            2.5,
        ),
        ({}, {"spec_accept_length": 1.8}, 1, 1.8),
        ({}, {"output_tokens_total": 5}, 1.9, 1.0),  # metrics without drafts: chunks were joined
        (None, None, 1.0, 1.0),
        (None, None, 1.9, None),  # joined chunks or speculation: nothing tells
    ],
)
def test_tokens_a_step(
    before: dict[str, float] | None, after: dict[str, float] | None, per_chunk: float, told: float | None
) -> None:
    scrapes = [None if g is None else Gauges(t_s=0.0, **g) for g in (before, after)]
    seen = window([record([0.0, 10.0])], -1, 100, steady())._replace(tokens_per_chunk=per_chunk)
    assert tokens_a_step(scrapes[0], scrapes[1], seen) == told


def test_the_note_of_a_capture_and_its_step_beside_the_trace() -> None:
    plain = window([record([i * 10.0 for i in range(100)])], 0, 400, steady(), recorded=False)
    recorded = window([record([i * 12.0 for i in range(100)])], 0, 400, steady())
    reference = reference_of(16, plain, 2.0)
    assert reference.output_tok_s == pytest.approx(1600)
    given: dict[str, Any] = {"label": "c16", "role": "decode", "concurrency": 16, "isl": 1024, "files": ["/x/a.gz"]}
    note = note_of(window=recorded, reference=reference, **given)
    assert note.inflation_ratio == pytest.approx(1.2) and note.files == ["a.gz"] and note.role is None
    assert note_line(note).startswith(
        "c16: 30 decode steps in 1.00 s; TPOT 12.00 ms recorded by torch, 10.00 ms not: x1.20"
    )
    assert "--gpu-only" in note_line(note)
    told = beside_trace(note, Steps(count=20, method="annotation", median_ns=21 * MS))
    assert told.trace_step_s == pytest.approx(0.021) and told.step_difference_frac == pytest.approx(0.05)
    unknown = note_of(window=recorded, reference=reference_of(16, plain, None), **given)
    assert "give --accept-length" in unknown.notes[0]
    assert beside_trace(unknown, Steps(count=20, method="x", median_ns=MS)).step_difference_frac is None


def test_traces_on_another_host_are_named_with_what_to_do() -> None:
    captured = Captured(method="torch", opened=Moment(0, 0), closed=Moment(0, 0), server_path="/tmp/x")
    note = note_of(
        label="c8",
        role="decode",
        concurrency=8,
        isl=1,
        window=window([record([i * 12.0 for i in range(100)])], 0, 400, steady()),
        reference=reference_of(8, window([record([i * 10.0 for i in range(99)])], 0, 400, steady()), 1.0),
        files=[],
    )
    e = elsewhere([(captured, note)], "far")
    assert "c8 in /tmp/x (on far" in e.message
    assert "dsv4bench profile --trace c8=FILE --inflation 1.20" in e.hint
