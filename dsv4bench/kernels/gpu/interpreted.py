"""Four gaps of Triton's interpreter, closed, so that a kernel's own text can be checked on a CPU.

Imported by the package when TRITON_INTERPRET is set, and never on a GPU. Seen with Triton 3.6: a loop bound that is
an argument cannot become an int under NumPy 2.4; `tl.dot` multiplies the bits of bf16 operands as integers; and a
float32 that becomes bf16 is cut off where a GPU rounds to the nearest, ties to even; and one that becomes E4M3 loses
the carry of its rounding and does not know ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_patch_lang_tensor = interpreter._patch_lang_tensor
_convert_float = interpreter._convert_float
_create_dot = interpreter.InterpreterBuilder.create_dot
_TO_NEAREST = (None, interpreter._ir.ROUNDING_MODE.RTNE)


def _patch_lang_tensor_for_numpy(tensor: Any, *scope: Any) -> None:
    """Scalars are arrays of one element here; `item` accepts them, `int` no longer does."""
    _patch_lang_tensor(tensor, *scope)
    set_attr = scope[0].set_attr if scope else setattr  # Triton 3.5 has no scope
    set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _convert_float_to_nearest(data: Any, source: Any, target: Any, rounding: Any) -> Any:
    if source == tl.bfloat16 and target == tl.float32:
        return _widened(data)
    if source == tl.float32 and target == tl.bfloat16 and rounding in _TO_NEAREST:
        bits = data.view(np.uint32)
        even = (bits >> 16) & 1
        rounded = ((bits + 0x7FFF + even) >> 16).astype(np.uint16)
        return np.where(np.isnan(data), np.uint16(0x7FC0), rounded)
    if source == tl.float32 and target == tl.float8e4nv and rounding in _TO_NEAREST:
        code: Any = torch.from_numpy(np.ascontiguousarray(data)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        return code
    return _convert_float(data, source, target, rounding)


def _create_dot_of_bf16(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    def as_float(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        return interpreter.TensorHandle(_widened(operand.data).view(np.float32), tl.float32)

    return _create_dot(self, as_float(a), as_float(b), *rest)


def _widened(bf16: Any) -> Any:
    """The bits of bf16 -> those of the same values in float32."""
    return bf16.astype(np.uint32) << 16


interpreter._patch_lang_tensor = _patch_lang_tensor_for_numpy
interpreter._convert_float = _convert_float_to_nearest
interpreter.InterpreterBuilder.create_dot = _create_dot_of_bf16
