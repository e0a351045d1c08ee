"""Each stamp of validity at its limit and on either side of it; which wins; what is only noted."""

from __future__ import annotations

import msgspec
import pytest

from dsv4bench.load.checks import Evidence, check, notes
from dsv4bench.load.summary import Numbers, summarise
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import RequestRecord, TokenSource

SOUND = summarise(
    [
        RequestRecord(
            index=0,
            t_send_ns=0,
            t_first_ns=10,
            t_last_ns=20,
            t_end_ns=20,
            chunk_ns=[10, 20],
            output_tokens=2,
            prompt_tokens=1000,
            token_source=TokenSource.USAGE,
        )
    ],
    1,
)
EVIDENCE = Evidence(
    concurrency=10, isl=1000, osl=256, exact_isl=True, lag_p99_s=0.0, kernel_stamps=True, worker_cpu_frac=0.1
)


def numbers(**fields: object) -> Numbers:
    known: dict[str, object] = {
        "n_ok": 100,
        "n_sent": 100,
        "n_short": 0,
        "isl_mean": 1000.0,
        "steady_s": 5.0,
        "achieved_batch": 10.0,
        "tpot_p50_s": 0.010,
        "tpot_mean_s": 0.010,
        "output_tokens": 25600,
    }
    return msgspec.structs.replace(SOUND, **{**known, **fields})


def evidence(**fields: object) -> Evidence:
    return msgspec.structs.replace(EVIDENCE, **fields)


def stamp(n: Numbers | None = None, **fields: object) -> Invalid | None:
    return check(n or numbers(), evidence(**fields))[0]


def test_a_sound_level_has_no_stamp_and_no_notes() -> None:
    assert check(numbers(), evidence()) == (None, None)
    assert notes(numbers(), evidence()) == []


@pytest.mark.parametrize(
    ("tpot_s", "lag_s", "saturated"),
    [
        (0.010, 0.0099, False),
        (0.010, 0.0100, False),  # the floor of 10 ms
        (0.010, 0.0101, True),
        (0.100, 0.0499, False),
        (0.100, 0.0500, False),  # half a TPOT
        (0.100, 0.0501, True),
        (None, 0.0101, True),
        (0.010, None, False),
    ],
)
def test_client_lag(tpot_s: float | None, lag_s: float | None, saturated: bool) -> None:
    got, why = check(numbers(tpot_p50_s=tpot_s), evidence(lag_p99_s=lag_s))
    assert got == (Invalid.CLIENT_SATURATED if saturated else None)
    if saturated and lag_s is not None:
        assert why is not None and f"{1e3 * lag_s:.1f} ms" in why


@pytest.mark.parametrize(("cpu", "saturated"), [(0.89, False), (0.90, False), (0.901, True), (None, False)])
def test_client_cpu(cpu: float | None, saturated: bool) -> None:
    got, why = check(numbers(), evidence(worker_cpu_frac=cpu))
    assert got == (Invalid.CLIENT_SATURATED if saturated else None)
    assert why == ("a load worker used 90% of its core" if saturated else None)


@pytest.mark.parametrize(("batch", "held"), [(9.1, True), (9.0, True), (8.99, False), (None, True)])
def test_concurrency_held(batch: float | None, held: bool) -> None:
    assert stamp(numbers(achieved_batch=batch)) == (None if held else Invalid.CONCURRENCY_NOT_HELD)


def test_concurrency_is_judged_in_a_steady_window_only() -> None:
    assert stamp(numbers(achieved_batch=2.0, steady_s=None)) is None  # one wave: ramp and drain
    assert stamp(numbers(achieved_batch=2.0), concurrency=None) is None  # an open loop promises none


@pytest.mark.parametrize(("n_short", "short"), [(0, False), (1, False), (2, True)])
def test_short_outputs(n_short: int, short: bool) -> None:
    got, why = check(numbers(n_short=n_short), evidence())
    assert got == (Invalid.SHORT_OUTPUT if short else None)
    assert (why is not None and "2 of 100 outputs are shorter than OSL 256" in why) == short


@pytest.mark.parametrize(
    ("hits", "share", "contaminated"),
    [
        (0.09, 0.0, False),
        (0.10, 0.0, False),
        (0.101, 0.0, True),
        (0.59, 0.5, False),  # half of each prompt is shared on purpose
        (0.60, 0.5, False),
        (0.61, 0.5, True),
        (None, 0.0, False),
    ],
)
def test_prefix_hits(hits: float | None, share: float, contaminated: bool) -> None:
    got = stamp(prefix_hit_frac=hits, prefix_share=share)
    assert got == (Invalid.CACHE_CONTAMINATED if contaminated else None)


