"""This very host described, and GPUs through a stand-in for nvidia-smi where NVML's binding is missing."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from dsv4bench.host.machine import machine
from dsv4bench.records.codec import encode


@pytest.fixture(autouse=True)
def no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def _smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_this_host_without_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine()
    assert found.cores >= 1
    assert found.cpu
    assert (found.memory_bytes or 0) > 1 << 28
    assert found.python.count(".") == 2
    assert len(found.hostname_sha256) == 64
    assert socket.gethostname().encode() not in encode(found)
    assert found.gpus == []
    assert "nvidia-smi" in (found.gpu_why_none or "")


def test_gpus_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _smi(
        tmp_path,
        monkeypatch,
        "echo 'NVIDIA H200, 143771, 700.00, 1980, 580.65.06'; echo 'NVIDIA GB10, [N/A], [N/A], 3003, 580.65.06'",
    )
    found = machine()
    assert [g.name for g in found.gpus] == ["NVIDIA H200", "NVIDIA GB10"]
    assert found.gpus[0].memory_bytes == 143771 << 20
    assert found.gpus[0].power_limit_w == 700.0
    assert found.gpus[1].memory_bytes is None
    assert found.gpus[1].sm_clock_max_mhz == 3003
    assert found.driver == "580.65.06"
    assert found.gpu_why_none is None


def test_a_failing_nvidia_smi_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _smi(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed: no driver'; exit 9")
    found = machine()
    assert found.gpus == []
    assert "exited 9: NVIDIA-SMI has failed" in (found.gpu_why_none or "")
