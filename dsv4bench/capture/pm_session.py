"""One PM sampling session on one GPU, through the binding's plain functions: open, start, decode, stop, close.

Plain functions rather than the binding's own collector, because that one makes a new image a decode, does not hand
out the decoder's stop reason, and evaluates a sample in many Python steps: at 100 µs there are 10,000 a second. How
the decoder behaves: a decode that fills the image loses samples whatever is done next, so the image holds several
passes; an overflow of the GPU's buffer is for good, so recording begins anew; after a stop come samples of no length,
which are dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4bench.capture.pm_metrics import Metrics, sets_for
from dsv4bench.capture.pm_refusals import CannotSample, in_words

SLOTS = 8192  # samples that one decode has room for
BUFFER_BYTES = 256 << 20  # on the GPU's side; a sample takes 4 to 16 KiB of it

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Pass(NamedTuple):
    """What one decode brought: ends and lengths in ns, percents (n, metrics). `full`: some were lost."""

    ends: Ints
    spans: Ints
    values: Floats
    full: bool


class BufferOverflow(Exception):
    """The GPU's buffer was full; nothing more comes until recording begins anew."""


class Session:
    """Use one at a time in a process; `close` it in every case."""

    def __init__(self, binding: Any, device: int, interval_ns: int, slots: int = SLOTS) -> None:
        """Opens everything, and chooses the metrics. Raises CannotSample."""
        self._c = binding
        self._device, self._interval_ns, self.slots = device, interval_ns, slots
        self._sampling: int | None = None
        self._host: int | None = None
        self._initialised = False
        self._image: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.left_out: list[str] = []
        try:
            self._call("profiler_initialize", "ProfilerInitialize")
            self._initialised = True
            self.chip: str = self._call("device_get_chip_name", "DeviceGetChipName", device_index=device).p_chip_name
            enabled = self._call("pm_sampling_enable", "PmSamplingEnable", device_index=device)
            self._sampling = enabled.p_pm_sampling_object
            self.metrics, self._config = self._choose()
            self._names = (ctypes.c_char_p * len(self.metrics))(*(m.encode() for m in self.metrics))
            self._configure()
            self._make_image()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        self._call("pm_sampling_start", "PmSamplingStart", p_pm_sampling_object=self._sampling)

    def stop(self) -> None:
        self._call("pm_sampling_stop", "PmSamplingStop", p_pm_sampling_object=self._sampling)

    def restart(self) -> None:
        """Begin anew after a BufferOverflow."""
        self.stop()
        self._configure()
        self._initialise_image()
        self.start()

    def decode(self) -> Pass:
        """The samples since the last decode. Raises BufferOverflow, CannotSample."""
        c = self._c
        done = self._params("PmSamplingDecodeData", p_pm_sampling_object=self._sampling)
        done.p_counter_data_image, done.counter_data_image_size = self._image.ctypes.data, len(self._image)
        try:
            c.pm_sampling_decode_data(done.ptr)
        except c.cuptiError as e:
            if e.status == c.Result.ERROR_OUT_OF_MEMORY:
                raise BufferOverflow from None
            raise in_words(c, e, "pm_sampling_decode_data") from e
        if done.overflow:
            raise BufferOverflow
        full = done.decode_stop_reason == c.PmSamplingDecodeStopReason.COUNTER_DATA_FULL
        info = self._params("PmSamplingGetCounterDataInfo")
        info.p_counter_data_image, info.counter_data_image_size = self._image.ctypes.data, len(self._image)
        c.pm_sampling_get_counter_data_info(info.ptr)
        found = self._read(info.num_completed_samples)
        if info.num_populated_samples:
            self._initialise_image()
        return Pass(*found, full)

    def close(self) -> None:
        """Give the counters back. Never raises: what is gone is gone."""
        for name, params, value in (
            ("pm_sampling_disable", "PmSamplingDisable", self._sampling),
            ("profiler_host_deinitialize", "ProfilerHostDeinitialize", self._host),
        ):
            if value is not None:
                field = "p_host_object" if "Host" in params else "p_pm_sampling_object"
                self._quietly(name, params, **{field: value})
        if self._initialised:
            self._quietly("profiler_deinitialize", "ProfilerDeInitialize")
        self._sampling, self._host, self._initialised = None, None, False

    # --- within --------------------------------------------------------------------------------------------

    def _read(self, n: int) -> tuple[Ints, Ints, Floats]:
        """Evaluate `n` samples; those without stamps or length are no samples."""
        c, image = self._c, self._image.ctypes.data
        info = self._params("PmSamplingCounterDataGetSampleInfo", p_pm_sampling_object=self._sampling)
        info.p_counter_data_image, info.counter_data_image_size = image, len(self._image)
        told = self._params("ProfilerHostEvaluateToGpuValues", p_host_object=self._host)
        told.p_counter_data_image, told.counter_data_image_size = image, len(self._image)
        told.pp_metric_names, told.num_metrics = ctypes.addressof(self._names), len(self.metrics)
        stamps = np.zeros((n, 2), np.int64)
        values = np.zeros((n, len(self.metrics)), np.float64)
        row, step = values.ctypes.data, values.strides[0]
        for i in range(n):
            info.sample_index = i
            c.pm_sampling_counter_data_get_sample_info(info.ptr)
            begin, end = info.start_timestamp, info.end_timestamp
            if end <= begin:
                continue
            stamps[i] = begin, end
            told.range_index, told.p_metric_values = i, row + i * step
            c.profiler_host_evaluate_to_gpu_values(told.ptr)
        real = stamps[:, 1] > 0
        return stamps[real, 1], stamps[real, 1] - stamps[real, 0], values[real]

    def _choose(self) -> tuple[Metrics, npt.NDArray[np.uint8]]:
        """The first set of metrics that this chip takes in one pass. The host object of it evaluates, too."""
        for metrics in sets_for(self.chip):
            host = self._call(
                "profiler_host_initialize",
                "ProfilerHostInitialize",
                profiler_type=int(self._c.ProfilerType.PM_SAMPLING),
                p_chip_name=self.chip,
                p_counter_availability_image=0,
            ).p_host_object
            self._host = host
            try:
                config = self._config_image(host, metrics)
                passes = self._call(
                    "profiler_host_get_num_of_passes",
                    "ProfilerHostGetNumOfPasses",
                    p_config_image=config.ctypes.data,
                    config_image_size=len(config),
                ).num_of_passes
                if passes == 1:
                    return metrics, config
                self.left_out.append(f"{', '.join(metrics)}: {passes} passes")
            except CannotSample as e:
                self.left_out.append(f"{', '.join(metrics)}: {e.refused.message}")
            self._quietly("profiler_host_deinitialize", "ProfilerHostDeinitialize", p_host_object=host)
            self._host = None
        raise CannotSample("unsupported", f"{self.chip} has no tensor-pipe metric that CUPTI samples in one pass")

    def _config_image(self, host: int, metrics: Metrics) -> npt.NDArray[np.uint8]:
        names = (ctypes.c_char_p * len(metrics))(*(m.encode() for m in metrics))
        self._call(
            "profiler_host_config_add_metrics",
            "ProfilerHostConfigAddMetrics",
            p_host_object=host,
            pp_metric_names=ctypes.addressof(names),
            num_metrics=len(metrics),
        )
        size = self._call("profiler_host_get_config_image_size", "ProfilerHostGetConfigImageSize", p_host_object=host)
        image = np.zeros(size.config_image_size, np.uint8)
        self._call(
            "profiler_host_get_config_image",
            "ProfilerHostGetConfigImage",
            p_host_object=host,
            p_config_image=image.ctypes.data,
            config_image_size=len(image),
        )
        return image

    def _configure(self) -> None:
        self._call(
            "pm_sampling_set_config",
            "PmSamplingSetConfig",
            p_pm_sampling_object=self._sampling,
            config_size=len(self._config),
            p_config=self._config.ctypes.data,
            hardware_buffer_size=BUFFER_BYTES,
            sampling_interval=self._interval_ns,
            trigger_mode=int(self._c.PmSamplingTriggerMode.GPU_TIME_INTERVAL),
            hw_buffer_append_mode=int(self._c.PmSamplingHardwareBufferAppendMode.KEEP_OLDEST),
        )

    def _make_image(self) -> None:
        size = self._call(
            "pm_sampling_get_counter_data_size",
            "PmSamplingGetCounterDataSize",
            p_pm_sampling_object=self._sampling,
            p_metric_names=ctypes.addressof(self._names),
            num_metrics=len(self.metrics),
            max_samples=self.slots,
        ).counter_data_size
        self._image = np.zeros(size, np.uint8)
        self._initialise_image()

    def _initialise_image(self) -> None:
        self._call(
            "pm_sampling_counter_data_image_initialize",
            "PmSamplingCounterDataImageInitialize",
            p_pm_sampling_object=self._sampling,
            counter_data_size=len(self._image),
            p_counter_data=self._image.ctypes.data,
        )

    def _params(self, name: str, **fields: Any) -> Any:
        params = getattr(self._c, f"{name}Params")()
        params.struct_size = getattr(self._c, f"{_constant(name)}_PARAMS_STRUCT_SIZE")
        for field, value in fields.items():
            setattr(params, field, value)
        return params

    def _call(self, function: str, params_name: str, **fields: Any) -> Any:
        """One call; its parameters back, with what it wrote into them. Raises CannotSample."""
        params = self._params(params_name, **fields)
        try:
            getattr(self._c, function)(params.ptr)
        except (self._c.cuptiError, RuntimeError) as e:  # the binding's own loader raises RuntimeError
            raise in_words(self._c, e, function) from e
        return params

    def _quietly(self, function: str, params_name: str, **fields: Any) -> None:
        with contextlib.suppress(CannotSample):
            self._call(function, params_name, **fields)


def _constant(name: str) -> str:
    """PmSamplingEnable → PM_SAMPLING_ENABLE; the binding writes DeInitialize in one word."""
    name = name.replace("DeInitialize", "Deinitialize")
    return "".join(f"_{ch}" if ch.isupper() and i else ch for i, ch in enumerate(name)).upper()
