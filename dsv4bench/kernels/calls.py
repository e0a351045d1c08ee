"""What the hot kernels are called with: one tensor bundle a component, the same for every implementation.

    MoE        out[m] = route_scale * sum_k weights[m, k] * expert(ids[m, k])(x[m])
    attention  out[b, h] = sum_i p_i kv_i,  p = softmax(scale * q.kv) over the valid rows of both caches, the sink
               logit of the head being one more term of the denominator that contributes no value

A `MoeRunner` and an `AttentionRunner` are what a registered kernel loads into; both can be captured in a CUDA
graph: shapes are fixed, and expert ids, indices and lengths are read on the device. Importing this needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dsv4bench.kernels.sets import Experts

if TYPE_CHECKING:
    from torch import Tensor

# How the returned log-sum-exp (natural logarithm) treats the sink: SGLang includes it (Triton), FlashMLA does not.
Lse = Literal["plain", "with_sink"]


@dataclass(frozen=True, slots=True)
class MoeCall:
    """M tokens of width D, K experts each."""

    x: Tensor  # bf16 [M, D]
    ids: Tensor  # int32 [M, K]; -1: no expert in this slot
    weights: Tensor  # float32 [M, K]
    experts: Experts


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Which rows of one paged cache each request attends. Data is laid out as `mla_cache` says."""

    data: Tensor  # uint8 [pages, page_bytes], page_bytes = mla_cache.page_bytes(page_size)
    page_size: int  # tokens a page
    index: Tensor  # int32 [B, topk]: page * page_size + offset; a negative one is no row, wherever it stands
    length: Tensor | None  # int32 [B]: entries at or beyond it are no rows, whatever they hold; None: topk


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """B requests with one query token each, H heads, one shared KV head with K = V."""

    q: Tensor  # bf16 [B, H, 512]
    window: PagedRows
    extra: PagedRows | None
    sink: Tensor | None  # float32 [H]
    scale: float


class MoeRunner(Protocol):
    """One MoE implementation."""

    def prepare(self, experts: Experts) -> Any:
        """Whatever is done once when weights are loaded: repacking, expanding scales."""
        ...

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Any) -> Tensor:
        """-> bf16 [M, D]. No host synchronisation."""
        ...


class AttentionRunner(Protocol):
    """One sparse-decode implementation."""

    lse: Lse  # the convention of the second result

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """-> (out bf16 [B, H, 512], lse float32 [B, H]); a request without rows has out 0 and plain lse -inf."""
        ...
