"""The parent of sampling processes: recordings whole and broken, refusals passed on, nothing left running."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fake_sampler import COMMAND

from dsv4bench.attribution.activity import activity
from dsv4bench.capture import pm
from dsv4bench.capture.pm import PmCounters, _environment
from dsv4bench.capture.pm_frames import Refused
from dsv4bench.capture.pm_library import Cupti
from dsv4bench.capture.refusal import CountersRefused

PATH = "/opt/right/lib/libcupti.so.13"


@pytest.fixture(autouse=True)
def cupti(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pm, "find_cupti", lambda: Cupti(PATH, "13.4.92", "13.4.0"))
    yield


def counters(kind: str, gpus: tuple[int, ...] = (0,), interval_us: float = 1000.0) -> PmCounters:
    return PmCounters(gpus, interval_us, command=[*COMMAND, kind])


def test_recordings_of_two_gpus_are_whole_and_can_be_repeated() -> None:
    c = counters("good", (0, 3))
    try:
        assert c.chip == "GH100" and len(c.metrics) == 4
        for _ in range(2):
            c.start()
            since = time.time_ns()
            time.sleep(0.4)
            until = time.time_ns()
            samples = c.stop()
            assert c.ended is None and c.said == [] and [one.device for one in samples] == [0, 3]
            a = activity(samples, (since, until), c.method)
            assert a is not None and a.n_dropped <= 2 and a.gpus == [0, 3]  # at most the first of each
            assert a.interval_s == pytest.approx(1e-3, rel=1e-6)
            assert a.tensor_pipe is not None and a.tensor_pipe.mean_frac == pytest.approx(0.04, rel=0.2)
            assert a.tensor_mma is not None and a.sm is not None and a.dram is not None
            assert (a.sm.mean_frac, a.dram.mean_frac) == (pytest.approx(0.02), pytest.approx(0.03))
            for one in samples:
                assert one.span_ns is not None and np.all(np.diff(one.time_ns) == one.span_ns[1:])
    finally:
        processes = [s._process for s in c._samplers]
        c.close()
    assert [p.poll() for p in processes] == [0, 0]


@pytest.mark.parametrize(
    ("kind", "why", "said", "hint"),
    [
        ("forbidden", "permission", "does not let this user", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("old-library", "library", "older libcupti", "nvidia-cuda-cupti"),
        ("crash", "failed", "ended (code 9): a library died", ""),
    ],
)
def test_what_the_process_says_is_passed_on(kind: str, why: str, said: str, hint: str) -> None:
    with pytest.raises(CountersRefused) as e:
        counters(kind, (2,))
    assert e.value.why == why and said in e.value.message and hint in e.value.hint
    assert e.value.message.startswith("CUPTI PM sampling: GPU 2: ")


def test_a_process_that_dies_leaves_what_it_had_sent() -> None:
    c = counters("dies-while-recording")
    try:
        c.start()
        time.sleep(2.2)
        (samples,) = c.stop()
        assert c.ended is not None and "GPU 0 ended early" in c.ended and "code 7" in c.ended
        assert len(samples.time_ns) > 100
        with pytest.raises(CountersRefused):
            c.start()
        assert len(c.stop()[0].time_ns) == 0  # of the recording that never was
    finally:
        c.close()


def test_a_silent_process_is_given_up_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm, "ANSWER_S", 0.3)
    monkeypatch.setattr(pm, "LAST_S", 0.2)
    made = []
    real = pm._Sampler.__init__

    def remember(self: pm._Sampler, *args: object) -> None:
        made.append(self)
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(pm._Sampler, "__init__", remember)
    with pytest.raises(CountersRefused, match="no answer"):
        counters("mute")
    assert made[0]._process.poll() is not None


def test_lost_and_shifted_samples_are_said() -> None:
    c = counters("overflowing")
    try:
        c.start()
        time.sleep(0.9)
        c.stop()
        assert any("faster than they were decoded" in said for said in c.said)
        assert c.ends[0].n_overflows >= 1
    finally:
        c.close()
    c = counters("other-clock")
    try:
        c.start()
        since = time.time_ns()
        time.sleep(0.4)
        (samples,) = c.stop()
        assert any("3600.0 s off this host's clock and were moved" in said for said in c.said)
        assert abs(int(samples.time_ns[-1]) - time.time_ns()) < 1e9 and int(samples.time_ns[-1]) > since
    finally:
        c.close()


def test_samples_that_keep_overflowing_end_the_recording() -> None:
    c = counters("drowning")
    try:
        c.start()
        time.sleep(1.8)
        c.stop()
        assert c.ended is not None and "keeps overflowing" in c.ended
    finally:
        c.close()


def test_no_library_is_told_before_any_process(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Refused(
        why="library", message="libcupti 13.0.85 (x) is older than cupti-python 13.4.0 needs", hint="pip"
    )
    monkeypatch.setattr(pm, "find_cupti", lambda: refused)
    with pytest.raises(CountersRefused) as e:
        counters("good")
    assert e.value.why == "library" and "older than cupti-python" in e.value.message and e.value.hint == "pip"


def test_the_process_sees_all_gpus_in_nvmls_order_and_no_other_profiler() -> None:
    env = _environment(
        {"CUDA_VISIBLE_DEVICES": "1", "CUDA_INJECTION64_PATH": "/x", "LD_LIBRARY_PATH": "/cuda/lib64", "HOME": "/h"},
        PATH,
    )
    assert env == {
        "HOME": "/h",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "LD_LIBRARY_PATH": f"/opt/right/lib{os.pathsep}/cuda/lib64",
    }
    assert _environment({}, PATH)["LD_LIBRARY_PATH"] == "/opt/right/lib"


def test_a_process_whose_parent_is_gone_stops_recording_and_ends() -> None:
    c = counters("good")
    process = c._samplers[0]._process
    c.start()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(5) == 0
    c.close()
