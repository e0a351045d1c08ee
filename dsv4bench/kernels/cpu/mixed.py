"""One component of each set, so that a campaign on a CPU can change one of them at a time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dsv4bench.kernels.sets import CacheRows, Experts, KernelSet


@dataclass(frozen=True, slots=True)
class MixedKernels:
    """The MoE of one set, the attention of another."""

    of_moe: KernelSet
    of_attention: KernelSet

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
        return self.of_moe.moe(x, ids, weights, experts)

    def sparse_decode(
        self, q: Tensor, window: CacheRows, extra: CacheRows | None, sink: Tensor, scale: float
    ) -> Tensor:
        return self.of_attention.sparse_decode(q, window, extra, sink, scale)
