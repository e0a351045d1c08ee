"""Names as NVML reports them, and figures that agree with one another."""

from __future__ import annotations

import math

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.gpus import KNOWN, Gpu, Peaks, custom, find, measured


def known(name: str) -> Gpu:
    gpu = find(name)
    assert gpu is not None, name
    return gpu


@pytest.mark.parametrize(
    ("name", "sm", "gb_s"),
    [
        ("NVIDIA H100 80GB HBM3", 90, 3350),
        ("NVIDIA H200", 90, 4800),
        ("NVIDIA H20", 90, 4000),
        ("NVIDIA B200", 100, 8000),
        ("NVIDIA B300 SXM6 AC", 103, 8000),
        ("NVIDIA A100-SXM4-80GB", 80, 2039),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120, 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 120, 1792),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition", 120, 1597),
        ("NVIDIA GeForce RTX 5090", 120, 1792),
        ("NVIDIA GeForce RTX 4090", 89, 1008),
        ("NVIDIA L40S", 89, 864),
        ("NVIDIA GB10", 121, 273),
        ("h200", 90, 4800),
        ("RTX 5090", 120, 1792),
        ("DGX Spark", 121, 273),
    ],
)
def test_find_by_the_name_a_driver_reports(name: str, sm: int, gb_s: float) -> None:
    gpu = known(name)
    assert gpu.sm == sm
    assert gpu.bandwidth_bytes_s == pytest.approx(gb_s * 1e9)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H200 NVL",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA H100 PCIe",
        "NVIDIA H20-3e",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA RTX PRO 6000 Blackwell",  # three editions, three bandwidths
        "AMD Instinct MI300X",
        "NVIDIA",
        "",
    ],
)
def test_another_card_borrows_no_figures(name: str) -> None:
    assert find(name) is None


def test_names_are_unique_and_sources_stated() -> None:
    for gpu in KNOWN:
        for name in (gpu.name, *gpu.aliases):
            assert find(name) is gpu, name
        assert gpu.source
        assert gpu.kind == "datasheet"
        assert (gpu.measured_bytes_s is None) == (gpu.measured_source is None)


def test_peaks_are_dense_and_ordered() -> None:
    """A sparse figure in the table would break the factor of two between neighbouring types."""
    for gpu in KNOWN:
        p = gpu.peaks
        if p.bf16 and p.fp8:
            assert p.fp8 / p.bf16 == pytest.approx(2, rel=0.02), gpu.name
        if p.bf16 and p.fp32 and gpu.sms:
            assert p.bf16 > p.fp32, gpu.name
        if p.fp8 and p.fp4:
            assert 2 * 0.98 <= p.fp4 / p.fp8 <= 4 * 1.02, gpu.name
        if gpu.measured_bytes_s:
            assert 0.75 < gpu.measured_bytes_s / gpu.bandwidth_bytes_s < 1, gpu.name


@pytest.mark.parametrize(
    ("name", "clock_ghz", "dense_bf16_flops_per_sm_clock"),
    [
        ("NVIDIA A100-SXM4-80GB", 1.41, 2048),
        ("NVIDIA H100 80GB HBM3", 1.83, 4096),
        ("NVIDIA H200", 1.83, 4096),
        ("NVIDIA GeForce RTX 4090", 2.52, 512),
        ("NVIDIA GeForce RTX 5090", 2.41, 512),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 2.617, 1024),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 2.28, 1024),
    ],
)
def test_dense_peak_is_sms_times_clock_times_width(
    name: str, clock_ghz: float, dense_bf16_flops_per_sm_clock: int
) -> None:
    gpu = known(name)
    assert gpu.sms is not None
    assert gpu.peaks.bf16 == pytest.approx(gpu.sms * clock_ghz * 1e9 * dense_bf16_flops_per_sm_clock, rel=0.01)


def test_a_type_the_chip_lacks_falls_back_and_an_unknown_one_does_not() -> None:
    h200 = known("NVIDIA H200")
    assert not h200.supports("fp4")
    assert h200.peak("fp4") == h200.peaks.fp8
    a100 = known("NVIDIA A100-SXM4-80GB")
    assert a100.peak("fp8") == a100.peaks.bf16
    # The server edition has FP8 units; that nobody published their dense peak must not become the FP32 peak.
    assert known("NVIDIA RTX PRO 6000 Blackwell Server Edition").peak("fp8") is None


def test_custom_gpu() -> None:
    gpu = custom("mine", 1460e9, sms=188, peaks=Peaks(bf16=392.5e12))
    assert (gpu.bandwidth_bytes_s, gpu.kind, gpu.source) == (1460e9, "user", "given by the user")
    assert gpu.peak("bf16") == 392.5e12
    assert gpu.peak("fp8") is None


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.inf, math.nan])
def test_custom_gpu_needs_a_bandwidth(bandwidth: float) -> None:
    with pytest.raises(UsageError, match="mine"):
        custom("mine", bandwidth)


def test_measured_rate_replaces_the_datasheet() -> None:
    gpu = measured(known("NVIDIA H200"))
    assert gpu is not None
    assert (gpu.bandwidth_bytes_s, gpu.kind) == (4576e9, "measured")
    assert gpu.peaks == known("NVIDIA H200").peaks
    assert measured(known("NVIDIA L40S")) is None
