"""How far an output may be from the reference. Every bound is a positive comparison, so NaN never passes.

    rel_fro  |out - ref| / |ref|, Frobenius                           limit: the kernel's, 1e-2 unless it says so
    worst    max |out - ref| / (5 limit * rms + 2 limit * |ref|)      bad above 1
    lse      max |lse - ref| / (5e-3 + 1e-5 |ref|), in nats           bad above 1; infinities must be the same

In float64. `rms` is that of the reference's own row (one token, or one head of a request): a small row among large
ones is held to its own size, and a row of zeros to exact zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.kernels.poison import unwritten

REL_FRO_LIMIT = 1e-2
WORST_RMS, WORST_RELATIVE = 5.0, 2.0  # multiples of the Frobenius limit
LSE_ABSOLUTE, LSE_RELATIVE = 5e-3, 1e-5


@dataclass(frozen=True, slots=True)
class Comparison:
    """`why` says what is bad; None: nothing is. Numbers are None where nothing could be compared."""

    rel_fro: float | None = None
    worst: float | None = None
    lse_worst: float | None = None
    why: str | None = None


def compare(
    out: Tensor,
    lse: Tensor | None,
    expected: Tensor,
    expected_lse: Tensor | None = None,
    rel_fro_limit: float = REL_FRO_LIMIT,
) -> Comparison:
    """bf16 `out` and float32 `lse` (None: a component without) against float64 of the same shapes."""
    refused = _unusable("out", out, expected, torch.bfloat16)
    if expected_lse is not None and lse is None:
        refused = refused or "no lse was returned"
    if expected_lse is not None and lse is not None:
        refused = refused or _unusable("lse", lse, expected_lse, torch.float32)
    if refused:
        return Comparison(why=refused)
    rel_fro, worst, why = _compare_out(out.double(), expected, rel_fro_limit)
    lse_worst = None
    if lse is not None and expected_lse is not None:
        lse_worst, lse_why = _compare_lse(lse.double(), expected_lse)
        why = why or lse_why
    return Comparison(rel_fro, worst, lse_worst, why)


def _unusable(name: str, tensor: Tensor, expected: Tensor, dtype: torch.dtype) -> str | None:
    if tensor.shape != expected.shape or tensor.dtype != dtype:
        found = f"{tensor.dtype} {list(tensor.shape)}"
        return f"{name} is {found}, not {dtype} {list(expected.shape)}".replace("torch.", "")
    count, missing = tensor.numel(), unwritten(tensor)
    if missing:
        return f"{missing} of {count} elements of {name} were never written"
    nans = int(tensor.isnan().sum())
    if nans:
        return f"{nans} of {count} elements of {name} are NaN"
    infinite = int((tensor.isinf() & expected.isfinite()).sum())
    return f"{infinite} of {count} elements of {name} are infinite" if infinite else None


def _compare_out(out: Tensor, expected: Tensor, limit: float) -> tuple[float | None, float | None, str | None]:
    error, size = (out - expected).abs(), expected.abs()
    rms = size.square().mean(-1, keepdim=True).sqrt()
    bound = WORST_RMS * limit * rms + WORST_RELATIVE * limit * size
    strays = int(((bound == 0) & ~(error == 0)).sum())
    if strays:
        return None, None, f"{strays} elements are not 0 where the reference is"
    # Where the bound is 0 the error is, too.
    ratio = torch.where(bound > 0, error / bound, 0.0)
    worst, norm = float(ratio.max()), float(expected.norm())
    rel_fro = float(error.norm()) / norm if norm > 0 else 0.0
    if not rel_fro <= limit:
        return rel_fro, worst, f"relative Frobenius error {rel_fro:.2e}, limit {limit:.2e}"
    if not worst <= 1:
        at = torch.unravel_index(ratio.argmax(), ratio.shape)
        place = [int(i) for i in at]
        return rel_fro, worst, f"element {place} is {float(out[at]):.4g}, the reference {float(expected[at]):.4g}"
    return rel_fro, worst, None


def _compare_lse(lse: Tensor, expected: Tensor) -> tuple[float | None, str | None]:
    infinite = expected.isinf()
    differing = int(((lse != expected) & infinite).sum())
    if differing:
        return None, f"lse of {differing} heads is finite, the reference -inf"
    error = torch.where(infinite, 0.0, (lse - expected).abs() / (LSE_ABSOLUTE + LSE_RELATIVE * expected.abs()))
    worst = float(error.max())
    return worst, None if worst <= 1 else f"lse is off by {float((lse - expected).abs()[~infinite].max()):.2e}"
