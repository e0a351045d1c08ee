"""Why CUPTI does not sample, in words, with what a user can do: by the status that it gave, and at which call."""

from __future__ import annotations

from typing import Any

from dsv4bench.capture.pm_frames import Refused, Why
from dsv4bench.host.profiling import REMEDY

_OTHER_READER = (
    "another reader has the counters: end nsys --gpu-metrics-devices, another sampler, or DCGM's profiling "
    "(`dcgmi profile --pause`; dcgm-exporter)"
)
_BY_STATUS: dict[str, tuple[Why, str, str]] = {
    "ERROR_INSUFFICIENT_PRIVILEGES": ("permission", "the driver does not let this user read GPU counters", REMEDY),
    "ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": (
        "permission",
        "the hypervisor does not let this virtual GPU read counters",
        "its owner allows profiling for the vGPU (enable_profiling=1)",
    ),
    "ERROR_INVALID_OPERATION": ("busy", "the GPU's counters are in use", _OTHER_READER),
    "ERROR_HARDWARE_BUSY": ("busy", "the GPU's counters are in use", _OTHER_READER),
    "ERROR_NOT_SUPPORTED": ("unsupported", "this GPU does not support PM sampling by time", ""),
    "ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": ("unsupported", "this virtual GPU does not support PM sampling", ""),
    "ERROR_MIG_DEVICE_NOT_SUPPORTED": ("unsupported", "a MIG slice does not support PM sampling", ""),
    "ERROR_WSL_DEVICE_NOT_SUPPORTED": ("unsupported", "PM sampling does not work under WSL", ""),
    "ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": (
        "unsupported",
        "PM sampling does not work under confidential computing",
        "",
    ),
    "ERROR_NOT_INITIALIZED": (
        "library",
        "libcupti could not load its nvperf libraries",
        "install nvidia-cuda-cupti whole: libnvperf_host.so and libnvperf_target.so lie beside libcupti",
    ),
}
_OLD_LIBRARY = (
    "an older libcupti is loaded than the binding needs",
    "pip install -U nvidia-cuda-cupti; another one may be named in LD_PRELOAD",
)


class CannotSample(Exception):
    """`refused` is what the parent is told."""

    def __init__(self, why: Why, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.refused = Refused(why=why, message=message, hint=hint)


def in_words(binding: Any, error: Exception, call: str) -> CannotSample:
    """What an error of the binding means at this call."""
    status = getattr(error, "status", None)
    for name, known in _BY_STATUS.items():
        if status is not None and status == getattr(binding.Result, name, object()):
            return CannotSample(*known)
    if call == "profiler_host_initialize" and status == getattr(binding.Result, "ERROR_INVALID_PARAMETER", object()):
        return CannotSample("library", *_OLD_LIBRARY)
    if status is None:
        return CannotSample("library", f"CUPTI does not load: {error}", "it needs the NVIDIA driver")
    return CannotSample("failed", f"CUPTI failed at {call}: {error}")
