"""NVML readings of every GPU of this host: clocks, power, temperature, load, memory, throttle reasons.

`open_reader()` gives a `GpuReader`, or the reason (a string) why there is none: the binding is not
installed, or no driver answers. A field that one GPU does not tell is None. It measures the whole host: under
MIG, or when other jobs run, the figures are not the server's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from dsv4bench.records.experiment import GpuInfo
from dsv4bench.records.server import GpuSample

# NVML's clocks-event-reason bits (nvml.h). Bit 0, idle, holds nothing back and is left out.
_THROTTLE_WORDS = {
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
_CLOCK_SM, _CLOCK_MEM, _TEMPERATURE_GPU = 1, 2, 0  # nvmlClockType_t, nvmlTemperatureSensors_t


class GpuReader:
    """Samples all GPUs; a context manager, or `close()` it."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]

    def __enter__(self) -> GpuReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._ask("nvmlShutdown")
        self._handles = []

    def sample(self) -> list[GpuSample]:
        """One reading of every GPU, in NVML's order."""
        return [self._sample_one(i, handle) for i, handle in enumerate(self._handles)]

    def describe(self) -> tuple[list[GpuInfo], str | None]:
        """Names and limits of the GPUs, and the driver's version."""
        return [self._describe_one(h) for h in self._handles], _text(self._ask("nvmlSystemGetDriverVersion"))

    @property
    def count(self) -> int:
        return len(self._handles)

    def compute_processes(self, index: int) -> int:
        """How many processes compute on it; 0 also where NVML does not tell."""
        return len(self._ask("nvmlDeviceGetComputeRunningProcesses", self._handles[index]) or [])

    def cuda_version(self) -> str | None:
        found = self._ask("nvmlSystemGetCudaDriverVersion_v2")
        return None if found is None else f"{found // 1000}.{found % 1000 // 10}"

    def compute_capability(self, index: int) -> tuple[int, int] | None:
        found = self._ask("nvmlDeviceGetCudaComputeCapability", self._handles[index])
        return None if found is None else (int(found[0]), int(found[1]))

    def _sample_one(self, index: int, handle: Any) -> GpuSample:
        load = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        power_mw = self._ask("nvmlDeviceGetPowerUsage", handle)
        return GpuSample(
            index=index,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            mem_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU),
            util_frac=None if load is None else load.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            throttle=_throttle_words(self._throttle_bits(handle)),
        )

    def _describe_one(self, handle: Any) -> GpuInfo:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        limit_mw = self._ask("nvmlDeviceGetPowerManagementLimit", handle)
        return GpuInfo(
            name=_text(self._ask("nvmlDeviceGetName", handle)) or "unknown",
            memory_bytes=None if memory is None else memory.total,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            sm_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
        )

    def _throttle_bits(self, handle: Any) -> int:
        """The reasons, under their name since driver 535 or the one before it."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return bits or 0

    def _ask(self, name: str, *args: Any) -> Any:
        """One NVML call; None when the binding, the driver or the GPU does not support it."""
        call: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if call is None:
            return None
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None


def open_reader() -> GpuReader | str:
    """A reader, or why there is none."""
    try:
        import pynvml
    except ImportError:
        return "the NVML binding is not installed (pip install nvidia-ml-py)"
    try:
        pynvml.nvmlInit()
        return GpuReader(pynvml)
    except pynvml.NVMLError as e:
        return f"NVML does not answer: {e}"


def available() -> str | None:
    """None when GPUs can be sampled, else the reason why not."""
    reader = open_reader()
    if isinstance(reader, str):
        return reader
    n = len(reader.sample())
    reader.close()
    return None if n else "NVML sees no GPU"


def describe() -> tuple[list[GpuInfo], str | None] | str:
    """GPUs and driver version, or why they are not known."""
    reader = open_reader()
    if isinstance(reader, str):
        return reader
    with reader:
        return reader.describe()


def _throttle_words(bits: int) -> list[str]:
    return [word for bit, word in _THROTTLE_WORDS.items() if bits & bit]


def _text(value: Any) -> str | None:
    """Old bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def gpus_in_use() -> tuple[list[int], list[int]] | str:
    """Indices of the GPUs that hold a compute process, and of all; or why they are not known."""
    reader = open_reader()
    if isinstance(reader, str):
        return reader
    with reader:
        every = list(range(reader.count))
        return ([i for i in every if reader.compute_processes(i)], every) if every else "NVML sees no GPU"


def compute_capability(index: int) -> tuple[int, int] | None:
    """(9, 0) for an H200; None where NVML does not tell."""
    reader = open_reader()
    if isinstance(reader, str):
        return None
    with reader:
        return reader.compute_capability(index) if index < reader.count else None


def cuda_version() -> str | None:
    """The newest CUDA that the driver supports, "13.0"; None where NVML does not answer."""
    reader = open_reader()
    if isinstance(reader, str):
        return None
    with reader:
        return reader.cuda_version()
