"""Which device kernels run on here: the GPU as it calls itself, or a CPU under Triton's interpreter."""

from __future__ import annotations

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.host import nvml
from dsv4bench.records.kernels import DeviceFacts

INTERPRETER = "cpu (Triton interpreter)"
INSTALL = "pip install 'dsv4bench[kernels]'"


def require_torch() -> str:
    """torch's version. Raises UsageError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"kernels need torch ({error})", INSTALL) from None
    return str(torch.__version__)


def triton_version() -> str | None:
    """None where it is not installed."""
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def no_gpu() -> str | None:
    """Why there is no CUDA GPU here, None where there is one."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU (no device, or the driver does not answer)"
    return None


def gpu_facts() -> DeviceFacts:
    """The current GPU. Raises Unanswerable where there is none."""
    version = require_torch()
    why = no_gpu()
    if why is not None:
        raise Unanswerable(f"no CUDA GPU here: {why}", "run it on the GPU that you ask about")
    import torch

    from dsv4bench.kernels.arguments import interpreted

    if interpreted():
        raise UsageError("TRITON_INTERPRET is set: Triton would interpret the kernels, not run them", "unset it")
    told = torch.cuda.get_device_properties(torch.cuda.current_device())
    return DeviceFacts(
        name=told.name,
        arch=f"sm_{told.major}{told.minor}",
        sms=told.multi_processor_count,
        l2_bytes=told.L2_cache_size,
        driver=_driver(),
        torch=version,
        triton=triton_version(),
    )


def interpreter_facts() -> DeviceFacts:
    """A CPU. Raises UsageError where torch or Triton is not installed."""
    version, triton = require_torch(), triton_version()
    if triton is None:
        raise UsageError("no GPU here, and triton is not installed: nothing can run the kernels", INSTALL)
    return DeviceFacts(name=INTERPRETER, torch=version, triton=triton)


def sm_of(device: DeviceFacts) -> int:
    """90 for sm_90; 0 for a CPU, whose interpreter knows no architecture."""
    return 0 if device.arch is None else int(device.arch.removeprefix("sm_"))


def _driver() -> str | None:
    told = nvml.describe()
    return None if isinstance(told, str) else told[1]
