"""What the fallbacks do around their kernels: the launches that were served, and no tuning inside a capture."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, PagedRows
from dsv4bench.kernels.gpu import slot_gemv
from dsv4bench.kernels.gpu.merge import apply_sink, decode, merge
from dsv4bench.kernels.gpu.tuning import refuse_in_capture
from dsv4bench.kernels.sets import Experts

# Operations that launch nothing.
_VIEWS = {"view", "_unsafe_view", "expand", "unsqueeze", "slice", "empty", "alias", "detach", "lift_fresh"}


class _Launches(TorchDispatchMode):
    """Names of the operations that would each be one kernel on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in _VIEWS:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("tokens", [1, 4])
def test_the_slot_gemv_stands_among_the_launches_that_were_served(
    monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    experts = Experts(
        w13=torch.zeros(4, 64, 32, dtype=torch.uint8),
        s13=torch.zeros(4, 64, 2, dtype=torch.uint8),
        w2=torch.zeros(4, 64, 16, dtype=torch.uint8),
        s2=torch.zeros(4, 64, 1, dtype=torch.uint8),
        swiglu_limit=10.0,
        route_scale=1.5,
    )

    def gemv(x: Tensor, w: Tensor, scale: Tensor, rows: Tensor, experts: Tensor) -> Tensor:
        assert rows.is_contiguous() and rows.dtype == torch.int32  # the kernel reads memory
        assert experts.tolist() == [0, 1, 0] * tokens and scale.dtype == torch.float32
        launches.names.append("gemv")
        return torch.empty(rows.numel(), w.shape[1], dtype=torch.bfloat16)

    monkeypatch.setattr(slot_gemv, "_gemv", gemv)
    monkeypatch.setattr(slot_gemv, "check_moe", lambda *_, **__: None)
    prepared = slot_gemv.Prepared(experts, experts.s13.float(), experts.s2.float())
    x = torch.zeros(tokens, 64, dtype=torch.bfloat16)
    ids = torch.tensor([[0, 1, -1]] * tokens, dtype=torch.int32)
    weights = torch.ones(tokens, 3)
    with _Launches() as launches:
        out = slot_gemv.SlotGemv()(x, ids, weights, prepared)
    assert out.shape == x.shape and out.dtype == torch.bfloat16
    assert launches.names == [
        *("clamp", "lt", "arange", "clone", "gemv"),
        *("_to_copy", "_to_copy", "clamp", "clamp", "silu", "mul", "_to_copy", "arange", "gemv"),
        *("bitwise_not", "_to_copy", "mul", "_to_copy", "mul", "sum", "mul_"),
    ]


def _partial(rows: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Plain attention of q [H, d] over rows [n, d], as a batch of one."""
    if not len(rows):
        return torch.zeros(1, *q.shape, dtype=torch.bfloat16), torch.full((1, len(q)), -math.inf)
    score = q @ rows.T
    return (score.softmax(-1) @ rows).bfloat16().unsqueeze(0), score.logsumexp(-1).unsqueeze(0)


@pytest.mark.parametrize(("first", "second"), [(3, 5), (0, 5), (3, 0), (0, 0)])
def test_two_caches_and_a_sink_are_one_softmax(first: int, second: int) -> None:
    rng = torch.Generator().manual_seed(first * 10 + second)
    q, rows = torch.randn(4, 16, generator=rng), torch.randn(first + second, 16, generator=rng)
    sink = torch.randn(4, generator=rng)
    out, lse = merge(*_partial(rows[:first], q), *_partial(rows[first:], q))
    expected, expected_lse = _partial(rows, q)
    torch.testing.assert_close(lse, expected_lse)
    torch.testing.assert_close(out, expected, atol=0.02, rtol=0.02)
    out, lse = apply_sink(out, lse, sink)
    torch.testing.assert_close(lse, torch.logaddexp(expected_lse, sink.unsqueeze(0)))
    share = (expected_lse - lse).exp().unsqueeze(-1)  # the sink takes the rest and brings nothing
    torch.testing.assert_close(out, (expected.float() * share).bfloat16(), atol=0.02, rtol=0.02)
    assert first + second or (out == 0).all()


def test_merge_and_sink_are_separate_launches() -> None:
    rows = PagedRows(torch.zeros(1, 1, dtype=torch.uint8), 1, torch.zeros(1, 1, dtype=torch.int32), None)
    q = torch.zeros(1, 4, 16, dtype=torch.bfloat16)
    call = AttentionCall(q, rows, rows, torch.zeros(4), 1.0)
    partial = _partial(torch.ones(2, 16), torch.ones(4, 16))
    with _Launches() as launches:
        decode(call, lambda *_: partial)
    weight = ["eq", "sub", "exp", "scalar_tensor", "where"]  # the scalar is a fill on a GPU
    merged = ["maximum", *weight, *weight, "add", "clamp", "_to_copy", "mul", "_to_copy", "mul", "add", "div"]
    merged += ["log", "add", "_to_copy"]
    sunk = ["logaddexp", *weight, "_to_copy", "mul", "_to_copy"]
    assert launches.names == merged + sunk and len(launches.names) == 31


def test_what_is_not_tuned_yet_is_refused_inside_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(
        cache={(4096, 2048, "torch.bfloat16"): object()}, keys=["N", "K"], base_fn=SimpleNamespace(__name__="gemv")
    )
    refuse_in_capture(kernel, 1, 1)  # no capture
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    refuse_in_capture(kernel, 4096, 2048)
    with pytest.raises(UsageError, match="gemv is not tuned yet for N = 4096, K = 512") as refused:
        refuse_in_capture(kernel, 4096, 512)
    assert "before the graph is captured" in refused.value.hint
