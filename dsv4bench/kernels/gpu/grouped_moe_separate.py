"""`grouped_moe` with its two epilogues as launches of their own, so that a bench can tell what they cost."""

from __future__ import annotations

from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu.epilogue import BLOCK, combine_kernel, swiglu_kernel
from dsv4bench.kernels.gpu.grouped_moe import GroupedMoe


def runner() -> GroupedMoe:
    """The implementation, ready to call."""
    return GroupedMoe(fused=False)


def builds() -> tuple[Build, ...]:
    """The two epilogues; the GEMMs are those of `grouped_moe`."""
    ids = {"ids": "*i32"}
    swiglu = {"gate_up": "*fp32", "act": "*bf16", **ids}
    combine = {"part": "*fp32", "out": "*bf16", **ids}
    return (
        Build(swiglu_kernel, {**swiglu, "limit": "fp32"}, {"INNER": 2048, "LIFT_ACT": True, "BLOCK": BLOCK},
              label="swiglu", divisible_by_16=tuple(swiglu)),
        Build(combine_kernel, combine, {"D": 4096, "K": 6, "BLOCK": BLOCK},
              label="combine", divisible_by_16=tuple(combine)),
    )  # fmt: skip
