"""`dsv4bench kernels list`: the registry as a document: inputs, architectures, bytes and FLOPs, and what loads here.

Bytes and FLOPs are the floor of one call of DeepSeek-V4-Flash at one batch, from `dsv4`. Loading a kernel is tried:
a library that is missing, or that fails as it is imported, is what `why_not` says.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys

from dsv4bench.dsv4 import FLASH, ComponentCost, attention_call, moe_call
from dsv4bench.errors import BenchError
from dsv4bench.kernels.registry import Kernel, kernels
from dsv4bench.records.kernels import KernelEntry, KernelInput, KernelListDocument

BATCH = 16


def run_list(names: str | None = None) -> KernelListDocument:
    """Raises UsageError for a kernel that is not on the list."""
    chosen = kernels(names)
    gpu = _gpu()
    entries = [_entry(k, None if gpu is None else gpu[1]) for k in chosen]
    return KernelListDocument(batch=BATCH, gpu=None if gpu is None else f"{gpu[0]} (sm_{gpu[1]})", kernels=entries)


def _entry(kernel: Kernel, sm: int | None) -> KernelEntry:
    why_not = _why_not(kernel)
    call, cost = _call(kernel)
    return KernelEntry(
        name=kernel.name,
        component=kernel.component,
        role=kernel.role,
        summary=kernel.summary,
        replaces=kernel.replaces,
        default=kernel.default,
        inputs=[KernelInput(name=p.name, dtype=p.dtype, shape=p.shape) for p in kernel.inputs],
        min_sm=kernel.min_sm,
        archs=list(kernel.archs),
        loads=why_not is None,
        why_not=why_not,
        fits_gpu=None if sm is None else kernel.supports(sm),
        call=call,
        floor_bytes=round(cost.bytes_memory),
        flops=round(cost.flops),
    )


def _call(kernel: Kernel) -> tuple[str, ComponentCost]:
    d = FLASH
    if kernel.component == "moe":
        of = f"M={BATCH}, {d.experts} experts, top {d.experts_per_token}, {d.hidden} x {d.expert_hidden}"
        return of, moe_call(d, BATCH)
    of = f"B={BATCH}, {d.heads} heads, {d.window} + {d.index_topk} rows"
    return of, attention_call(d, BATCH, extra=d.index_topk)


def _why_not(kernel: Kernel) -> str | None:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries greet on stdout, which is --json's alone
            kernel.load()
    except BenchError as e:
        return e.message + (f" ({e.hint})" if e.hint else "")
    except Exception as e:  # a foreign library, broken in whatever way it likes
        return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return None


def _gpu() -> tuple[str, int] | None:
    """Name and compute capability of the first CUDA device."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return torch.cuda.get_device_name(0), 10 * major + minor
