"""NVML's GPM on a fake binding: averages between readings, and each reason why there are none."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from fake_gpm import NVMLError, NVMLError_NoPermission, fake_pynvml, install

from dsv4bench.attribution.activity import activity
from dsv4bench.capture import gpm
from dsv4bench.capture.gpm import GpmCounters
from dsv4bench.capture.refusal import CountersRefused


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpm, "INTERVAL_S", 0.02)


def test_averages_cover_the_time_between_start_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_pynvml()
    install(monkeypatch, module)
    c = GpmCounters([0, 1], interval_s=0.05)
    for _ in range(2):
        c.start()
        since = time.time_ns()
        time.sleep(0.23)
        until = time.time_ns()
        samples = c.stop()
        assert c.ended is None and [one.device for one in samples] == [0, 1]
        a = activity(samples, (since, until), c.method)
        assert a is not None and a.n_dropped == 0 and a.method == "NVML GPM"
        assert a.interval_s == pytest.approx(0.05, rel=0.5)
        assert a.tensor_pipe is not None and a.tensor_pipe.metric == "ANY_TENSOR_UTIL"
        assert a.tensor_pipe.mean_frac == pytest.approx(0.105)  # GPU 0 has 10 %, GPU 1 has 11 %
        assert a.sm is not None and a.dram is not None
        assert (a.sm.mean_frac, a.dram.mean_frac) == (pytest.approx(0.5), pytest.approx(0.2))
        for one in samples:
            assert one.span_ns is not None and np.all(np.diff(one.time_ns) == one.span_ns[1:])
    c.close()
    assert len(module.freed) == 4  # two buffers a GPU


@pytest.mark.parametrize(
    ("made", "why", "said", "hint"),
    [
        ({"supported": False}, "unsupported", "GPU 1 has none", "Hopper"),
        ({"tensor_told": False}, "unsupported", "does not tell its tensor pipe", ""),
        ({"fails": {"nvmlGpmSampleGet": NVMLError_NoPermission("Not yours")}}, "permission", "Not yours", "NVreg"),
        ({"fails": {"nvmlGpmQueryDeviceSupport": NVMLError("Not Found")}}, "unsupported", "Not Found", "525"),
        ({"fails": {"nvmlInit": NVMLError("Driver Not Loaded")}}, "missing", "NVML does not answer", "driver"),
    ],
)  # fmt: skip
def test_a_refusal_has_its_reason(
    made: dict[str, Any], why: str, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, fake_pynvml(**made))
    with pytest.raises(CountersRefused) as e:
        GpmCounters([1])
    assert e.value.why == why and said in e.value.message and hint in e.value.hint


def test_an_old_binding_without_gpm_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_pynvml()
    del module.nvmlGpmQueryDeviceSupport
    install(monkeypatch, module)
    with pytest.raises(CountersRefused) as e:
        GpmCounters([0])
    assert e.value.why == "unsupported"


def test_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    with pytest.raises(CountersRefused, match="nvidia-ml-py is not installed"):
        GpmCounters([0])


def test_a_gpu_that_is_lost_leaves_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(fails_after=6))
    c = GpmCounters([0], interval_s=0.02)
    c.start()
    time.sleep(0.3)
    (samples,) = c.stop()
    assert c.ended is not None and "GPU is lost" in c.ended
    assert 1 <= len(samples.time_ns) <= 4
    c.close()


def test_a_gpu_that_is_lost_between_two_levels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(fails_after=2))
    c = GpmCounters([0], interval_s=0.02)
    with pytest.raises(CountersRefused):
        c.start()
    c.close()
