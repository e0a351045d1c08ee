"""Memory that a kernel allocates and does not write holds NaN, so that an output that was never written is found.

Two nets, since neither sees all. A dispatch mode fills what Python allocates (torch.empty and its kin), on any
device. On a GPU the free memory of PyTorch's allocator is filled first, for what an extension allocates in C++.
PyTorch's own deterministic fill would do both, but it also switches algorithms, so that another code than the timed
one would be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# A quiet NaN in bf16, fp16, fp32 and fp64 alike when repeated, and not the one that arithmetic makes.
_HALF_WORD = 0x7FFD
_BYTE = 0xFF  # NaN as E4M3, E5M2 and E8M0
_EMPTY = frozenset(
    getattr(torch.ops.aten, name)
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
_MIB = 1 << 20
_SMALL = _MIB  # the caching allocator serves sizes up to this one from segments of their own, of 2 MiB
_FRESH = (256 * _MIB, *(64 * [_SMALL]))


@contextmanager
def poisoned(device: torch.device | str) -> Iterator[None]:
    """What is allocated inside, in this thread, holds NaN until it is written; integers hold huge values."""
    if torch.device(device).type == "cuda":
        _poison_free_memory(torch.device(device))
    with _PoisonNew():  # type: ignore[no-untyped-call]
        yield


def unwritten(out: Tensor) -> int:
    """Elements of a 16- or 32-bit float tensor that still hold the poison."""
    word = {2: (torch.int16, _HALF_WORD), 4: (torch.int32, _HALF_WORD << 16 | _HALF_WORD)}[out.element_size()]
    return int((out.contiguous().view(word[0]) == word[1]).sum())


def poison(tensor: Tensor) -> Tensor:
    """Fills it, whatever its type and strides."""
    # In memory order: a view of another element type needs the last dimension to be dense.
    flat = tensor.as_strided((_span(tensor),), (1,))
    size = tensor.element_size()
    if tensor.dtype == torch.bool:
        flat.fill_(True)
    elif size == 1:
        flat.view(torch.uint8).fill_(_BYTE)
    else:
        flat.view(torch.int16).fill_(_HALF_WORD)
    return tensor


def _span(tensor: Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


class _PoisonNew(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return poison(made) if func.overloadpacket in _EMPTY else made


def _poison_free_memory(device: torch.device) -> None:
    """Fills every hole between the tensors that live, and fresh memory for what fits into none."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    index = torch.cuda.current_device() if device.index is None else device.index
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    sizes = (*sorted(_holes(segments, index), reverse=True), *_FRESH)
    blocks = [torch.full((size // 2,), _HALF_WORD, dtype=torch.int16, device=device) for size in sizes]
    del blocks


def _holes(segments: list[dict[str, Any]], device: int) -> Iterator[int]:
    """Bytes of each free block of the allocator, in sizes that are served from its kind of segment."""
    for segment in segments:
        if segment.get("device", device) != device or tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            continue  # the memory of a captured graph serves no one else
        for block in segment["blocks"]:
            left = block["size"] if block["state"] == "inactive" else 0
            most = _SMALL if segment["segment_type"] == "small" else left
            while left > 0:
                yield min(left, most)
                left -= most
