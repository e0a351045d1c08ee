"""`doctor`: each thing it looks at, found and missing, with the remedy; counters are really tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv4bench.capture.pm_frames import Refused
from dsv4bench.capture.pm_library import Cupti
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.host.nsight import Nsight
from dsv4bench.host.profiling import CounterRights
from dsv4bench.records.experiment import GpuInfo, Machine
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.runs import doctor, doctor_gpu
from dsv4bench.runs.doctor_finding import Finding


def made_machine(gpus: int = 1) -> Machine:
    card = GpuInfo(name="NVIDIA H200", memory_bytes=1, power_limit_w=1, sm_clock_max_mhz=1)
    return Machine(
        cpu="EPYC", cores=16, memory_bytes=1 << 37, os="Debian", kernel="Linux 6.1", python="3.12.1",
        hostname_sha256="0" * 64, gpus=[card] * gpus,
        driver="580.159.04" if gpus else None, gpu_why_none=None if gpus else "no driver",
    )  # fmt: skip


class Sampler:
    method, metrics, chip, ended = "CUPTI PM sampling", [f"sm__pipe_tensor{'.avg.pct'}"], "GH100", None

    def __init__(self, *_: Any, n: int = 2500) -> None:
        self.n = n

    def start(self) -> None: ...

    def stop(self) -> list[DeviceSamples]:
        return [DeviceSamples("", 0, np.arange(self.n), {})]

    def close(self) -> None: ...


def refusing(*_: Any) -> Any:
    raise CountersRefused("CUPTI PM sampling", "permission", "GPU 0: not for this user", "NVreg_…=0")


@pytest.fixture
def gpu_host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in {
        "find_nsys": lambda: Nsight("/opt/nsys", (2025, 3, 1)),
        "find_ncu": lambda: Nsight("/opt/ncu", (2025, 3, 1)),
        "importer_of": lambda path: "/opt/QdstrmImporter",
        "importer_lacks": lambda path: None,
        "find_cupti": lambda: Cupti("/x/libcupti.so.13", "13.4.92", "13.4.0"),
        "counter_rights": lambda: CounterRights(restricted=True, admin=True),
        "PmCounters": Sampler,
        "GpmCounters": Sampler,
        "TRY_S": 0.0,
    }.items():
        monkeypatch.setattr(doctor_gpu, name, value)
    monkeypatch.setattr(doctor_gpu.nvml, "available", lambda: None)
    monkeypatch.setattr(doctor_gpu.nvml, "cuda_version", lambda: "13.0")
    return monkeypatch


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    assert len({f.what for f in findings}) == len(findings)
    return {f.what: f for f in findings}


def test_a_host_with_everything(gpu_host: pytest.MonkeyPatch) -> None:
    found = by_name(doctor_gpu.examine_gpu(made_machine(2)))
    assert all(f.ok and not f.remedy for f in found.values())
    assert found["GPU"].found == "2 × NVIDIA H200" and found["driver"].found == "580.159.04"
    assert found["CUDA"].found == "the driver goes up to 13.0"
    assert found["nsys"].found == "nsys 2025.3.1 (/opt/nsys)" and found["ncu"].found == "ncu 2025.3.1 (/opt/ncu)"
    assert found["CUPTI"].found == "libcupti 13.4.92 for cupti-python 13.4.0 (/x/libcupti.so.13)"
    assert (
        found["GPU counters' permission"].found == "for administrators only; this process has administrator's rights"
    )
    assert found["tensor pipe by CUPTI PM sampling"].found == "2500 samples of GH100 in 0 s: sm__pipe_tensor"


@pytest.mark.parametrize(
    ("name", "value", "what", "said", "remedy"),
    [
        ("find_nsys", lambda: None, "nsys", "not found", "install Nsight Systems"),
        ("find_nsys", lambda: None, "libdw and libelf (for nsys)", "no nsys", "install Nsight Systems"),
        ("find_ncu", lambda: None, "ncu", "not found", "install Nsight Compute"),
        ("importer_lacks", lambda p: "libdw.so.1", "libdw and libelf (for nsys)", "libdw.so.1 is missing", "libdw1"),
        ("importer_of", lambda p: None, "libdw and libelf (for nsys)", "importer was not found", "libdw1"),
        (
            "find_cupti",
            lambda: Refused(why="library", message="libcupti 13.0.85 does not fit", hint="pip install -U x"),
            "CUPTI",
            "13.0.85 does not fit",
            "pip install -U x",
        ),
        (
            "counter_rights",
            lambda: CounterRights(restricted=True, admin=False),
            "GPU counters' permission",
            "for administrators only; this process has no administrator's rights",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("PmCounters", refusing, "tensor pipe by CUPTI PM sampling", "not for this user", "NVreg_…=0"),
        ("PmCounters", lambda g: Sampler(n=0), "tensor pipe by CUPTI PM sampling", "0 samples", "another profiler"),
    ],
)
def test_what_is_missing_has_its_remedy(
    name: str, value: Any, what: str, said: str, remedy: str, gpu_host: pytest.MonkeyPatch
) -> None:
    gpu_host.setattr(doctor_gpu, name, value)
    found = by_name(doctor_gpu.examine_gpu(made_machine()))[what]
    assert not found.ok and said in found.found and remedy in found.remedy


def test_without_a_gpu_nothing_is_tried_and_every_line_has_a_remedy(gpu_host: pytest.MonkeyPatch) -> None:
    gpu_host.setattr(doctor_gpu, "PmCounters", lambda g: pytest.fail("no GPU to sample"))
    gpu_host.setattr(doctor_gpu, "counter_rights", lambda: CounterRights(restricted=None, admin=True))
    found = by_name(doctor_gpu.examine_gpu(made_machine(0)))
    permission = found["GPU counters' permission"]
    assert permission.found == "not asked: no NVIDIA driver"
    assert not permission.ok and permission.remedy == doctor_gpu.ON_A_GPU_HOST
    for what in ("GPU", "driver", "tensor pipe by CUPTI PM sampling", "tensor pipe by NVML GPM"):
        assert not found[what].ok and found[what].remedy


def test_a_slow_clock_and_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "clock_source", lambda: "hpet")
    clock = doctor._clock()
    assert not clock.ok and "hpet" in clock.found and "tsc" in clock.remedy
    monkeypatch.setattr(doctor, "clock_source", lambda: "kvm-clock")
    assert doctor._clock().ok
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 1 << 60)
    disk = doctor._disk("results", tmp_path)
    assert not disk.ok and "GiB free" in disk.found and "TMPDIR" in disk.remedy
    assert not doctor._disk("results", tmp_path / "gone").ok


def test_the_clients_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "raise_file_limit", lambda: 1000)
    monkeypatch.setattr(doctor, "worker_count", lambda slots: 1)
    found = by_name(doctor._client(made_machine()))
    assert not found["open files"].ok and "936 requests" in found["open files"].found
    assert "ulimit -Hn 1088" in found["open files"].remedy
    assert not found["client capacity"].ok and "1024 streams for each of 1" in found["client capacity"].found
    monkeypatch.setattr(doctor, "worker_count", lambda slots: 2)
    assert by_name(doctor._client(made_machine()))["client capacity"].ok
