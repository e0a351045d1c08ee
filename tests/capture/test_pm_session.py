"""A PM sampling session on a fake binding: the choice of metrics, what a decode brings and loses, what is refused."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cupti import FakeCupti, Result

from dsv4bench.capture import pm_process
from dsv4bench.capture.pm_frames import Batch, read_frame
from dsv4bench.capture.pm_metrics import sets_for
from dsv4bench.capture.pm_refusals import CannotSample
from dsv4bench.capture.pm_session import BUFFER_BYTES, BufferOverflow, Pass, Session, _constant

INTERVAL = 100_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def session(slots: int = 64, **made: Any) -> tuple[Session, FakeCupti, Clock]:
    binding, clock = FakeCupti(**made), Clock()
    binding.clock_ns = clock
    return Session(binding, 0, INTERVAL, slots), binding, clock


def test_the_widest_set_that_fits_one_pass_is_sampled() -> None:
    s, binding, _ = session()
    assert s.chip == "GH100" and s.metrics == sets_for("GH100")[0] and len(s.metrics) == 4
    assert all(m.endswith("pct_of_peak_sustained_elapsed") for m in s.metrics)  # never of active cycles
    assert s.left_out == [] and binding.hosts == 1
    s, binding, _ = session(most_metrics=3)
    assert [m.split(".")[0] for m in s.metrics] == [
        "sm__pipe_tensor_cycles_active",
        "sm__cycles_active",
        "dram__throughput",
    ]
    assert len(s.left_out) == 2 and all("2 passes" in said for said in s.left_out)
    assert binding.hosts == 1  # those of the sets that did not fit were given back


def test_a_chip_that_calls_it_otherwise_is_asked_by_the_other_name() -> None:
    binding = FakeCupti(chip="GB202", most_metrics=3)
    binding.unknown = ("sm__pipe_tensor_cycles_active.",)
    s = Session(binding, 0, INTERVAL)
    assert s.metrics[0].startswith("sm__pipe_tensor_cycles_active_realtime.") and len(s.metrics) == 3


def test_a_chip_without_the_metric_is_unsupported_and_nothing_stays_open() -> None:
    binding = FakeCupti()
    binding.unknown = ("tensor",)
    with pytest.raises(CannotSample) as e:
        Session(binding, 0, INTERVAL)
    assert e.value.refused.why == "unsupported" and "GH100" in e.value.refused.message
    assert binding.hosts == 0 and binding.calls[-2:] == ["pm_sampling_disable", "profiler_deinitialize"]


def test_it_is_configured_by_time_and_keeps_the_oldest() -> None:
    _, binding, _ = session()
    c = binding.configured
    assert c is not None
    assert (c.sampling_interval, c.trigger_mode, c.hw_buffer_append_mode) == (INTERVAL, 1, 0)
    assert c.hardware_buffer_size == BUFFER_BYTES


def test_decodes_bring_every_sample_once() -> None:
    s, _, clock = session()
    s.start()
    seen = []
    for step in (5, 0, 7):
        clock.now += step * INTERVAL
        found = s.decode()
        assert len(found.ends) == step and not found.full
        assert found.spans.tolist() == [INTERVAL] * step and found.values.shape == (step, 4)
        seen += found.ends.tolist()
    assert seen == [1_000_000_000 + i * INTERVAL for i in range(1, 13)]


def test_values_belong_to_their_samples() -> None:
    s, _, clock = session()
    s.start()
    clock.now += 11 * INTERVAL
    assert s.decode().values[:, 0].tolist() == [40.0, *[0.0] * 9, 40.0]
    assert s.decode().values.shape == (0, 4)


def test_the_sample_without_length_after_a_stop_is_none() -> None:
    s, _, clock = session()
    s.start()
    clock.now += 3 * INTERVAL
    s.stop()
    assert len(s.decode().ends) == 3


def test_a_full_image_is_told() -> None:
    s, _, clock = session(slots=4)
    s.start()
    clock.now += 6 * INTERVAL
    found = s.decode()
    assert found.full and len(found.ends) == 4
    clock.now += INTERVAL
    assert not s.decode().full


def test_an_overflow_lasts_until_recording_begins_anew() -> None:
    s, binding, clock = session()
    binding.room = 3
    s.start()
    clock.now += 5 * INTERVAL
    for _ in range(2):
        with pytest.raises(BufferOverflow):
            s.decode()
    s.restart()
    clock.now += 2 * INTERVAL
    assert len(s.decode().ends) == 2


@pytest.mark.parametrize(
    ("call", "status", "why", "said", "hint"),
    [
        ("pm_sampling_enable", Result.ERROR_INSUFFICIENT_PRIVILEGES, "permission", "does not let", "NVreg_Restrict"),
        ("pm_sampling_enable", Result.ERROR_INSUFFICIENT_PRIVILEGES, "permission", "does not let", "CAP_SYS_ADMIN"),
        ("pm_sampling_enable", Result.ERROR_INVALID_OPERATION, "busy", "in use", "dcgmi"),
        ("pm_sampling_set_config", Result.ERROR_NOT_SUPPORTED, "unsupported", "PM sampling by time", ""),
        ("profiler_initialize", Result.ERROR_NOT_INITIALIZED, "library", "nvperf", "nvidia-cuda-cupti"),
        ("profiler_host_initialize", Result.ERROR_INVALID_PARAMETER, "library", "older libcupti", "pip install"),
        ("pm_sampling_get_counter_data_size", Result.ERROR_INVALID_PARAMETER, "failed", "ERROR_INVALID_PARAM", ""),
    ],
)
def test_a_refusal_has_its_reason_and_remedy(call: str, status: Result, why: str, said: str, hint: str) -> None:
    binding = FakeCupti(fails={call: status})
    with pytest.raises(CannotSample) as e:
        Session(binding, 0, INTERVAL)
    refused = e.value.refused
    assert refused.why == why and said in refused.message and hint in refused.hint
    assert binding.hosts == 0


def test_closing_never_raises_and_gives_back_once() -> None:
    s, binding, _ = session()
    binding.fails = {"pm_sampling_disable": Result.ERROR_INVALID_OPERATION}
    s.close()
    s.close()
    assert binding.calls.count("profiler_deinitialize") == 1 and binding.hosts == 0


def test_every_name_that_is_asked_of_the_binding_exists() -> None:
    binding = pytest.importorskip("cupti.cupti")
    fake = FakeCupti()
    s = Session(fake, 0, INTERVAL)
    s.start()
    s.decode()
    s.close()
    assert len(set(fake.calls)) > 12
    for function in set(fake.calls):
        assert hasattr(binding, function)
        name = "".join(part.title() for part in function.split("_"))
        name = "ProfilerDeInitialize" if function == "profiler_deinitialize" else name
        assert hasattr(binding, f"{name}Params"), name
        assert hasattr(binding, f"{_constant(name)}_PARAMS_STRUCT_SIZE"), name
    for name in ("ProfilerType", "PmSamplingTriggerMode", "PmSamplingHardwareBufferAppendMode", "Result"):
        assert hasattr(binding, name)
    assert binding.PmSamplingDecodeStopReason.COUNTER_DATA_FULL == fake.PmSamplingDecodeStopReason.COUNTER_DATA_FULL


def test_a_binding_without_pm_sampling_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm_process.ctypes, "CDLL", lambda path, mode: None)
    monkeypatch.setattr(pm_process.importlib, "import_module", lambda name: SimpleNamespace())
    with pytest.raises(CannotSample) as e:
        pm_process.load_binding("/x/libcupti.so.13")
    assert "too old" in e.value.refused.message and "--target DIR" in e.value.refused.hint


def test_a_library_that_does_not_load_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "libcupti.so.13"
    broken.write_bytes(b"no library")
    with pytest.raises(CannotSample) as e:
        pm_process.load_binding(str(broken))
    assert e.value.refused.why == "library" and str(broken) in e.value.refused.message


def test_a_sample_that_is_decoded_twice_is_sent_once() -> None:
    out = io.BytesIO()
    s, _, _ = session()
    recording = pm_process.Recording(s, out, INTERVAL)
    now = time.time_ns()
    for first, n in ((0, 3), (2, 3), (0, 2)):
        ends = now + INTERVAL * np.arange(first, first + n, dtype=np.int64)
        recording._send(Pass(ends, np.full(n, INTERVAL, np.int64), np.zeros((n, 4)), False), now)
    out.seek(0)
    sent: list[int] = []
    while (frame := read_frame(out)) is not None:
        assert isinstance(frame, Batch)
        sent += np.frombuffer(frame.ends, np.int64).tolist()
    assert sent == [now + INTERVAL * i for i in range(5)]


def test_what_is_no_frame_ends_the_hearing() -> None:
    assert read_frame(io.BytesIO(b"")) is None
    assert read_frame(io.BytesIO(b"\x02\x00\x00\x00hi")) is None
    assert read_frame(io.BytesIO(b"\xff\x00\x00\x00cut")) is None


def test_the_driver_is_initialised_before_anything_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUPTI answers INVALID_PARAMETER to the first question about a device otherwise."""
    order: list[str] = []

    class Driver:
        def cuInit(self, flags: int) -> int:
            order.append(f"cuInit {flags}")
            return 0

    def load(path: str, mode: int = 0) -> object:
        order.append(path)
        return Driver()

    monkeypatch.setattr(pm_process.ctypes, "CDLL", load)
    monkeypatch.setattr(pm_process.importlib, "import_module", lambda name: FakeCupti())
    assert hasattr(pm_process.load_binding("/x/libcupti.so.13"), "pm_sampling_enable")
    assert order == ["/x/libcupti.so.13", "libcuda.so.1", "cuInit 0"]


def test_a_driver_without_a_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def cuInit(self, flags: int) -> int:
            return 100

    monkeypatch.setattr(pm_process.ctypes, "CDLL", lambda path: Driver())
    with pytest.raises(CannotSample, match="cuInit: 100"):
        pm_process.initialise_driver()


def test_a_module_that_the_binding_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> object:
        raise ModuleNotFoundError("No module named 'elftools'", name="elftools")

    monkeypatch.setattr(pm_process.ctypes, "CDLL", lambda path, mode=0: object())
    monkeypatch.setattr(pm_process.importlib, "import_module", lacks)
    with pytest.raises(CannotSample) as e:
        pm_process.load_binding("/x/libcupti.so.13")
    assert "elftools" in e.value.refused.message and "dsv4bench[gpu]" in e.value.refused.hint
