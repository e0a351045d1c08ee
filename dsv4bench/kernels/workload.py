"""The data that kernels are timed on: for one component at one batch, as many sets as keep the L2 out of it.

MoE: one set of expert weights, a routing and activations of its own for every call. Attention: one pair of caches,
each at least three L2 sizes large, with rows and queries of its own for every call. What a call must move at least
comes from `dsv4`, with the experts that these routings really touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dsv4bench.dsv4.dims import FLASH, ModelDims
from dsv4bench.dsv4.step import ComponentCost, attention_call, expected_distinct_experts, moe_call
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.registry import Component
from dsv4bench.kernels.timing import L2_MULTIPLE, Call, Rotation, rotation

if TYPE_CHECKING:
    from torch import Tensor

    from dsv4bench.kernels.cases import AttentionShape, MoeShape, Pools
    from dsv4bench.kernels.comparison import Comparison
    from dsv4bench.kernels.sets import Experts

ROW_BYTES = 584


@dataclass(frozen=True, slots=True)
class Workload:
    """Data sets of one component at one batch. `cost` is the mean over the sets."""

    component: Component
    batch: int
    shape: str  # without the batch
    sets: tuple[MoeCall, ...] | tuple[AttentionCall, ...]
    rotation: Rotation
    cost: ComponentCost

    @property
    def floor_bytes(self) -> int:
        return round(self.cost.bytes_memory)


class Truth(NamedTuple):
    """The reference's result on the first set: out, and for attention the plain log-sum-exp."""

    out: Tensor
    lse: Tensor | None


def moe_workload(shape: MoeShape, experts: Experts, l2_bytes: int, seed: int, device: str) -> Workload:
    """Uniform routings over `experts`."""
    import torch

    from dsv4bench.kernels.cases import make_moe

    dims = _dims(shape)
    distinct = expected_distinct_experts(shape.experts, shape.top_k, shape.tokens)
    turn = rotation(moe_call(dims, shape.tokens, distinct=distinct).bytes_memory, l2_bytes)
    sets = tuple(make_moe(shape, seed + i, device, experts) for i in range(turn.sets))
    touched = [torch.unique(s.ids[s.ids >= 0]).numel() for s in sets]
    cost = moe_call(dims, shape.tokens, distinct=fmean(touched))
    return Workload("moe", shape.tokens, shape.shape, sets, turn, cost)


def attention_workload(shape: AttentionShape, pools: Pools, l2_bytes: int, seed: int, device: str) -> Workload:
    """Every request attends all of its window and extra rows, which lie anywhere in `pools`."""
    from dsv4bench.kernels.cases import make_attention

    turn = rotation(shape.batch * (shape.window + shape.extra) * ROW_BYTES, l2_bytes)
    sets = tuple(make_attention(shape, seed + i, device, pools) for i in range(turn.sets))
    cost = attention_call(FLASH, shape.batch, heads=shape.heads, window=shape.window, extra=shape.extra)
    return Workload("attention", shape.batch, shape.shape, sets, turn, cost)


def calls_of(load: Workload, runner: Any, prepared: Any) -> list[Call]:
    """One call a set."""
    if load.component == "moe":
        return [partial(runner, s.x, s.ids, s.weights, prepared) for s in load.sets if isinstance(s, MoeCall)]
    return [partial(runner, s) for s in load.sets]


def with_router_scale(load: Workload) -> Workload:
    """The routing factor inside of the weights, as servers' routers deliver it: for kernels that take it so."""
    sets = tuple(
        replace(s, weights=s.weights * s.experts.route_scale, experts=replace(s.experts, route_scale=1.0))
        for s in load.sets
        if isinstance(s, MoeCall)
    )
    return replace(load, sets=sets) if sets else load


def truth_of(load: Workload) -> Truth:
    """Of the first set, in float64."""
    from dsv4bench.kernels import reference

    first = load.sets[0]
    if isinstance(first, MoeCall):
        return Truth(reference.moe(first), None)
    return Truth(*reference.sparse_decode(first))


def check(load: Workload, runner: Any, prepared: Any, truth: Truth, limits: Sequence[float]) -> list[Comparison]:
    """The kernel's result on the first set, written into poisoned memory, against the reference: one a limit."""
    from dsv4bench.kernels.comparison import compare
    from dsv4bench.kernels.poison import poisoned
    from dsv4bench.kernels.reference import with_sink

    first = load.sets[0]
    with poisoned(truth.out.device):
        found = calls_of(load, runner, prepared)[0]()
    out, lse = found if isinstance(found, tuple) else (found, None)
    expected = truth.lse
    if expected is not None and isinstance(first, AttentionCall) and runner.lse == "with_sink":
        expected = with_sink(expected, first.sink)
    return [compare(out, lse, truth.out, None if lse is None else expected, limit) for limit in limits]


def _dims(shape: MoeShape) -> ModelDims:
    """The model whose layer this is; the same as FLASH at its own shape."""
    sizes = {"experts": shape.experts, "experts_per_token": shape.top_k}
    return msgspec.structs.replace(FLASH, hidden=shape.hidden, expert_hidden=shape.inner, **sizes)


def pool_rows(shape: AttentionShape, l2_bytes: int) -> int:
    """Rows of each cache: three L2 sizes, so that rows drawn from it come back as rarely."""
    return max(-(-L2_MULTIPLE * l2_bytes // ROW_BYTES), 4 * shape.window, 4 * shape.extra)
