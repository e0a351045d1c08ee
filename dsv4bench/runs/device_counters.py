"""`sweep --tensor-pipe`: the GPUs' counters during each level, opened once a sweep, and what a cell says of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from dsv4bench.attribution.activity import activity, in_bins
from dsv4bench.attribution.sampled import DRAM, SMS, TENSOR
from dsv4bench.capture.counters import Opened, open_counters
from dsv4bench.errors import BenchError, UsageError
from dsv4bench.records.device import DeviceActivity
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import GpuSample
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.server.target import Target

READING_NS = 500_000_000  # of the series that is kept


class LevelCounters:
    """`start` and `stop` around a level, then ask; `close` at the end of the sweep."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._samples: list[DeviceSamples] = []
        self._window_ns = (0, 0)
        self._why_none: str | None = None

    def start(self) -> None:
        """A sampler that does not start costs the level its figures, not its measurement."""
        self._samples, self._why_none = [], None
        try:
            self._opened.counters.start()
        except BenchError as e:
            self._why_none = e.message
        self._window_ns = (time.time_ns(), 0)

    def stop(self) -> None:
        self._window_ns = (self._window_ns[0], time.time_ns())
        if self._why_none is None:
            self._samples = self._opened.counters.stop()
            self._why_none = self._opened.counters.ended

    def close(self) -> None:
        self._opened.counters.close()

    def notes(self) -> list[str]:
        """Why a level has no figures, or not the whole of them."""
        return [f"--tensor-pipe: {self._why_none}"] if self._why_none else []

    def activity(self, steady_epoch_s: tuple[float, float] | None) -> DeviceActivity | None:
        """Over the steady window; over the whole level where there is none."""
        window_ns = self._window_ns
        if steady_epoch_s is not None:
            window_ns = (round(steady_epoch_s[0] * 1e9), round(steady_epoch_s[1] * 1e9))
        counters = self._opened.counters
        return activity(
            self._samples,
            window_ns,
            counters.method,
            window="steady" if steady_epoch_s is not None else "level",
            compute=self._opened.compute,
            notes=[*self._opened.notes, *counters.said],
        )

    def readings(self) -> list[tuple[float, list[GpuSample]]]:
        """Means over half seconds, (epoch s, a GPU each): what is drawn, never what is judged."""
        if not self._samples or self._window_ns[1] <= self._window_ns[0]:
            return []
        edges = np.arange(self._window_ns[0], self._window_ns[1] + READING_NS, READING_NS, dtype=np.int64)
        columns = [
            (one.device, [in_bins(one, metric, edges) for metric in (TENSOR, SMS, DRAM)]) for one in self._samples
        ]
        found = []
        for i, end in enumerate(edges[1:].tolist()):
            gpus = [
                GpuSample(index=gpu, tensor_pipe_frac=_at(t, i), sm_active_frac=_at(s, i), dram_frac=_at(d, i))
                for gpu, (t, s, d) in columns
            ]
            if any(g.tensor_pipe_frac is not None for g in gpus):
                found.append((end / 1e9, gpus))
        return found


def open_for(target: Target, say: MessageCallback, gpus: Sequence[int] | None = None) -> LevelCounters:
    """Counters of these GPUs, else of those that serve.

    Raises UsageError where the server is elsewhere, or nothing may be read.
    """
    if not target.on_this_host:
        raise UsageError(
            f"--tensor-pipe: {target.host} is another host, and counters are read on the GPUs' own",
            "run the sweep there, or leave --tensor-pipe out",
        )
    opened = open_counters(gpus)
    counters = opened.counters
    sampled = ", ".join(map(str, counters.gpus))
    say(f"tensor pipe: {counters.method} of GPU {sampled}" + "".join(f"; {note}" for note in opened.notes))
    return LevelCounters(opened)


def _at(column: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None, i: int) -> float | None:
    return None if column is None or np.isnan(column[i]) else float(column[i])
