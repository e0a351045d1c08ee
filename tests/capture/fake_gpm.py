"""An NVML with GPM, without a GPU: two readings give the averages of a made-up load between them."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class NVMLError(Exception):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class Metric(SimpleNamespace):
    pass


def fake_pynvml(
    supported: bool = True,
    tensor_told: bool = True,
    fails: dict[str, Exception] | None = None,
    fails_after: int = 10**9,
    processes: dict[int, int] | None = None,
    count: int = 2,
) -> ModuleType:
    """Percents: tensor 10 + GPU, SM 50, DRAM 20. `fails_after`: readings until nvmlGpmSampleGet raises."""
    m = ModuleType("pynvml")
    readings: list[Any] = []
    freed: list[Any] = []

    def guarded(name: str, answer: Any) -> Any:
        def call(*args: Any) -> Any:
            if fails and name in fails:
                raise fails[name]
            return answer(*args)

        return call

    def sample_get(handle: int, buffer: Any) -> Any:
        if len(readings) >= fails_after:
            raise NVMLError("GPU is lost")
        readings.append(handle)
        buffer.handle, buffer.at = handle, time.time()
        return buffer

    def metrics_get(asked: Any) -> Any:
        assert asked.sample1.at <= asked.sample2.at and asked.version == 1
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = 0 if tensor_told or metric.metricId != 5 else 3
            metric.value = {5: 10.0 + asked.sample1.handle, 2: 50.0, 10: 20.0}[metric.metricId]
        return asked

    calls: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetComputeRunningProcesses": lambda h: [SimpleNamespace(pid=1)] * (processes or {}).get(h, 0),
        "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
        "nvmlGpmQueryDeviceSupport": lambda h: SimpleNamespace(isSupportedDevice=int(supported)),
        "nvmlGpmSampleAlloc": lambda: SimpleNamespace(),
        "nvmlGpmSampleFree": freed.append,
        "nvmlGpmSampleGet": sample_get,
        "nvmlGpmMetricsGet": metrics_get,
    }
    for name, answer in calls.items():
        setattr(m, name, guarded(name, answer))
    m.NVMLError, m.NVMLError_NoPermission = NVMLError, NVMLError_NoPermission  # type: ignore[attr-defined]
    m.NVML_GPM_METRICS_GET_VERSION = 1  # type: ignore[attr-defined]
    m.c_nvmlGpmMetricsGet_t = lambda: SimpleNamespace(metrics=[Metric() for _ in range(8)])  # type: ignore[attr-defined]
    m.freed = freed  # type: ignore[attr-defined]
    return m


def install(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
