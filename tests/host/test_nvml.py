"""GPU samples from a fake NVML binding: values, units, what a GPU does not tell, and no binding at all."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dsv4bench.host import nvml
from dsv4bench.host.machine import machine
from dsv4bench.host.nvml import GpuReader


class NVMLError(Exception):
    pass


def _refuse(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def fake_nvml(**changes: Any) -> SimpleNamespace:
    """A binding with two H200-like GPUs; handles are their indices."""
    calls: list[str] = []
    module = SimpleNamespace(
        NVMLError=NVMLError,
        calls=calls,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlSystemGetDriverVersion=lambda: b"580.65.06",
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda h: "NVIDIA H200",
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=50 + h, memory=20),
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=150 << 30, used=(10 + h) << 30, free=0),
        nvmlDeviceGetPowerUsage=lambda h: 412_500,
        nvmlDeviceGetPowerManagementLimit=lambda h: 700_000,
        nvmlDeviceGetClockInfo=lambda h, which: {1: 1980, 2: 3201}[which],
        nvmlDeviceGetMaxClockInfo=lambda h, which: {1: 1980, 2: 3201}[which],
        nvmlDeviceGetTemperature=lambda h, sensor: 61,
        nvmlDeviceGetCurrentClocksEventReasons=lambda h: 0x1 | 0x4 | 0x40,
    )
    for name, value in changes.items():
        setattr(module, name, value)
    return module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    def put(module: Any) -> Any:
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    return put


def test_a_sample_of_every_gpu_in_units_of_the_record(install: Any) -> None:
    module = install(fake_nvml())
    reader = nvml.open_reader()
    assert isinstance(reader, GpuReader)
    with reader:
        first, second = reader.sample()
    assert (first.index, second.index) == (0, 1)
    assert first.power_w == 412.5
    assert first.util_frac == 0.5
    assert second.memory_used_bytes == 11 << 30
    assert (first.sm_clock_mhz, first.mem_clock_mhz, first.temperature_c) == (1980, 3201, 61)
    assert module.calls == ["init", "shutdown"]


def test_throttle_reasons_are_words_and_idle_is_none_of_them(install: Any) -> None:
    install(fake_nvml())
    reader = nvml.open_reader()
    assert isinstance(reader, GpuReader)
    assert reader.sample()[0].throttle == ["sw_power_cap", "hw_thermal"]
    install(fake_nvml(nvmlDeviceGetCurrentClocksEventReasons=lambda h: 0x1))
    idle = nvml.open_reader()
    assert isinstance(idle, GpuReader)
    assert idle.sample()[0].throttle == []


def test_an_older_binding_names_the_reasons_otherwise(install: Any) -> None:
    module = fake_nvml(nvmlDeviceGetCurrentClocksThrottleReasons=lambda h: 0x8)
    del module.nvmlDeviceGetCurrentClocksEventReasons
    install(module)
    reader = nvml.open_reader()
    assert isinstance(reader, GpuReader)
    assert reader.sample()[0].throttle == ["hw_slowdown"]


def test_what_a_gpu_does_not_tell_is_none(install: Any) -> None:
    install(fake_nvml(nvmlDeviceGetPowerUsage=_refuse, nvmlDeviceGetUtilizationRates=_refuse))
    reader = nvml.open_reader()
    assert isinstance(reader, GpuReader)
    sample = reader.sample()[0]
    assert sample.power_w is None
    assert sample.util_frac is None
    assert sample.sm_clock_mhz == 1980


def test_reasons_why_there_is_no_reader(install: Any) -> None:
    assert install(fake_nvml()) and nvml.available() is None
    install(None)  # what `import` finds then raises ImportError
    assert "nvidia-ml-py" in (nvml.available() or "")
    install(fake_nvml(nvmlInit=_refuse))
    assert "Not Supported" in (nvml.available() or "")
    install(fake_nvml(nvmlDeviceGetCount=lambda: 0))
    assert nvml.available() == "NVML sees no GPU"


def test_the_machine_lists_gpus_and_driver(install: Any) -> None:
    install(fake_nvml())
    found = machine()
    assert [g.name for g in found.gpus] == ["NVIDIA H200"] * 2
    assert found.gpus[0].power_limit_w == 700
    assert found.gpus[0].memory_bytes == 150 << 30
    assert found.driver == "580.65.06"
    assert found.gpu_why_none is None