@pytest.mark.parametrize(
    ("isl", "mean", "exact", "off"),
    [
        (1000, 1020.0, True, False),
        (1000, 1020.1, True, True),
        (1000, 980.0, True, False),
        (1000, 979.9, True, True),
        (1000, 5000.0, True, True),
        (1000, 5000.0, False, False),  # texts: the length is only aimed at
        (1000, None, True, False),
        (16, 18.0, True, False),  # two tokens are a template's, not an error
        (16, 18.5, True, True),
    ],
)
def test_prompt_length(isl: int, mean: float | None, exact: bool, off: bool) -> None:
    got, why = check(numbers(isl_mean=mean), evidence(isl=isl, exact_isl=exact))
    assert got == (Invalid.PROMPT_LENGTH if off else None)
    assert (why is not None and f"ISL {isl}" in why) == off


def test_nothing_completed() -> None:
    assert stamp(numbers(n_ok=0)) is Invalid.ALL_FAILED
    assert stamp(numbers(n_ok=1)) is None


def test_interrupted_and_a_server_that_went_away() -> None:
    assert check(numbers(), evidence(interrupted=True)) == (Invalid.INTERRUPTED, "stopped before its end")
    assert check(numbers(), evidence(server_gone=True)) == (Invalid.INTERRUPTED, "the server went away")


def test_the_most_damaging_reason_comes_first() -> None:
    """Everything is wrong; each line takes the first reason away."""
    n = numbers(n_ok=0, achieved_batch=1.0, n_short=50, isl_mean=5000.0)
    e = evidence(interrupted=True, lag_p99_s=1.0, prefix_hit_frac=0.9)
    found = [check(n, e)[0]]
    e = msgspec.structs.replace(e, interrupted=False)
    found.append(check(n, e)[0])
    n = msgspec.structs.replace(n, n_ok=100)
    found.append(check(n, e)[0])
    e = msgspec.structs.replace(e, lag_p99_s=0.0)
    found.append(check(n, e)[0])
    n = msgspec.structs.replace(n, achieved_batch=10.0)
    found.append(check(n, e)[0])
    n = msgspec.structs.replace(n, n_short=0)
    found.append(check(n, e)[0])
    e = msgspec.structs.replace(e, prefix_hit_frac=0.0)
    found.append(check(n, e)[0])
    assert found == [
        Invalid.INTERRUPTED,
        Invalid.ALL_FAILED,
        Invalid.CLIENT_SATURATED,
        Invalid.CONCURRENCY_NOT_HELD,
        Invalid.SHORT_OUTPUT,
        Invalid.CACHE_CONTAMINATED,
        Invalid.PROMPT_LENGTH,
    ]


@pytest.mark.parametrize(
    ("n", "e", "said"),
    [
        ({"token_source": TokenSource.CHUNKS}, {}, "tokens counted by chunks: a lower bound"),
        ({"token_source": TokenSource.MIXED}, {}, "some requests without usage: their tokens are a lower bound"),
        ({"n_retried": 3}, {}, "3 resent after a stale connection"),
        ({"n_short": 1}, {}, "1 short outputs"),
        ({"n_short": 2}, {}, None),  # then it is the stamp's to say
        ({}, {"kernel_stamps": False}, "user stamps: the client's lag is inside every time"),
        ({"n_late": 4}, {}, "4 sent late"),
        ({"n_late": 0}, {}, None),
        ({"merged_reads_frac": 0.01}, {}, None),
        ({"merged_reads_frac": 0.25}, {}, "25% of reads held more than one chunk"),
        ({}, {"server_running_mean": 8.0}, None),
        ({}, {"server_running_mean": 7.9}, "server ran 7.9 of 10 at once"),
        ({"tpot_mean_s": 0.0110}, {"server_tpot_mean_s": 0.010}, None),
        ({"tpot_mean_s": 0.0112}, {"server_tpot_mean_s": 0.010}, "TPOT +12% against the server's own histogram"),
        ({"tpot_mean_s": 0.0080}, {"server_tpot_mean_s": 0.010}, "TPOT -20% against the server's own histogram"),
        ({}, {"server_output_tokens": 25600.0}, None),
        ({}, {"server_output_tokens": 25610.0}, "server counted +10 output tokens against usage"),
        ({"n_err": 1}, {"server_output_tokens": 25610.0}, None),  # a failed request's tokens were counted there
    ],
)  # fmt: skip
def test_notes(n: dict[str, object], e: dict[str, object], said: str | None) -> None:
    assert notes(numbers(**n), evidence(**e)) == ([said] if said else [])


@pytest.mark.parametrize(
    ("server", "fields", "foreign"),
    [
        (25600.0, {}, False),
        (25600.0 * 1.02, {}, False),
        (25600.0 * 1.021, {}, True),
        (51200.0, {}, True),
        (51200.0, {"n_err": 1}, False),  # a failed request of ours was generated for, too
        (51200.0, {"n_cancelled": 1}, False),
        (51200.0, {"token_source": TokenSource.CHUNKS}, False),
        (None, {}, False),
    ],
)
def test_tokens_for_someone_else(server: float | None, fields: dict[str, object], foreign: bool) -> None:
    found, why = check(numbers(**fields), evidence(server_output_tokens=server))
    assert (found is Invalid.OTHER_TRAFFIC) is foreign
    assert not foreign or why == f"the server generated {server:.0f} tokens, 25600 of them for this level"
