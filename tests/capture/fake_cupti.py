"""A CUPTI binding without a GPU: parameter objects, statuses, and a sampler that runs on the host's clock.

It behaves as the real decoder was seen to: a decode has room for the image's slots, a full image loses what did not
fit, an overflow of the buffer is for good until the session is configured anew, and the decode after a stop brings a
sample without length.
"""

from __future__ import annotations

import ctypes
import time
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Result(IntEnum):
    SUCCESS = 0
    ERROR_INVALID_PARAMETER = 1
    ERROR_INVALID_OPERATION = 7
    ERROR_OUT_OF_MEMORY = 8
    ERROR_NOT_INITIALIZED = 15
    ERROR_INVALID_METRIC_NAME = 16
    ERROR_NOT_SUPPORTED = 27
    ERROR_INSUFFICIENT_PRIVILEGES = 35


class CuptiError(Exception):
    def __init__(self, status: Result) -> None:
        super().__init__(status.name)
        self.status = status


class Params(SimpleNamespace):
    """Fields are set and read by name; its pointer is itself."""

    @property
    def ptr(self) -> Params:
        return self


def strings(address: int, n: int) -> list[str]:
    return [s.decode() for s in (ctypes.c_char_p * n).from_address(address)]  # type: ignore[union-attr]


class FakeCupti:
    """`one_pass(metrics)` says which sets fit; `fails` maps a call to the status that it gives."""

    Result = Result
    cuptiError = CuptiError
    ProfilerType = SimpleNamespace(PM_SAMPLING=1)
    PmSamplingTriggerMode = SimpleNamespace(GPU_TIME_INTERVAL=1)
    PmSamplingHardwareBufferAppendMode = SimpleNamespace(KEEP_OLDEST=0)
    PmSamplingDecodeStopReason = SimpleNamespace(OTHER=0, COUNTER_DATA_FULL=1, END_OF_RECORDS=2)

    def __init__(self, chip: str = "GH100", fails: dict[str, Result] | None = None, most_metrics: int = 4) -> None:
        self.chip, self.fails, self.most_metrics = chip, dict(fails or {}), most_metrics
        self.unknown: tuple[str, ...] = ("realtime",)  # parts of names that this chip does not have
        self.calls: list[str] = []
        self.clock_ns = time.time_ns
        self.offset_ns = 0  # of the GPU's stamps
        self.room = 10**9  # samples that the GPU's buffer holds
        self.overflows = 0  # decodes that still fail
        self.configured: Params | None = None
        self.slots = 0
        self.image: list[tuple[int, int, int]] = []  # start, end, number
        self.running_since: int | None = None
        self.stopped_at: int | None = None
        self.taken = 0  # samples of this recording that a decode has had
        self.hosts = 0

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_STRUCT_SIZE"):
            return 1
        if name.endswith("Params"):
            return Params
        if name.startswith(("pm_sampling_", "profiler_", "device_")):
            return lambda params: self._call(name, params)
        raise AttributeError(name)

    def _call(self, name: str, params: Params) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise CuptiError(self.fails[name])
        getattr(self, f"_{name}", lambda params: None)(params)

    def _device_get_chip_name(self, p: Params) -> None:
        p.p_chip_name = self.chip

    def _pm_sampling_enable(self, p: Params) -> None:
        p.p_pm_sampling_object = 11

    def _profiler_host_initialize(self, p: Params) -> None:
        self.hosts += 1
        p.p_host_object = 100 + self.hosts

    def _profiler_host_deinitialize(self, p: Params) -> None:
        self.hosts -= 1

    def _profiler_host_config_add_metrics(self, p: Params) -> None:
        names = strings(p.pp_metric_names, p.num_metrics)
        if any(part in name for name in names for part in self.unknown):
            raise CuptiError(Result.ERROR_INVALID_METRIC_NAME)
        self.n_metrics = p.num_metrics

    def _profiler_host_get_config_image_size(self, p: Params) -> None:
        p.config_image_size = 16

    def _profiler_host_get_num_of_passes(self, p: Params) -> None:
        p.num_of_passes = 1 if self.n_metrics <= self.most_metrics else 2

    def _pm_sampling_set_config(self, p: Params) -> None:
        self.configured, self.overflows = p, 0

    def _pm_sampling_get_counter_data_size(self, p: Params) -> None:
        self.slots = p.max_samples
        p.counter_data_size = 8 * p.max_samples

    def _pm_sampling_counter_data_image_initialize(self, p: Params) -> None:
        self.image = []

    def _pm_sampling_start(self, p: Params) -> None:
        if self.running_since is not None and self.stopped_at is None:
            raise CuptiError(Result.ERROR_INVALID_OPERATION)
        self.running_since, self.stopped_at, self.taken = self.clock_ns(), None, 0

    def _pm_sampling_stop(self, p: Params) -> None:
        if self.running_since is None or self.stopped_at is not None:
            raise CuptiError(Result.ERROR_INVALID_OPERATION)
        self.stopped_at = self.clock_ns()

    def _pm_sampling_decode_data(self, p: Params) -> None:
        assert self.configured is not None and self.running_since is not None
        interval = self.configured.sampling_interval
        until = self.stopped_at or self.clock_ns()
        due = (until - self.running_since) // interval
        p.overflow, p.decode_stop_reason = 0, self.PmSamplingDecodeStopReason.END_OF_RECORDS
        if self.overflows or due - self.taken > self.room:
            self.overflows = 1
            raise CuptiError(Result.ERROR_OUT_OF_MEMORY)
        first = self.running_since + self.offset_ns
        new = [(first + i * interval, first + (i + 1) * interval, i) for i in range(self.taken, due)]
        if len(new) > self.slots:
            p.decode_stop_reason = self.PmSamplingDecodeStopReason.COUNTER_DATA_FULL
        self.image, self.taken = new[: self.slots], due
        if self.stopped_at is not None:
            self.image.append((first, first, 0))

    def _pm_sampling_get_counter_data_info(self, p: Params) -> None:
        p.num_completed_samples = p.num_populated_samples = len(self.image)

    def _pm_sampling_counter_data_get_sample_info(self, p: Params) -> None:
        p.start_timestamp, p.end_timestamp, _ = self.image[p.sample_index]

    def _profiler_host_evaluate_to_gpu_values(self, p: Params) -> None:
        """The tensor pipe is 40 % busy in each tenth sample; every other metric is its place in the list."""
        values = (ctypes.c_double * p.num_metrics).from_address(p.p_metric_values)
        number = self.image[p.range_index][2]
        values[:] = [40.0 if number % 10 == 0 else 0.0, *map(float, range(1, p.num_metrics))]
