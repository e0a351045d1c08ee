"""A MoE whose activations are quantised on the fly to MXFP4 or MXFP8, for tensor cores that take such operands.

Four launches: routing, x to codes, and the two GEMMs of `scaled_gemm`. What `grouped_moe_w4a4` and
`grouped_moe_w4a8` are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.arguments import check_experts, check_tokens, interpreted
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu.mxfp4_pack import TILE_K, interleave, tiles
from dsv4bench.kernels.gpu.routing import route
from dsv4bench.kernels.gpu.scaled_gemm import quantize_kernel, scaled_down_kernel, scaled_gate_up_kernel
from dsv4bench.kernels.sets import Experts

Format = Literal["e2m1", "e4m3"]
ROWS, BT, STAGES, WARPS = 64, 8, 3, 2
QUANT_BLOCKS = 32  # of 32 elements, that one program quantises
WIDTH = {"e2m1": 16, "e4m3": 32}  # bytes of a block's codes
NATIVE = ("sm_120", "sm_121")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Repacked experts."""

    experts: int
    hidden: int
    inner: int  # filled up to a multiple of 128
    w13: Tensor
    s13: Tensor
    w2: Tensor
    s2: Tensor
    limit: float
    route_scale: float


class ScaledMoe:
    """A `MoeRunner`."""

    def __init__(self, name: str, form: Format) -> None:
        self.name, self.form = name, form
        if interpreted():
            import dsv4bench.kernels.gpu.interpreted_scaled  # noqa: F401

    def prepare(self, experts: Experts) -> Prepared:
        """Repacks; needs as much memory again as the experts. D must be a multiple of 128, I of 32."""
        check_experts(experts, kernel=self.name, archs=NATIVE)
        hidden = experts.w2.shape[1]
        if hidden % TILE_K:
            raise UsageError(f"kernel {self.name}: w13 has D = {hidden}; supported: D a multiple of {TILE_K}")
        halves = self.form == "e4m3"
        w13, s13 = tiles(interleave(experts.w13, TILE_K), interleave(experts.s13, TILE_K), ROWS, halves)
        w2, s2 = tiles(experts.w2, experts.s2, ROWS, halves)
        limit, scale = experts.swiglu_limit, experts.route_scale
        return Prepared(w13.shape[0], hidden, w2.shape[2] * TILE_K, w13, s13, w2, s2, limit, scale)

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        p = prepared
        check_tokens(x, ids, weights, hidden=p.hidden, kernel=self.name, archs=NATIVE)
        (tokens, k), slots = ids.shape, ids.numel()
        counters = triton.next_power_of_2(p.hidden // ROWS)
        out = torch.empty_like(x)
        groups = route(x, ids, out, p.experts, BT, counters, lifted=False, pdl=False)
        xq, xs = self._codes(tokens, p.hidden, x.device)
        blocks = tokens * p.hidden // 32
        size = min(QUANT_BLOCKS, blocks & -blocks)
        quantize_kernel[(blocks // size,)](x, xq, xs, BLOCKS=size, WIDTH=WIDTH[self.form], FORMAT=self.form)
        act, act_scale = self._codes(slots, p.inner, x.device)
        part = torch.empty(slots, p.hidden, dtype=torch.float32, device=x.device)
        lists = (groups.block_expert, groups.block_slots, groups.num_blocks)
        common: dict[str, Any] = {**_constants(self.form, p.hidden, p.inner, k), "num_warps": WARPS}
        scaled_gate_up_kernel[(groups.limit * (2 * p.inner // ROWS),)](
            xq, xs, p.w13, p.s13, act, act_scale, *lists, p.limit, WIDTH=WIDTH[self.form], **common
        )
        scaled_down_kernel[(groups.limit * (p.hidden // ROWS),)](
            act, act_scale, p.w2, p.s2, ids, weights, p.route_scale, part, out, *lists, groups.arrived,
            COUNTERS=counters, **common,
        )  # fmt: skip
        return out

    def _codes(self, rows: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        dtype = torch.uint8 if self.form == "e2m1" else torch.float8_e4m3fn
        codes = torch.empty(rows, width // 32 * WIDTH[self.form], dtype=dtype, device=device)
        return codes, torch.empty(rows, width // 32, dtype=torch.uint8, device=device)


def _constants(form: Format, hidden: int, inner: int, k: int) -> dict[str, Any]:
    return {
        "D": hidden, "INNER": inner, "K": k, "ROWS": ROWS, "BN": ROWS, "BT": BT, "STAGES": STAGES, "FORMAT": form
    }  # fmt: skip


def builds(form: Format) -> tuple[Build, ...]:
    """Both GEMMs as they are launched for the model."""
    codes = "*u8" if form == "e2m1" else "*fp8e4nv"
    lists = {"block_expert": "*i32", "block_slots": "*i32", "num_blocks": "*i32"}
    constants = _constants(form, 4096, 2048, 6)
    gate_up = {"x": codes, "xs": "*u8", "w": "*u8", "s": "*u8", "act": codes, "act_scale": "*u8", **lists}
    down = {
        "act": codes, "act_scale": "*u8", "w": "*u8", "s": "*u8", "ids": "*i32", "weights": "*fp32", "part": "*fp32",
        "out": "*bf16", "arrived": "*i32", **lists,
    }  # fmt: skip
    return (
        Build(scaled_gate_up_kernel, {**gate_up, "limit": "fp32"}, {**constants, "WIDTH": WIDTH[form]}, WARPS,
              label="gate_up", divisible_by_16=tuple(gate_up)),
        Build(scaled_down_kernel, {**down, "route_scale": "fp32"}, {**constants, "COUNTERS": 64}, WARPS,
              label="down", divisible_by_16=tuple(down)),
    )  # fmt: skip
