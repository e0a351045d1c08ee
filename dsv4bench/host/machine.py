"""This host, for the header of every result: CPU, memory, system, GPUs and driver. The hostname is hashed.

GPUs are asked of NVML when its Python binding is installed, else of `nvidia-smi` when it is on PATH; where
both are missing, `gpu_why_none` says so. Nothing here fails: what cannot be read is None.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path

from dsv4bench.host import nvml
from dsv4bench.records.experiment import GpuInfo, Machine

_SMI_FIELDS = "name,memory.total,power.limit,clocks.max.sm,driver_version"


def machine() -> Machine:
    """Describe this host."""
    gpus, driver, why = _gpus()
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        os=_os_name(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        hostname_sha256=hashlib.sha256(socket.gethostname().encode()).hexdigest(),
        gpus=gpus,
        driver=driver,
        gpu_why_none=why,
    )


def clock_source(path: str = "/sys/devices/system/clocksource/clocksource0/current_clocksource") -> str | None:
    """What the kernel tells the time by (`tsc`); None where it does not say."""
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _gpus() -> tuple[list[GpuInfo], str | None, str | None]:
    found = nvml.describe()
    if not isinstance(found, str):
        return found[0], found[1], None if found[0] else "NVML sees no GPU"
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return [], None, f"{found}; no nvidia-smi on PATH"
    return _gpus_from_smi(smi, found)


def _gpus_from_smi(smi: str, why_no_nvml: str) -> tuple[list[GpuInfo], str | None, str | None]:
    command = [smi, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as e:
        return [], None, f"{why_no_nvml}; nvidia-smi failed: {e}"
    if out.returncode != 0:
        said = (out.stdout + out.stderr).strip().splitlines()
        return (
            [],
            None,
            f"{why_no_nvml}; nvidia-smi exited {out.returncode}: {said[0] if said else ''}".rstrip(": "),
        )
    gpus, driver = [], None
    for line in out.stdout.splitlines():
        cells = [c.strip() for c in line.split(",")]
        if len(cells) != 5:
            continue
        memory_mib, power, clock = (_number(c) for c in cells[1:4])
        gpus.append(
            GpuInfo(
                name=cells[0],
                memory_bytes=None if memory_mib is None else int(memory_mib * 2**20),
                power_limit_w=power,
                sm_clock_max_mhz=None if clock is None else int(clock),
            )
        )
        driver = cells[4]
    return gpus, driver, None if gpus else "nvidia-smi lists no GPU"


def _number(text: str) -> float | None:
    """nvidia-smi writes `[N/A]` where a GPU does not tell."""
    try:
        return float(text)
    except ValueError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)
