"""One small interface for the two hot kernels of a decode step, and the sets that implement it.

A set is chosen by name: `fallback` works the way the slow CUDA-core kernels do (slot by slot, head by head),
`optimized` groups the tokens of an expert and the heads of a token. Both compute the same numbers; the engine
and the parity gate know only this protocol. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

KernelName = Literal["fallback", "optimized"]
KERNEL_NAMES: tuple[KernelName, ...] = ("fallback", "optimized")


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of one layer in MXFP4 (see `mxfp4`): E experts, width D, inner width I."""

    w13: Tensor  # uint8 [E, 2I, D/2]: the gate's rows first, then those of up
    s13: Tensor  # uint8 [E, 2I, D/32]
    w2: Tensor  # uint8 [E, D, I/2]
    s2: Tensor  # uint8 [E, D, I/32]
    swiglu_limit: float  # gate <= limit, up in [-limit, limit]
    route_scale: float


@dataclass(frozen=True, slots=True)
class CacheRows:
    """The rows of one paged cache that each query attends; valid rows stand first, -1 fills the rest."""

    pool: Tensor  # [pages, page_size, d]
    index: Tensor  # int [T, topk]: page * page_size + offset, or -1
    length: Tensor  # int [T]: valid entries of each row
    max_length: int  # the largest of them, known on the host without a sync


class KernelSet(Protocol):
    """What an implementation offers."""

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
        """x [T, D], ids int [T, K] (-1: no expert), weights [T, K] -> route_scale * sum_k w_k * expert_k(x).

        expert(x) = W2 (silu(min(W1 x, limit)) * clamp(W3 x, -limit, limit)).
        """
        ...

    def sparse_decode(
        self, q: Tensor, window: CacheRows, extra: CacheRows | None, sink: Tensor, scale: float
    ) -> Tensor:
        """q [T, H, d], one shared KV head (K = V), sink [H] -> [T, H, d].

        Softmax over the rows of both caches; exp(sink) enlarges the denominator and contributes no value. A
        query with no valid row yields zeros.
        """
        ...


def kernel_set(name: KernelName, attention: KernelName | None = None) -> KernelSet:
    """The set of that name, in torch; with `attention` its sparse decode is another set's."""
    if attention not in (None, name):
        from dsv4bench.kernels.cpu.mixed import MixedKernels

        return MixedKernels(kernel_set(name), kernel_set(attention))
    if name == "fallback":
        from dsv4bench.kernels.cpu.fallback import FallbackKernels

        return FallbackKernels()
    from dsv4bench.kernels.cpu.optimized import OptimizedKernels

    return OptimizedKernels()
