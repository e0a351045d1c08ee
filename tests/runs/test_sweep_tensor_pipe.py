"""`sweep --tensor-pipe`: a cell's shares over its steady window, their series on disk, and what a refusal costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweeping import sweep

from dsv4bench.capture.counters import Opened
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.errors import UsageError
from dsv4bench.load.paced import PacedServer
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.runs import device_counters

T = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
S = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
STEP_NS = 1_000_000


class Counters:
    """A GPU whose tensor pipe is 25 % busy; its samples cover exactly the time between start and stop."""

    method, chip = "CUPTI PM sampling", "GH100"

    def __init__(self, refuses_level: int = -1, ends_level: int = -1) -> None:
        self.gpus, self.metrics = [0], [T, S]
        self.ended: str | None = None
        self.said: list[str] = []
        self.levels, self.closed = 0, 0
        self.refuses_level, self.ends_level = refuses_level, ends_level
        self.owner = threading.get_ident()

    def start(self) -> None:
        self.levels += 1
        self.ended = None
        if self.levels - 1 == self.refuses_level:
            raise CountersRefused(self.method, "failed", "the sampling process ended")
        self.since = time.time_ns()

    def stop(self) -> list[DeviceSamples]:
        if self.levels - 1 == self.ends_level:
            self.ended = "sampling of GPU 0 ended early"
            return [
                DeviceSamples(
                    "", 0, np.zeros(0, np.int64), {T: np.zeros(0), S: np.zeros(0)}, span_ns=np.zeros(0, np.int64)
                )
            ]
        ends = np.arange(self.since + STEP_NS, time.time_ns() + STEP_NS, STEP_NS, dtype=np.int64)
        n = len(ends)
        columns = {T: np.full(n, 25.0), S: np.full(n, 60.0)}
        return [DeviceSamples("", 0, ends, columns, span_ns=np.full(n, STEP_NS, np.int64))]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="module")
def paced() -> Iterator[PacedServer]:
    with PacedServer(ttft_s=0.010, itl_s=0.020) as server:
        yield server


def use(monkeypatch: pytest.MonkeyPatch, counters: Counters, notes: list[str] | None = None) -> Counters:
    def opened(gpus: list[int] | None) -> Opened:
        counters.gpus = gpus or counters.gpus
        return Opened(counters, (9, 0), notes or [])  # type: ignore[arg-type]

    monkeypatch.setattr(device_counters, "open_counters", opened)
    return counters


def test_each_cell_has_its_shares_and_the_series_keeps_them(
    paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = use(monkeypatch, Counters(), ["all of them"])
    s = sweep(paced.url, tmp_path, tensor_pipe=True, osl=12, requests=6)
    assert counters.levels == 2 and counters.closed == 1
    assert "tensor pipe: CUPTI PM sampling of GPU 0; all of them" in s.said
    for c in s.stored.cells():
        assert (c.tensor_pipe_frac, c.sm_active_frac, c.dram_frac) == (pytest.approx(0.25), pytest.approx(0.6), None)
        d = c.device
        assert d is not None and d.tensor_pipe is not None and d.tensor_pipe.metric == T
        assert (d.method, d.compute, d.gpus, d.interval_s) == ("CUPTI PM sampling", "9.0", [0], 1e-3)
        assert d.n_dropped == 0 and d.notes == ["all of them"] and c.steady_s is not None
        assert d.window == "steady" and d.window_s == pytest.approx(c.steady_s, abs=0.002)
        assert d.n_samples == pytest.approx(c.steady_s * 1000, abs=3)
    series = s.stored.series()
    assert series is not None
    for one in series.cells:
        assert one.telemetry is not None
        (gpu,) = one.telemetry.gpus
        assert [v for v in gpu.tensor_pipe_frac if v is not None] == pytest.approx(
            [0.25] * sum(v is not None for v in gpu.tensor_pipe_frac)
        )
        assert any(v is not None for v in gpu.sm_active_frac) and gpu.dram_frac == []


def test_a_sweep_without_it_says_nothing_of_gpus(
    paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_counters, "open_counters", lambda _: pytest.fail("not asked for"))
    s = sweep(paced.url, tmp_path)
    assert all(c.device is None and c.tensor_pipe_frac is None for c in s.cells)


def test_the_gpus_may_be_named(paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Counters())
    s = sweep(paced.url, tmp_path, tensor_pipe=True, tensor_pipe_gpus=[4, 5], osl=4, requests=2)
    assert "tensor pipe: CUPTI PM sampling of GPU 4, 5" in s.said


def test_a_sampler_that_fails_costs_no_level(
    paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = use(monkeypatch, Counters(refuses_level=0, ends_level=1))
    s = sweep(paced.url, tmp_path, tensor_pipe=True)
    assert s.result.error is None and [c.n_ok for c in s.cells] == [4, 4] and counters.closed == 1
    first, second = s.cells
    assert first.device is None and "--tensor-pipe: CUPTI PM sampling: the sampling process ended" in first.notes
    assert second.tensor_pipe_frac is None and "--tensor-pipe: sampling of GPU 0 ended early" in second.notes


def test_a_server_elsewhere_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_counters, "open_counters", lambda _: pytest.fail("never asked"))
    with PacedServer(ttft_s=0.01, itl_s=0.001) as server:
        monkeypatch.setattr("dsv4bench.server.target._is_ours", lambda *_: False)
        with pytest.raises(UsageError) as e:
            sweep(server.url, tmp_path, tensor_pipe=True)
    assert "another host" in e.value.message and "leave --tensor-pipe out" in e.value.hint
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_refused_counters_stop_the_sweep_with_the_remedy(
    paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> Any:
        raise UsageError("the GPU's counters cannot be sampled: no", "NVreg_RestrictProfilingToAdminUsers=0")

    monkeypatch.setattr(device_counters, "open_counters", refuse)
    with pytest.raises(UsageError, match="cannot be sampled"):
        sweep(paced.url, tmp_path, tensor_pipe=True)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_a_dry_run_opens_no_counters(paced: PacedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_counters, "open_counters", lambda _: pytest.fail("nothing is measured"))
    assert sweep(paced.url, tmp_path, tensor_pipe=True, dry_run=True).cells == []
