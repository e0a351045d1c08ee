"""NVML's GPM: the same shares without CUPTI, as averages over a fifth of a second (Hopper and later).

It does not use the profilers' counters, so it runs beside them, and usually needs no more than access to the GPU.
Percentiles over such long samples say little; the mean is as good.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.host.profiling import REMEDY
from dsv4bench.records.trace import DeviceSamples

METHOD = "NVML GPM"
INTERVAL_S = 0.2
LEAST_S = 0.12  # NVML asks for more than 0.1 s between two readings
_METRICS = {"ANY_TENSOR_UTIL": 5, "SM_UTIL": 2, "DRAM_BW_UTIL": 10}  # nvmlGpmMetricId_t
_NOT_INSTALLED = "pip install 'dsv4bench[gpu]'"


class GpmCounters:
    """As `pm.PmCounters`, for GPUs in NVML's order."""

    method = METHOD

    def __init__(self, gpus: Sequence[int], interval_s: float = INTERVAL_S) -> None:
        """Raises CountersRefused where a GPU does not answer with a figure for the tensor pipe."""
        self._nvml = _open()
        self.gpus = list(gpus)
        self.metrics = list(_METRICS)
        self.chip = ""
        self.ended: str | None = None
        self.said: list[str] = []
        self._interval_s = interval_s
        self._readers: list[_Reader] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            for gpu in self.gpus:
                self._readers.append(_Reader(self._nvml, gpu))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Returns when the first reading is taken. Raises CountersRefused."""
        self.ended = None
        try:
            for reader in self._readers:
                reader.begin()
        except self._nvml.NVMLError as e:
            raise CountersRefused(METHOD, "failed", f"a GPU does not answer any more: {e}") from None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpm", daemon=True)
        self._thread.start()

    def stop(self) -> list[DeviceSamples]:
        """The samples since `start`; the last one may be shorter, or reach a little further. Never raises."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None
        return [reader.samples() for reader in self._readers]

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None
        for reader in self._readers:
            reader.free()
        self._readers = []
        with contextlib.suppress(Exception):  # closing what is already gone
            self._nvml.nvmlShutdown()

    def _watch(self) -> None:
        try:
            read_at = time.monotonic()
            while not self._stop.wait(self._interval_s):
                for reader in self._readers:
                    reader.read()
                read_at = time.monotonic()
            time.sleep(max(read_at + min(LEAST_S, self._interval_s) - time.monotonic(), 0.0))
            for reader in self._readers:
                reader.read()
        except self._nvml.NVMLError as e:
            self.ended = f"{METHOD} ended early: {e}"


class _Reader:
    """One GPU: two sample buffers that take turns, and what came of each pair."""

    def __init__(self, nvml: ModuleType, gpu: int) -> None:
        self._nvml, self._gpu = nvml, gpu
        self._buffers: list[Any] = []
        self._rows: list[tuple[int, int, list[float]]] = []
        self._since_ns = 0
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
            if not nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                raise CountersRefused(METHOD, "unsupported", f"GPU {gpu} has none", "it takes Hopper or later")
            self._buffers = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self.begin()
            time.sleep(INTERVAL_S)
            self.read()
        except CountersRefused:
            self.free()
            raise
        except (nvml.NVMLError, AttributeError) as e:
            self.free()
            refused = getattr(nvml, "NVMLError_NoPermission", ())
            raise CountersRefused(
                METHOD,
                "permission" if isinstance(e, refused) else "unsupported",
                f"GPU {gpu}: {e}",
                REMEDY if isinstance(e, refused) else "it takes Hopper or later and a driver from 525 on",
            ) from None
        if not self._rows or np.isnan(self._rows[0][2][0]):
            self.free()
            raise CountersRefused(METHOD, "unsupported", f"GPU {gpu} does not tell its tensor pipe's use")

    def begin(self) -> None:
        self._rows = []
        self._nvml.nvmlGpmSampleGet(self._handle, self._buffers[0])
        self._since_ns = time.time_ns()

    def read(self) -> None:
        """The averages since the reading before, and that reading's turn is this one's."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._buffers[1])
        now_ns = time.time_ns()
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = self._buffers
        for i, metric in enumerate(_METRICS.values()):
            asked.metrics[i].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        told = [asked.metrics[i] for i in range(len(_METRICS))]
        self._rows.append(
            (now_ns, now_ns - self._since_ns, [float("nan") if m.nvmlReturn else float(m.value) for m in told])
        )
        self._since_ns = now_ns
        self._buffers.reverse()

    def samples(self) -> DeviceSamples:
        values = np.array([row[2] for row in self._rows], np.float64).reshape(-1, len(_METRICS))
        return DeviceSamples(
            "",
            self._gpu,
            np.array([row[0] for row in self._rows], np.int64),
            {name: values[:, i] for i, name in enumerate(_METRICS)},
            span_ns=np.array([row[1] for row in self._rows], np.int64),
        )

    def free(self) -> None:
        for buffer in self._buffers:
            with contextlib.suppress(Exception):
                self._nvml.nvmlGpmSampleFree(buffer)
        self._buffers = []


def _open() -> ModuleType:
    try:
        import pynvml
    except ImportError:
        raise CountersRefused(METHOD, "missing", "nvidia-ml-py is not installed", _NOT_INSTALLED) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        raise CountersRefused(METHOD, "missing", f"NVML does not answer: {e}", "it takes the NVIDIA driver") from None
    module: ModuleType = pynvml
    return module
