"""Grouped MoE with MXFP8 activations (W4A8): weights widened to E4M3, native QMMA on sm_120. An explicit choice.

Activations keep four significant bits: see `docs/kernels.md` for the measured error.
"""

from __future__ import annotations

from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu import scaled_moe


def runner() -> scaled_moe.ScaledMoe:
    """The implementation, ready to call."""
    return scaled_moe.ScaledMoe("grouped_moe_w4a8", "e4m3")


def builds() -> tuple[Build, ...]:
    """Both GEMMs."""
    return scaled_moe.builds("e4m3")
