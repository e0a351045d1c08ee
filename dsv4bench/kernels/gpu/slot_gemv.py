"""The campaign's MoE fallback: one program a (token, expert) pair and block of outputs, and torch for the rest.

Written so that a decode step can be captured in a CUDA graph without looking at the routing: every pair streams all
of its expert's bytes, E2M1 is decoded arithmetically, and the product is a multiplication and a row sum, so no tensor
core takes part. Around the two GEMVs stand nineteen elementwise launches. That is the baseline; it is slow by
design, not by neglect.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsv4bench.kernels import mxfp4
from dsv4bench.kernels.arguments import check_experts, check_moe
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.gpu.tuning import choices, refuse_in_capture
from dsv4bench.kernels.sets import Experts

_TILES = ((64, 64, 4), (32, 64, 4), (64, 128, 4), (128, 64, 8))  # BLOCK_N, BLOCK_K, warps
_CONFIGS = [triton.Config({"BLOCK_N": n, "BLOCK_K": k}, num_warps=w, num_stages=2) for n, k, w in _TILES]


@triton.jit
def _e2m1(code):
    """Code 0..15 -> its value in float32."""
    exponent = (code >> 1) & 3
    mantissa = (code & 1).to(tl.float32)
    normal = tl.exp2(exponent.to(tl.float32) - 1.0) * (1.0 + 0.5 * mantissa)
    magnitude = tl.where(exponent == 0, 0.5 * mantissa, normal)
    return tl.where((code & 8) != 0, -magnitude, magnitude)


# The key leaves out the number of slots, although that is what changes in serving: the first call decides for all.
@triton.autotune(configs=choices(_CONFIGS, interpreted=3), key=["N", "K"])
@triton.jit
def _mxfp4_slot_gemv_kernel(
    x,  # bf16 [rows, K]
    w,  # uint8 [E, N, K/2]
    scale,  # float32 [E, N, K/32]
    rows,  # int32 [slots]: the row of x that a slot multiplies
    experts,  # int32 [slots], none negative
    y,  # bf16 [slots, N]
    N,
    K,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y[slot] = W[experts[slot]] x[rows[slot]]; grid (slots, ceil(N / BLOCK_N))."""
    slot = tl.program_id(0)
    expert = tl.load(experts + slot).to(tl.int64)
    row = tl.load(rows + slot).to(tl.int64)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pair = tl.arange(0, BLOCK_K // 2)  # a byte holds k = 2 pair and 2 pair + 1
    in_n = (n < N)[:, None]
    x += row * K
    w += expert * N * (K // 2)
    scale += expert * N * (K // 32)
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, K // 2, BLOCK_K // 2):
        at = start + pair
        in_k = at < K // 2
        inside = in_n & in_k[None, :]
        byte = tl.load(w + n[:, None] * (K // 2) + at[None, :], mask=inside, other=0)
        # Sixteen bytes of a row share a scale; it is loaded for each of them all the same.
        power = tl.load(scale + n[:, None] * (K // 32) + (at // 16)[None, :], mask=inside, other=0.0)
        even = tl.load(x + 2 * at, mask=in_k, other=0.0).to(tl.float32)
        odd = tl.load(x + 2 * at + 1, mask=in_k, other=0.0).to(tl.float32)
        code = byte.to(tl.int32)
        acc += tl.sum(_e2m1(code & 15) * power * even[None, :], axis=1)
        acc += tl.sum(_e2m1(code >> 4) * power * odd[None, :], axis=1)
    tl.store(y + slot.to(tl.int64) * N + n, acc.to(tl.bfloat16), mask=n < N)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The experts, and their scales expanded to float32: 20 bytes streamed for every 32 weights instead of 17."""

    experts: Experts
    s13: Tensor  # float32 [E, 2I, D/32]
    s2: Tensor  # float32 [E, D, I/32]


class SlotGemv:
    """A `MoeRunner`. The first call for a shape tunes, so it must not happen inside a graph capture."""

    def prepare(self, experts: Experts) -> Prepared:
        """Expands the E8M0 scales, exactly: byte 0 is 2**-127, a subnormal of float32, and 255 is NaN."""
        check_experts(experts, kernel="slot_gemv")
        return Prepared(experts, mxfp4.power_of_two(experts.s13), mxfp4.power_of_two(experts.s2))

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        """Every statement is one launch, as served; the order and the roundings to bf16 are part of the baseline.

        An absent expert (-1) is computed as expert 0 and multiplied by zero, so an expert 0 that overflows to
        infinity makes NaN of it.
        """
        given = prepared.experts
        check_moe(x, ids, weights, given, kernel="slot_gemv")
        tokens, per_token = ids.shape
        flat = ids.reshape(-1)
        experts = flat.clamp(min=0)
        absent = flat < 0
        rows = torch.arange(tokens, device=x.device, dtype=torch.int32)
        # One token's row, expanded, is a view that repeats one element; the kernel reads memory.
        rows = rows.unsqueeze(1).expand(-1, per_token).reshape(-1).contiguous()
        hidden = _gemv(x, given.w13, prepared.s13, rows, experts)
        inner = hidden.shape[1] // 2
        gate = hidden[:, :inner].float()
        up = hidden[:, inner:].float()
        gate = gate.clamp(max=given.swiglu_limit)
        up = up.clamp(min=-given.swiglu_limit, max=given.swiglu_limit)
        gate = torch.nn.functional.silu(gate)
        act = gate * up
        act = act.to(torch.bfloat16)
        rows = torch.arange(flat.numel(), device=x.device, dtype=torch.int32)
        y = _gemv(act, given.w2, prepared.s2, rows, experts)
        present = ~absent
        mask = present.to(y.dtype)
        y = y * mask.unsqueeze(1)
        w = weights.to(y.dtype)
        y = y.view(tokens, per_token, -1) * w.unsqueeze(-1)
        out = y.sum(dim=1)
        return out.mul_(given.route_scale)


def _gemv(x: Tensor, w: Tensor, scale: Tensor, rows: Tensor, experts: Tensor) -> Tensor:
    """-> bf16 [slots, N]."""
    slots, n, k = rows.numel(), w.shape[1], 2 * w.shape[2]
    y = torch.empty(slots, n, device=x.device, dtype=torch.bfloat16)
    refuse_in_capture(_mxfp4_slot_gemv_kernel, n, k)
    grid = lambda choice: (slots, triton.cdiv(n, choice["BLOCK_N"]))  # noqa: E731
    _mxfp4_slot_gemv_kernel[grid](x, w, scale, rows, experts, y, n, k)
    return y


def runner() -> SlotGemv:
    """The implementation, ready to call."""
    return SlotGemv()


def builds() -> tuple[Build, ...]:
    """Every choice of the autotuner; both GEMMs launch the same code, N and K being arguments."""
    signature = {
        "x": "*bf16",
        "w": "*u8",
        "scale": "*fp32",
        "rows": "*i32",
        "experts": "*i32",
        "y": "*bf16",
        "N": "i32",
        "K": "i32",
    }
    return tuple(
        Build(
            function=_mxfp4_slot_gemv_kernel.fn,
            signature=signature,
            constants={"BLOCK_N": n, "BLOCK_K": k},
            num_warps=warps,
            num_stages=2,
            label=f"BN{n} BK{k} warps{warps}",
            divisible_by_16=tuple(signature),
        )
        for n, k, warps in _TILES
    )
