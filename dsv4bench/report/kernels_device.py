"""How a table of kernels names the GPU it was measured on, and what it must not be taken for."""

from __future__ import annotations

from dsv4bench.records.kernels import DeviceFacts

TARGETS = ("sm_120", "sm_121")  # the campaign's GPUs


def title(device: DeviceFacts) -> str:
    """`NVIDIA H200 (sm_90, not sm_120)`."""
    if device.arch is None:
        return device.name
    other = "" if device.arch in TARGETS else ", not sm_120"
    return f"{device.name} ({device.arch}{other})"


def facts(device: DeviceFacts) -> str:
    """SMs, L2, driver and libraries, in one line."""
    told = [
        None if device.sms is None else f"{device.sms} SMs",
        None if device.l2_bytes is None else f"L2 {device.l2_bytes / 2**20:.0f} MiB",
        None if device.driver is None else f"driver {device.driver}",
        f"torch {device.torch}",
        None if device.triton is None else f"triton {device.triton}",
    ]
    return ", ".join(t for t in told if t)


def warning(device: DeviceFacts) -> str | None:
    """What a reader with the campaign's GPU must know; None where it is that GPU."""
    if device.arch in TARGETS:
        return None
    where = device.arch or device.name
    return f"measured on {where}: structure and correctness carry over to sm_120, figures do not"
