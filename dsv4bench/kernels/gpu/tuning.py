"""Triton's autotuner at its two awkward places: the interpreter, and the capture of a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from dsv4bench.errors import UsageError


def choices(configs: Sequence[triton.Config], interpreted: int = 0) -> list[triton.Config]:
    """What the autotuner may choose from; under the interpreter, which cannot be timed, the one of that number.

    An operation costs the interpreter the same for small tiles as for large ones.
    """
    return [configs[interpreted]] if triton.knobs.runtime.interpret else list(configs)


def refuse_in_capture(kernel: Any, *key: int) -> None:
    """Raises UsageError when launching `kernel` would have to tune for `key` while a CUDA graph is being captured.

    Tuning times every choice and synchronises, which breaks a capture with an error that names neither.
    """
    capturing = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    if capturing and not any(tuned[: len(key)] == key for tuned in kernel.cache):
        names = ", ".join(f"{name} = {value}" for name, value in zip(kernel.keys, key, strict=True))
        raise UsageError(
            f"{kernel.base_fn.__name__} is not tuned yet for {names}", "call it once before the graph is captured"
        )
