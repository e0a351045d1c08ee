"""Grouped MoE with MXFP4 activations (W4A4): native OMMA on sm_120. Changes the numbers; an explicit choice.

Activations lose all but two to three significant bits: see `docs/kernels.md` for the measured error.
"""

from __future__ import annotations

from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu import scaled_moe


def runner() -> scaled_moe.ScaledMoe:
    """The implementation, ready to call."""
    return scaled_moe.ScaledMoe("grouped_moe_w4a4", "e2m1")


def builds() -> tuple[Build, ...]:
    """Both GEMMs."""
    return scaled_moe.builds("e2m1")
