"""What only a GPU can show: capture in a CUDA graph, replayed on other inputs, and no wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from dsv4bench.kernels.calls import MoeCall
from dsv4bench.kernels.cases import MoeShape, make_experts, make_moe
from dsv4bench.kernels.comparison import compare
from dsv4bench.kernels.reference import moe
from dsv4bench.kernels.registry import kernels

EXPERTS = MoeShape(tokens=1, experts=64, inner=512)
KERNELS = ["grouped_moe", "grouped_moe_separate"]


@pytest.fixture(scope="module")
def experts() -> Any:
    return make_experts(EXPERTS, 0, "cuda")


@pytest.fixture
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def _calls(tokens: int, experts: Any) -> list[MoeCall]:
    """Uniform, skewed, with holes, all but empty: each of the same shape."""
    made = []
    for seed, routing in enumerate(("uniform", "skewed", "some -1", "a token of -1", "all -1", "uniform")):
        shape = MoeShape(tokens=tokens, experts=64, inner=512, routing=routing)  # type: ignore[arg-type]
        made.append(make_moe(shape, seed, "cuda", experts))
    return made


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 160])
@pytest.mark.parametrize("name", KERNELS)
def test_a_captured_call_follows_its_inputs(name: str, tokens: int, experts: Any) -> None:
    (kernel,) = kernels(name)
    runner = kernel.load()
    prepared = runner.prepare(experts)
    calls = _calls(tokens, experts)
    x, ids, weights = calls[0].x.clone(), calls[0].ids.clone(), calls[0].weights.clone()
    runner(x, ids, weights, prepared)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [runner(x, ids, weights, prepared) for _ in range(3)]  # back to back, as layers are
    for call in calls:
        x.copy_(call.x), ids.copy_(call.ids), weights.copy_(call.weights)
        for out in outs:
            out.fill_(float("nan"))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        for out in outs:
            assert compare(out, None, moe(call), rel_fro_limit=kernel.rel_fro_limit).why is None
            assert torch.equal(out, outs[0])  # whoever arrives last


@pytest.mark.parametrize("tokens", [1, 16])
@pytest.mark.parametrize("name", KERNELS)
def test_a_call_does_not_wait_for_the_device(name: str, tokens: int, experts: Any, no_waiting: None) -> None:
    torch.cuda.set_sync_debug_mode("default")
    (kernel,) = kernels(name)
    runner = kernel.load()
    prepared = runner.prepare(experts)
    call = _calls(tokens, experts)[0]
    runner(call.x, call.ids, call.weights, prepared)
    torch.cuda.set_sync_debug_mode("error")
    runner(call.x, call.ids, call.weights, prepared)
