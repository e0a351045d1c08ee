"""torch's grouped GEMM over experts that were dequantised to bf16: no FP4 in the inner loop, four times the bytes.

A sanity peer more than a rival: it shows what a plain bf16 grouped GEMM reaches. Its GB/s are counted on the FP4
floor like everyone's, so that the column stays comparable; the bytes it really moves are about 3.8 times that.
`torch._grouped_mm` is not a public name and may change. Run on an H200 with torch 2.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsv4bench.errors import UsageError
from dsv4bench.kernels.sets import Experts

if TYPE_CHECKING:
    from torch import Tensor


class Prepared(NamedTuple):
    """bf16 weights: [E, 2I, D] and [E, D, I]."""

    w13: Tensor
    w2: Tensor
    limit: float
    route_scale: float


class GroupedMM:
    """A `MoeRunner`. Slots without an expert (-1) sort behind every expert and are multiplied by none."""

    def prepare(self, experts: Experts) -> Prepared:
        import torch

        from dsv4bench.kernels.mxfp4 import dequantize

        def bf16(packed: Tensor, scales: Tensor) -> Tensor:
            shape = (*packed.shape[:-1], packed.shape[-1] * 2)
            whole = torch.empty(shape, dtype=torch.bfloat16, device=packed.device)
            for e in range(packed.shape[0]):  # one at a time: the float32 form of all would be eight times the store
                whole[e] = dequantize(packed[e], scales[e], torch.bfloat16)
            return whole

        w13, w2 = bf16(experts.w13, experts.s13), bf16(experts.w2, experts.s2)
        return Prepared(w13, w2, experts.swiglu_limit, experts.route_scale)

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Prepared) -> Tensor:
        import torch

        p = prepared
        (tokens, k), count = ids.shape, p.w13.shape[0]
        flat = torch.where(ids < 0, count, ids).view(-1)
        by_expert, order = flat.sort(stable=True)
        ends = torch.searchsorted(by_expert, torch.arange(count, device=x.device, dtype=flat.dtype), right=True)
        offsets = ends.to(torch.int32)
        hidden = torch._grouped_mm(x[order // k], p.w13.transpose(1, 2), offs=offsets)
        gate, up = hidden.float().chunk(2, dim=1)
        gate, up = gate.clamp(max=p.limit), up.clamp(-p.limit, p.limit)
        act = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16)
        parts = torch._grouped_mm(act, p.w2.transpose(1, 2), offs=offsets).float()
        weight = weights.reshape(-1)[order] * p.route_scale
        parts = torch.where((by_expert < count).unsqueeze(1), parts * weight.unsqueeze(1), 0.0)
        out = torch.zeros(tokens, x.shape[1], dtype=torch.float32, device=x.device)
        return out.index_add_(0, order // k, parts).to(torch.bfloat16)


def runner() -> Any:
    """Raises UsageError where this torch has no grouped GEMM."""
    import torch

    if not hasattr(torch, "_grouped_mm"):
        raise UsageError(f"grouped_mm: torch {torch.__version__} has no _grouped_mm", "needs torch 2.8 or newer")
    return GroupedMM()
