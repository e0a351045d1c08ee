"""Once a second during a level: the server's gauges, and on the GPUs' own host their clocks, power and throttling.

With `--tensor-pipe` the GPUs' hardware counters beside them, all the level long. The server's counters are read
before and after the level, each time until they stand still, since servers publish them late. A cell's clock, power
and throttling are those of the GPUs that had work: idle ones beside them, with their low clock, look like a fall.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

import msgspec

from dsv4bench.host.nvml import GpuReader, open_reader
from dsv4bench.load.summary import mean
from dsv4bench.records.device import DeviceActivity
from dsv4bench.records.server import Gauges, GpuSample, ServerInfo, TelemetrySample
from dsv4bench.runs.device_counters import LevelCounters
from dsv4bench.server.gauges import delta
from dsv4bench.server.scraper import GaugeScraper
from dsv4bench.server.target import Target

SETTLE_S = 0.1
SETTLE_TRIES = 30
MIN_SAMPLES = 3


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """The level as the server and the GPUs saw it; names are the cell's."""

    server_running_mean: float | None = None
    server_waiting_mean: float | None = None
    kv_usage_max_frac: float | None = None
    accept_length: float | None = None
    prefix_hit_frac: float | None = None
    server_output_tokens: float | None = None
    server_ttft_mean_s: float | None = None
    server_tpot_mean_s: float | None = None
    gpu_sm_clock_mean_mhz: float | None = None
    gpu_power_mean_w: float | None = None
    gpu_throttle: list[str] = []
    tensor_pipe_frac: float | None = None
    sm_active_frac: float | None = None
    dram_frac: float | None = None
    device: DeviceActivity | None = None


class Telemetry:
    """Watches one level: enter before it, leave after it, then `view()` and `samples()`."""

    def __init__(
        self, target: Target, info: ServerInfo, cell: str, on_this_host: bool, counters: LevelCounters | None = None
    ) -> None:
        self._scraper = GaugeScraper(target, info)
        self._cell = cell
        reader = open_reader() if on_this_host else "another host"
        self._reader: GpuReader | None = None if isinstance(reader, str) else reader
        self._gpus: list[tuple[float, list[GpuSample]]] = []
        self._counters = counters
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch_gpus, name="gpu-telemetry", daemon=True)
        self.interrupted = False
        self.before: Gauges | None = None
        self.after: Gauges | None = None

    def __enter__(self) -> Telemetry:
        self.before = self._settled()
        self._scraper.samples.clear()
        self._scraper.__enter__()
        if self._reader is not None:
            self._thread.start()
        if self._counters is not None:
            self._counters.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._counters is not None:
            self._counters.stop()
        self._scraper.__exit__(kind, error, trace)
        if self._reader is not None:
            self._thread.join(timeout=2)
            self._reader.close()
        if kind is None:
            samples = list(self._scraper.samples)
            try:
                self.after = self._settled()
            except KeyboardInterrupt:  # the level is measured: it is kept, and the sweep ends after it
                self.interrupted = True
            self._scraper.samples[:] = samples

    def notes(self) -> list[str]:
        """What happened on the server that a reader of the numbers must know."""
        preempted = delta(self.before, self.after, "preemptions_total")
        found = [f"{preempted:.0f} preemptions"] if preempted else []
        return found + (self._counters.notes() if self._counters is not None else [])

    def samples(self) -> list[TelemetrySample]:
        """Gauges and GPUs in time order; a GPU reading stands alone when the server has no metrics."""
        lines = [TelemetrySample(t_s=g.t_s, cell=self._cell, gauges=g) for g in self._scraper.samples]
        lines += [TelemetrySample(t_s=t, cell=self._cell, gpus=gpus) for t, gpus in self._gpus]
        if self._counters is not None:
            lines += [TelemetrySample(t_s=t, cell=self._cell, gpus=gpus) for t, gpus in self._counters.readings()]
        return sorted(lines, key=lambda line: line.t_s)

    def view(self, steady_epoch_s: tuple[float, float] | None) -> ServerView:
        """Means of the gauges over the steady window (all samples when none fell into it), and counter deltas."""
        gauges = self._scraper.samples
        if steady_epoch_s is not None:
            low, high = steady_epoch_s
            gauges = [g for g in gauges if low <= g.t_s <= high] or gauges
        gpus = self._at_work()
        clocks = [float(s.sm_clock_mhz) for s in gpus if s.sm_clock_mhz is not None]
        device = self._counters.activity(steady_epoch_s) if self._counters is not None else None
        power = [s.power_w for s in gpus if s.power_w is not None]
        return ServerView(
            server_running_mean=_enough([g.running for g in gauges if g.running is not None]),
            server_waiting_mean=_enough([g.waiting for g in gauges if g.waiting is not None]),
            kv_usage_max_frac=max((g.kv_usage_frac for g in gauges if g.kv_usage_frac is not None), default=None),
            accept_length=self._accept_length(gauges),
            prefix_hit_frac=self._ratio("prefix_hits_total", "prefix_queries_total"),
            server_output_tokens=delta(self.before, self.after, "output_tokens_total"),
            server_ttft_mean_s=self._ratio("ttft_sum_s", "ttft_count"),
            server_tpot_mean_s=self._ratio("tpot_sum_s", "tpot_count") or self._ratio("itl_sum_s", "itl_count"),
            gpu_sm_clock_mean_mhz=mean(clocks),
            gpu_power_mean_w=mean(power),
            gpu_throttle=sorted({word for s in gpus for word in s.throttle}),
            tensor_pipe_frac=device.tensor_pipe.mean_frac if device and device.tensor_pipe else None,
            sm_active_frac=device.sm.mean_frac if device and device.sm else None,
            dram_frac=device.dram.mean_frac if device and device.dram else None,
            device=device,
        )

    def _at_work(self) -> list[GpuSample]:
        """Samples of the GPUs that had work in this level; of all where none tells its load."""
        samples = [s for _, gpus in self._gpus for s in gpus]
        loaded = {s.index for s in samples if s.util_frac}
        return [s for s in samples if s.index in loaded] if loaded else samples

    def _ratio(self, part: str, whole: str) -> float | None:
        over = delta(self.before, self.after, whole)
        return None if not over else _divided(delta(self.before, self.after, part), over)

    def _accept_length(self, gauges: list[Gauges]) -> float | None:
        accepted = self._ratio("spec_accepted_total", "spec_drafts_total")
        if accepted is not None:
            return 1 + accepted
        return mean([g.spec_accept_length for g in gauges if g.spec_accept_length])

    def _settled(self) -> Gauges | None:
        """A scrape that equals the one before it, with nothing running; the last one when that never comes."""
        last = self._scraper.scrape_now()
        for _ in range(SETTLE_TRIES if last is not None else 0):
            time.sleep(SETTLE_S)
            now = self._scraper.scrape_now()
            if now is None:
                break
            still = last is not None and now.output_tokens_total == last.output_tokens_total
            if still and not now.running:
                return now
            last = now
        return last

    def _watch_gpus(self) -> None:
        assert self._reader is not None
        while not self._stop.is_set():
            self._gpus.append((time.time(), self._reader.sample()))
            self._stop.wait(1.0)


def _enough(values: list[float]) -> float | None:
    """A mean of at least three samples; a level of a second or two has none worth showing."""
    return mean(values) if len(values) >= MIN_SAMPLES else None


def _divided(part: float | None, over: float) -> float | None:
    return None if part is None else part / over
