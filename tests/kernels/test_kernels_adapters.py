"""The plugs for vLLM and SGLang, on classes of the shape that those engines have, through the interpreter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from interpreter import run

from dsv4bench.errors import UsageError

COMMON = """
from types import SimpleNamespace
import torch
from dsv4bench.kernels import cases
from dsv4bench.kernels.adapters import fused_moe as fused, sglang, vllm
from dsv4bench.kernels.comparison import compare
from dsv4bench.kernels.reference import moe

call = cases.make_moe(cases.MoeShape(tokens=2, experts=4, top_k=2, hidden=128, inner=64, routing="some -1"), 0)
e = call.experts
truth = moe(call)
scaled = call.weights * e.route_scale  # as engines hand weights over
"""

FUNCTION = (
    COMMON
    + """
args = (e.w13, e.s13, e.w2, e.s2)
one = fused.fused_moe(call.x, *args, scaled, call.ids, limit=e.swiglu_limit)
kept = dict(fused._layers)
two = fused.fused_moe(call.x, *args, call.weights, call.ids.long(), limit=e.swiglu_limit, route_scale=e.route_scale)
floats = tuple((t.int() << 23).view(torch.float32) for t in (e.s13, e.s2))
three = fused.FusedMoe(
    e.w13.view(torch.int8), floats[0], e.w2, floats[1].to(torch.float8_e8m0fnu), limit=e.swiglu_limit
)(call.x, scaled.bfloat16().float(), call.ids)
answer = [compare(out, None, truth).why for out in (one, two, three)]
again = fused.fused_moe(call.x, *args, call.weights, call.ids, limit=e.swiglu_limit, route_scale=e.route_scale)
answer += [len(kept), len(fused._layers), torch.equal(again, two)]
clone = e.w13.clone()
fused.fused_moe(call.x, clone, *args[1:], scaled, call.ids)
answer.append(len(fused._layers))
del clone
answer.append(len(fused._layers))
"""
)

VLLM = (
    COMMON
    + """
class Method:
    def process_weights_after_loading(self, layer):
        layer.loaded = True
    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        return "theirs"

def layer(**more):
    p = lambda t: torch.nn.Parameter(t.clone(), requires_grad=False)
    return SimpleNamespace(
        w13_weight=p(e.w13), w13_weight_scale=p(e.s13), w2_weight=p(e.w2), w2_weight_scale=p(e.s2), **more
    )

vllm.plug(Method)
method, ours = Method(), layer(swiglu_limit=e.swiglu_limit, w2_bias=torch.zeros(4, 128))
method.process_weights_after_loading(ours)
out = method.apply(ours, call.x, scaled, call.ids, None, None)
answer = [compare(out, None, truth).why, ours.w13_weight.numel(), hasattr(ours, "loaded")]
others = (
    layer(),
    layer(swiglu_limit=10.0, expert_map=torch.zeros(4)),
    layer(swiglu_limit=10.0, w13_bias=torch.ones(4, 128)),
)
for theirs in others:
    method.process_weights_after_loading(theirs)
    out = method.apply(theirs, call.x, scaled, call.ids, None, None)
    answer.append([theirs.loaded, out, theirs.w2_weight.numel() > 0])
"""
)

SGLANG = (
    COMMON
    + """
class Method:
    moe_runner_config = SimpleNamespace(swiglu_limit=e.swiglu_limit)
    def process_weights_after_loading(self, layer):
        raise AssertionError
    def apply(self, layer, dispatch_output):
        raise AssertionError

p = lambda t: torch.nn.Parameter(t.clone(), requires_grad=False)
powers = lambda t: (t.int() << 23).view(torch.float32)
layer = SimpleNamespace(
    w13_weight=p(e.w13.view(torch.int8)), w13_weight_scale_inv=p(powers(e.s13)), w2_weight=p(e.w2.view(torch.int8)),
    w2_weight_scale_inv=p(powers(e.s2)),
)
sglang.plug(Method, lambda hidden_states: {"hidden_states": hidden_states})
method = Method()
method.process_weights_after_loading(layer)
given = SimpleNamespace(hidden_states=call.x, topk_output=SimpleNamespace(topk_weights=scaled, topk_ids=call.ids))
out = method.apply(layer, given)["hidden_states"]
answer = [compare(out, None, truth).why, layer.w13_weight.numel()]
"""
)


def test_the_function_repacks_once_and_forgets_with_the_weights() -> None:
    assert run(FUNCTION) == [None, None, None, 1, 1, True, 2, 1]


def test_vllm_layers_are_taken_over_or_left_alone() -> None:
    assert run(VLLM) == [None, 0, False, *[[True, "theirs", True]] * 3]


def test_sglang_layers_are_taken_over() -> None:
    assert run(SGLANG) == [None, 0]


class _Other:
    def process_weights_after_loading(self, layer: Any) -> None: ...

    def apply(self, layer: Any, x: Any, router_logits: Any) -> Any: ...


def test_an_engine_of_another_shape_is_refused() -> None:
    from dsv4bench.kernels.adapters import sglang, vllm

    with pytest.raises(UsageError, match=r"_Other.apply takes layer, x, router_logits: not the vLLM"):
        vllm.plug(_Other)
    with pytest.raises(UsageError, match="not the SGLang"):
        sglang.plug(_Other, SimpleNamespace)


@pytest.mark.parametrize(
    ("s13", "told"),
    [
        (torch.full((2, 128, 4), 3.0), "s13 holds float32 scales that are not powers of two"),
        (torch.full((2, 128, 4), torch.inf), "s13 holds float32 scales that are not powers of two"),
        (torch.zeros(2, 128, 4), None),
        (torch.zeros(2, 128, 4, dtype=torch.bfloat16), "s13 is torch.bfloat16"),
    ],
)
def test_scales_of_other_types(s13: torch.Tensor, told: str | None) -> None:
    from dsv4bench.kernels.adapters.fused_moe import _scales

    if told is None:
        assert _scales("s13", s13).sum() == 0
        return
    with pytest.raises(UsageError, match=told):
        _scales("s13", s13)
