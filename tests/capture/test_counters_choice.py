"""Which way of sampling is taken, on which GPUs, and what is said of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fake_gpm import fake_pynvml, install

from dsv4bench.capture import counters, gpm
from dsv4bench.capture.counters import open_counters
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.errors import UsageError


class Pm:
    method = "CUPTI PM sampling"

    def __init__(self, gpus: Sequence[int], interval_us: float) -> None:
        self.gpus, self.interval_us = list(gpus), interval_us


def refusing(*_: Any) -> Pm:
    raise CountersRefused("CUPTI PM sampling", "permission", "GPU 0: the driver does not let this user", "be root")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpm, "INTERVAL_S", 0.01)
    monkeypatch.setattr(counters, "PmCounters", Pm)


def test_gpus_with_a_process_are_those_that_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(processes={2: 1, 3: 2}, count=4))
    opened = open_counters()
    assert opened.counters.gpus == [2, 3] and opened.compute == (9, 0) and opened.notes == []


def test_all_of_them_where_nvml_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(count=2))
    opened = open_counters()
    assert opened.counters.gpus == [0, 1] and "all of them were sampled" in opened.notes[0]
    install(monkeypatch, fake_pynvml(count=1))
    assert open_counters().notes == []


def test_named_gpus_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(processes={0: 1}, count=2))
    assert open_counters([1, 1]).counters.gpus == [1]
    with pytest.raises(UsageError, match="there is no GPU 7 here") as refused:
        open_counters([1, 7])
    assert refused.value.hint == "nvidia-smi's numbers: 0, 1"
    with pytest.raises(UsageError, match="no GPU was named"):
        open_counters([])


def test_gpm_takes_over_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(processes={0: 1}))
    monkeypatch.setattr(counters, "PmCounters", refusing)
    opened = open_counters()
    assert opened.counters.method == "NVML GPM"
    (note,) = opened.notes
    assert "the driver does not let this user (be root): sampled by NVML GPM instead" in note
    opened.counters.close()


def test_no_way_gives_both_reasons_the_first_remedy_and_the_third_way(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_pynvml(processes={0: 1}, supported=False))
    monkeypatch.setattr(counters, "PmCounters", refusing)
    with pytest.raises(UsageError) as e:
        open_counters()
    assert "does not let this user" in e.value.message and "NVML GPM: GPU 0 has none" in e.value.message
    assert e.value.hint.startswith("be root; ") and "--gpu-metrics-devices" in e.value.hint


def test_without_nvml_there_is_no_gpu_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    with pytest.raises(UsageError, match="the NVML binding is not installed"):
        open_counters()
    install(monkeypatch, fake_pynvml(count=0))
    with pytest.raises(UsageError, match="NVML sees no GPU"):
        open_counters()


def test_too_short_an_interval_is_refused() -> None:
    with pytest.raises(UsageError, match="10 µs between samples"):
        open_counters([0], 10.0)
