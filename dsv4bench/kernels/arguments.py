"""Are these tensors what a kernel takes? One line that names the argument, what it is and what is supported.

Called at the head of every runner. Reads shapes, types and devices only: microseconds, and no wait for the device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, PagedRows
from dsv4bench.kernels.mla_cache import HEAD_DIM, page_bytes
from dsv4bench.kernels.mxfp4 import BLOCK
from dsv4bench.kernels.sets import Experts


def check_moe(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    experts: Experts,
    *,
    kernel: str,
    min_sm: int = 80,
    archs: Sequence[str] = (),
    multiple: int = BLOCK,
) -> None:
    """Raises UsageError unless `kernel` takes this call. `archs`: exactly these; empty: every one from min_sm on."""
    check_experts(experts, kernel=kernel, min_sm=min_sm, archs=archs, multiple=multiple)
    hidden = experts.w2.shape[1]
    check_tokens(x, ids, weights, hidden=hidden, kernel=kernel, min_sm=min_sm, archs=archs)
    _same_device(kernel, x, w13=experts.w13)


def check_experts(
    experts: Experts, *, kernel: str, min_sm: int = 80, archs: Sequence[str] = (), multiple: int = BLOCK
) -> None:
    """The weights' half of `check_moe`, for `prepare`. The widths D and I must be multiples of `multiple`."""
    w13, w2 = experts.w13, experts.w2
    _tensor(kernel, "w13", w13, torch.uint8, ("E", "2I", "D/2"))
    count, rows, half = w13.shape
    hidden, inner = 2 * half, rows // 2
    if rows % 2:
        raise _refusal(kernel, "w13", _described(w13), "an even number of rows, gate's first and then up's")
    for name, width in (("D", hidden), ("I", inner)):
        if width % multiple:
            raise _refusal(
                kernel, "w13", f"{_described(w13)}, so {name} = {width}", f"{name} a multiple of {multiple}"
            )
    _tensor(kernel, "s13", experts.s13, torch.uint8, (count, rows, hidden // BLOCK))
    _tensor(kernel, "w2", w2, torch.uint8, (count, hidden, inner // 2))
    _tensor(kernel, "s2", experts.s2, torch.uint8, (count, hidden, inner // BLOCK))
    _same_device(kernel, w13, s13=experts.s13, w2=w2, s2=experts.s2)
    _device(kernel, "w13", w13, min_sm, archs)


def check_tokens(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    *,
    hidden: int,
    kernel: str,
    min_sm: int = 80,
    archs: Sequence[str] = (),
) -> None:
    """The tokens' half of `check_moe`, for each call; `hidden` is the width that the prepared experts take."""
    _tensor(kernel, "x", x, torch.bfloat16, ("M", hidden))
    tokens = x.shape[0]
    _tensor(kernel, "ids", ids, torch.int32, (tokens, "K"))
    _tensor(kernel, "weights", weights, torch.float32, tuple(ids.shape))
    _same_device(kernel, x, ids=ids, weights=weights)
    _device(kernel, "x", x, min_sm, archs)


def check_attention(
    call: AttentionCall,
    *,
    kernel: str,
    min_sm: int = 80,
    archs: Sequence[str] = (),
    heads: Sequence[int] = (),
    page_sizes: Sequence[int] = (),
) -> None:
    """Raises UsageError unless `kernel` takes this call. `heads`, `page_sizes`: only these; empty: any."""
    q = call.q
    _tensor(kernel, "q", q, torch.bfloat16, ("B", "H", HEAD_DIM))
    if heads and q.shape[1] not in heads:
        raise _refusal(kernel, "q", f"{_described(q)}, so H = {q.shape[1]}", f"H one of {_listed(heads)}")
    _rows(kernel, "window", call.window, q, page_sizes)
    if call.extra is not None:
        _rows(kernel, "extra", call.extra, q, page_sizes)
    if call.sink is not None:
        _tensor(kernel, "sink", call.sink, torch.float32, (q.shape[1],))
        _same_device(kernel, q, sink=call.sink)
    if not (math.isfinite(call.scale) and call.scale > 0):
        raise _refusal(kernel, "scale", str(call.scale), "a finite number above 0")
    _device(kernel, "q", q, min_sm, archs)


def _rows(kernel: str, cache: str, rows: PagedRows, q: Tensor, page_sizes: Sequence[int]) -> None:
    size = rows.page_size
    if size < 1 or (page_sizes and size not in page_sizes):
        supported = f"one of {_listed(page_sizes)}" if page_sizes else "1 or more"
        raise _refusal(kernel, f"{cache}.page_size", str(size), supported)
    _tensor(kernel, f"{cache}.data", rows.data, torch.uint8, ("pages", page_bytes(size)))
    _tensor(kernel, f"{cache}.index", rows.index, torch.int32, (q.shape[0], "topk"))
    _same_device(kernel, q, **{f"{cache}.data": rows.data, f"{cache}.index": rows.index})
    if rows.length is not None:
        _tensor(kernel, f"{cache}.length", rows.length, torch.int32, (q.shape[0],))
        _same_device(kernel, q, **{f"{cache}.length": rows.length})


def _tensor(kernel: str, name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int | str, ...]) -> None:
    """A letter in `shape` stands for any size of 1 or more."""
    fits = len(tensor.shape) == len(shape) and all(
        size >= 1 if isinstance(wanted, str) else size == wanted
        for size, wanted in zip(tensor.shape, shape, strict=True)
    )
    if tensor.dtype != dtype or not fits:
        wanted = f"{_plain(dtype)} [{', '.join(map(str, shape))}]"
        raise _refusal(
            kernel, name, _described(tensor), f"{wanted}, each at least 1" if 0 in tensor.shape else wanted
        )
    if not tensor.is_contiguous():
        raise _refusal(kernel, name, f"{_described(tensor)} with strides {tensor.stride()}", "contiguous memory")


def _same_device(kernel: str, first: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        if tensor.device != first.device:
            raise _refusal(kernel, name, f"on {tensor.device}", f"the device of the other arguments, {first.device}")


def _device(kernel: str, name: str, tensor: Tensor, min_sm: int, archs: Sequence[str]) -> None:
    supported = f"a GPU of {_listed(archs)}" if archs else f"a GPU of sm_{min_sm} or newer"
    if tensor.is_cuda:
        sm = compute_capability(tensor.device)
        if not (f"sm_{sm}" in archs if archs else sm >= min_sm):
            gpu = torch.cuda.get_device_name(tensor.device)
            raise _refusal(kernel, name, f"on {tensor.device}, {gpu} of sm_{sm}", supported)
    elif tensor.device.type != "cpu":
        raise _refusal(kernel, name, f"on {tensor.device}", supported)
    elif not interpreted():
        hint = "move the tensors to a GPU, or set TRITON_INTERPRET=1 before Triton is imported (slow)"
        raise _refusal(kernel, name, "a CPU tensor", supported, hint)


@functools.cache
def compute_capability(device: torch.device) -> int:
    """90 for sm_90."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on CPU tensors."""
    try:
        import triton
    except ModuleNotFoundError:
        return False
    return bool(triton.knobs.runtime.interpret)


def _refusal(kernel: str, name: str, found: str, supported: str, hint: str = "") -> UsageError:
    return UsageError(f"kernel {kernel}: {name} is {found}; supported: {supported}", hint)


def _described(tensor: Tensor) -> str:
    return f"{_plain(tensor.dtype)} {list(tensor.shape)}"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(choices: Sequence[object]) -> str:
    return ", ".join(map(str, choices))
