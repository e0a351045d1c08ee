"""`tl.dot_scaled` for Triton's interpreter, which has none (seen with 3.6). Never imported on a GPU.

Both operands are widened to float32 with their scales, and multiplied; K is packed in the low nibble first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def _e4m3(code: Any) -> Any:
    """uint8 -> float32."""
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float32)
    magnitude = np.where(
        exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent.astype(np.int32) - 10)
    )
    value = np.where((code & 0x7F) == 0x7F, np.nan, magnitude)
    return np.where(code & 0x80, -value, value).astype(np.float32)


def _wide(codes: Any, scale: Any, form: Any, k_axis: int) -> Any:
    codes = np.moveaxis(codes, k_axis, -1).view(np.uint8)
    if form == ir.ScaleDotElemTypeTY.E2M1:
        values = _E2M1[np.stack((codes & 15, codes >> 4), -1)].reshape(*codes.shape[:-1], -1)
    else:
        values = _e4m3(codes)
    # In float64, where 2**-127 is no subnormal.
    return np.moveaxis(values * np.repeat(np.ldexp(1.0, scale.astype(np.int32) - 127), 32, axis=-1), -1, k_axis)


def _create_dot_scaled(
    self: Any, lhs: Any, lhs_scale: Any, lhs_form: Any, rhs: Any, rhs_scale: Any, rhs_form: Any,
    fast_math: bool, lhs_k_pack: bool, rhs_k_pack: bool, acc: Any,
) -> Any:  # fmt: skip
    a = _wide(np.ascontiguousarray(lhs.data), lhs_scale.data, lhs_form, -1)
    b = _wide(np.ascontiguousarray(rhs.data), rhs_scale.data, rhs_form, 0)
    return interpreter.TensorHandle((a @ b + acc.data).astype(np.float32), tl.float32)


_dot_scaled = TritonSemantic.dot_scaled


def _dot_scaled_of_names(
    self: Any, lhs: Any, lhs_scale: Any, lhs_form: Any, rhs: Any, rhs_scale: Any, rhs_form: Any, *rest: Any
) -> Any:
    """The interpreter hands a format on as a plain string, where a compiler's constant is expected."""
    forms = [form if isinstance(form, tl.constexpr) else tl.constexpr(form) for form in (lhs_form, rhs_form)]
    return _dot_scaled(self, lhs, lhs_scale, forms[0], rhs, rhs_scale, forms[1], *rest)


TritonSemantic.dot_scaled = _dot_scaled_of_names
interpreter.InterpreterBuilder.create_dot_scaled = _create_dot_scaled
