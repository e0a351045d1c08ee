"""The cured MoE: tokens grouped by expert, packed MXFP4 to tensor cores, activation and top-k sum inside the GEMMs.

Three launches (two for one token), none of which the host waits for: routing, gate and up with the clamped SwiGLU,
down with route weights and the sum over the slots. Activations stay bf16 (W4A16). Weights are repacked once, by
`prepare`; they keep their 17 bytes for 32 weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.arguments import check_experts, check_tokens, compute_capability, interpreted
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu.epilogue import launch_combine, launch_swiglu
from dsv4bench.kernels.gpu.grouped_gemm import down_kernel, gate_up_kernel
from dsv4bench.kernels.gpu.mxfp4_pack import TILE_K, interleave, ordinary, pack
from dsv4bench.kernels.gpu.routing import Groups, launch, route, route_kernel
from dsv4bench.kernels.sets import Experts

NAME = "grouped_moe"
ROWS = 64  # of a packed tile
_PDL_FROM_SM = 90  # programmatic dependent launch, and prefetches into L2
_PDL_ARCHS = ("sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
_OTHER_ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89")
_ORDINARY_LIMIT = 2.0**30  # of |act|: beyond, act * 2**64 might not be a bf16


@dataclass(frozen=True, slots=True)
class Tile:
    """How one GEMM is cut: BN rows a program, stages of its pipeline, warps."""

    rows: int
    stages: int
    warps: int


@dataclass(frozen=True, slots=True)
class Plan:
    """For a number of tokens."""

    block: int  # BT, tokens of an expert that are multiplied together
    gate_up: Tile
    down: Tile
    direct: bool = False  # every slot its own block; no routing launch
    pdl: bool = True  # a launch may begin before the one in front of it has ended, where the GPU can do that
    ahead: int = 8192  # bytes of w2 that a program asks for while it waits for the activations; with `pdl`


def plan(tokens: int) -> Plan:
    """The best of what was measured on an H200 for 1, 2, 4, 16 and 64 tokens and 6 of 256 experts."""
    if tokens == 1:
        return Plan(8, Tile(64, 4, 4), Tile(64, 4, 4), direct=True)
    if tokens <= 3:
        return Plan(8, Tile(64, 4, 2), Tile(64, 4, 2), pdl=False)
    if tokens <= 6:
        return Plan(8, Tile(128, 3, 2), Tile(128, 3, 2))
    if tokens <= 24:
        return Plan(8, Tile(64, 5, 2), Tile(64, 3, 2), ahead=0)
    if tokens <= 128:
        return Plan(8, Tile(128, 4, 2), Tile(128, 4, 2), ahead=0)
    return Plan(16, Tile(64, 3, 2), Tile(64, 3, 2), ahead=0)


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
    exact13: bool  # scales that need the slower decode
    exact2: bool
    limit: float
    route_scale: float


class GroupedMoe:
    """A `MoeRunner`. Not `fused`: the epilogues are two launches of their own, for measuring what they cost."""

    def __init__(self, fused: bool = True) -> None:
        self.fused = fused

    def prepare(self, experts: Experts) -> Prepared:
        """Repacks; needs as much memory again as the experts. D must be a multiple of 128, I of 32."""
        check_experts(experts, kernel=NAME)
        hidden = experts.w2.shape[1]
        if hidden % TILE_K:
            raise UsageError(f"kernel {NAME}: w13 has D = {hidden}; supported: D a multiple of {TILE_K}")
        w13, s13 = pack(interleave(experts.w13, TILE_K), interleave(experts.s13, TILE_K), ROWS)
        w2, s2 = pack(experts.w2, experts.s2, ROWS)
        return Prepared(
            experts=w13.shape[0],
            hidden=hidden,
            inner=w2.shape[2] * TILE_K,
            w13=w13,
            s13=s13,
            w2=w2,
            s2=s2,
            exact13=not ordinary(experts.s13),
            exact2=not ordinary(experts.s2) or not experts.swiglu_limit <= _ORDINARY_LIMIT**0.5,
            limit=experts.swiglu_limit,
            route_scale=experts.route_scale,
        )

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        check_tokens(x, ids, weights, hidden=prepared.hidden, kernel=NAME)
        return run(x, ids, weights, prepared, plan(x.shape[0]), fused=self.fused)


def run(x: Tensor, ids: Tensor, weights: Tensor, p: Prepared, cut: Plan, *, fused: bool = True) -> Tensor:
    """-> bf16 [M, D]."""
    (tokens, k), device = ids.shape, x.device
    pdl = cut.pdl and fused and x.is_cuda and compute_capability(device) >= _PDL_FROM_SM
    counters = 1 << (p.hidden // cut.down.rows - 1).bit_length()
    out = torch.empty_like(x)
    if cut.direct:
        groups = _direct(x, ids, tokens * counters)
    else:
        groups = route(x, ids, out, p.experts, cut.block, counters, lifted=not p.exact13, pdl=pdl)
    common: dict[str, Any] = {
        "D": p.hidden, "INNER": p.inner, "K": k, "ROWS": ROWS, "BT": cut.block, "DIRECT": cut.direct,
        "PACKED": not interpreted(), "COUNTERS": counters, "PDL": pdl, "FUSED": fused, **launch(pdl),
    }  # fmt: skip
    act = torch.empty(tokens * k, p.inner, dtype=torch.bfloat16, device=device)
    both = act if fused else torch.empty(tokens * k, 2 * p.inner, dtype=torch.float32, device=device)
    gate_up_kernel[(groups.limit * (2 * p.inner // cut.gate_up.rows),)](
        groups.x, p.w13, p.s13, both, ids, groups.block_expert, groups.block_slots, groups.num_blocks, groups.arrived,
        out, p.limit, BN=cut.gate_up.rows, STAGES=cut.gate_up.stages, LIFTED=p.exact13 or not cut.direct,
        LIFT_ACT=not p.exact2, EXACT=p.exact13, num_warps=cut.gate_up.warps, **common,
    )  # fmt: skip
    if not fused:
        launch_swiglu(both, act, ids, p.limit, not p.exact2)
    part = torch.empty(tokens * k, p.hidden, dtype=torch.float32, device=device)
    down_kernel[(groups.limit * (p.hidden // cut.down.rows),)](
        act, p.w2, p.s2, ids, weights, p.route_scale, part, out, groups.block_expert, groups.block_slots,
        groups.num_blocks, groups.arrived, BN=cut.down.rows, STAGES=cut.down.stages, EXACT=p.exact2,
        PREFETCH=_ahead(cut, p.inner, pdl), num_warps=cut.down.warps, **common,
    )  # fmt: skip
    if not fused:
        launch_combine(part, ids, out)
    return out


def _ahead(cut: Plan, width: int, pdl: bool) -> int:
    """Bytes to prefetch: no more than a program reads, and nothing where it does not wait."""
    return min(cut.ahead, cut.down.rows * width // 2) if pdl else 0


def _direct(x: Tensor, ids: Tensor, counters: int) -> Groups:
    """Every slot a block; the arrays that only a routing launch fills are not read."""
    arrived = torch.empty(counters, dtype=torch.int32, device=x.device)
    return Groups(ids, ids, ids, arrived, x, ids.numel())


def runner() -> GroupedMoe:
    """The implementation, ready to call."""
    return GroupedMoe()


def builds() -> tuple[Build, ...]:
    """The launches for one and for 64 tokens of the model, as each architecture gets them."""
    found = [_route_build(False, _OTHER_ARCHS), _route_build(True, _PDL_ARCHS)]
    for pdl, archs in ((False, _OTHER_ARCHS), (True, _PDL_ARCHS)):
        for tokens in (1, 64):
            found += _gemm_builds(plan(tokens), f"M{tokens}", pdl, archs)
    return tuple(found)


def _route_build(pdl: bool, archs: tuple[str, ...]) -> Build:
    pointers = {
        "ids": "*i32", "x": "*bf16", "lifted": "*bf16", "out": "*bf16", "block_expert": "*i32", "block_slots": "*i32",
        "num_blocks": "*i32", "arrived": "*i32",
    }  # fmt: skip
    constants = {
        "D": 4096, "E_PAD": 256, "K": 6, "K_PAD": 8, "BT": 8, "COUNTERS": 32, "CHUNK": 512, "D_STEP": 2048,
        "LIFTED": True, "PDL": pdl,
    }  # fmt: skip
    aligned = ("ids", "x", "lifted", "out")
    return Build(route_kernel, {**pointers, "tokens": "i32"}, constants, label="route M64", archs=archs,
                 divisible_by_16=aligned)  # fmt: skip


def _gemm_builds(cut: Plan, label: str, pdl: bool, archs: tuple[str, ...]) -> list[Build]:
    lists = {"ids": "*i32", "block_expert": "*i32", "block_slots": "*i32", "num_blocks": "*i32", "arrived": "*i32"}
    weights = {"w": "*i16", "s": "*i32", "out": "*bf16"}
    gate_up = {"x": "*bf16", "act": "*bf16", **weights, **lists}
    down = {"act": "*bf16", "weights": "*fp32", "part": "*fp32", **weights, **lists}
    common = {
        "D": 4096, "INNER": 2048, "K": 6, "ROWS": ROWS, "BT": cut.block, "DIRECT": cut.direct, "PACKED": True,
        "COUNTERS": 4096 // cut.down.rows, "PDL": pdl, "FUSED": True, "EXACT": False,
    }  # fmt: skip
    for_gate_up = {
        "BN": cut.gate_up.rows, "STAGES": cut.gate_up.stages, "LIFTED": not cut.direct, "LIFT_ACT": True, **common
    }  # fmt: skip
    for_down = {
        "BN": cut.down.rows, "STAGES": cut.down.stages, "PREFETCH": _ahead(cut, 2048, pdl), **common
    }  # fmt: skip
    large = ("x", "act", "w", "s", "out", "part", "weights", "ids")
    return [
        Build(gate_up_kernel, {**gate_up, "limit": "fp32"}, for_gate_up, cut.gate_up.warps,
              label=f"gate_up {label}", archs=archs, divisible_by_16=tuple(n for n in large if n in gate_up)),
        Build(down_kernel, {**down, "route_scale": "fp32"}, for_down, cut.down.warps,
              label=f"down {label}", archs=archs, divisible_by_16=tuple(n for n in large if n in down)),
    ]  # fmt: skip
