"""`--with pm` as a capture window: opened once, closed or aborted, nothing left recording."""

from __future__ import annotations

import numpy as np
import pytest

from dsv4bench.capture import CaptureWindow
from dsv4bench.capture.counters import Opened
from dsv4bench.capture.pm_window import PmWindow
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.errors import Unanswerable
from dsv4bench.records.trace import DeviceSamples


class Counters:
    """Says what was asked of it, in order."""

    def __init__(self, n: int = 5, refuses: bool = False) -> None:
        self.asked: list[str] = []
        self.method, self.metrics, self.gpus, self.chip = "CUPTI PM sampling", ["sm__pipe_tensor"], [0], "GH100"
        self.ended: str | None = None
        self.said: list[str] = ["GPU 0: late"]
        self.n, self.refuses = n, refuses

    def start(self) -> None:
        self.asked.append("start")
        if self.refuses:
            raise CountersRefused(self.method, "failed", "it is gone")

    def stop(self) -> list[DeviceSamples]:
        self.asked.append("stop")
        return [DeviceSamples("", 0, np.arange(self.n), {"sm__pipe_tensor": np.zeros(self.n)})]

    def close(self) -> None:
        self.asked.append("close")


def window(counters: Counters) -> PmWindow:
    return PmWindow(Opened(counters, (9, 0), ["all of them"]))


def test_a_window_brings_samples_and_says_how() -> None:
    counters = Counters()
    w: CaptureWindow = window(counters)
    w.open()
    got = w.close()
    assert got.method == w.method == "pm" and len(got.samples[0].time_ns) == 5 and got.files == []
    assert 0 <= got.seconds < 5 and got.opened.epoch_ns <= got.closed.epoch_ns
    assert got.notes == ["CUPTI PM sampling: sm__pipe_tensor", "all of them", "GPU 0: late"]
    assert counters.asked == ["start", "stop"]  # they stay open for the next one


def test_a_window_that_is_cut_short_is_stopped_once() -> None:
    counters = Counters()
    w = window(counters)
    assert w.abort_s == 0
    w.open()
    assert w.abort_s > 0 and w.abort() == "sampling was stopped" and w.abort_s == 0
    w.abort()
    assert counters.asked == ["start", "stop"]


def test_nothing_sampled_is_no_capture() -> None:
    counters = Counters(n=0)
    counters.ended = "sampling of GPU 0 ended early"
    w = window(counters)
    w.open()
    with pytest.raises(Unanswerable, match="no sample: sampling of GPU 0 ended early"):
        w.close()
    w.abort()
    assert counters.asked == ["start", "stop"]


def test_a_recorder_that_does_not_start_is_stopped_by_abort() -> None:
    counters = Counters(refuses=True)
    w = window(counters)
    with pytest.raises(CountersRefused):
        w.open()
    w.abort()
    assert counters.asked == ["start", "stop"]


def test_before_open_there_is_nothing_to_end() -> None:
    w = window(Counters())
    assert w.abort() == "no recording had begun"
    with pytest.raises(Unanswerable):
        w.close()
