"""What a kernel refuses: each bad argument by its name, with what it was and what is supported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels import arguments
from dsv4bench.kernels.arguments import check_attention, check_experts, check_moe, check_tokens
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.cases import SMALL, AttentionShape, MoeShape, make_attention, make_moe

MOE = MoeShape(tokens=4, experts=3, top_k=2, hidden=64, inner=32)
ATTENTION = AttentionShape(batch=2, heads=8, window=6, extra=4, lengths="mixed")


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Triton ran in its interpreter, where CPU tensors are supported."""
    monkeypatch.setattr(arguments, "interpreted", lambda: True)


def _moe(call: MoeCall, **more: Any) -> None:
    check_moe(call.x, call.ids, call.weights, call.experts, kernel="k", **more)


def _refused(check: Callable[[], None]) -> str:
    with pytest.raises(UsageError) as caught:
        check()
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix("kernel k: ")


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.label)
def test_every_generated_call_is_fine(case: MoeShape | AttentionShape) -> None:
    if isinstance(case, MoeShape):
        _moe(make_moe(case, 0))
    else:
        check_attention(make_attention(case, 0), kernel="k")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda t: t.float(), "x is float32 [4, 64]; supported: bfloat16 [M, 64]"),
        ("x", lambda t: t[:, :48], "x is bfloat16 [4, 48]; supported: bfloat16 [M, 64]"),
        ("x", lambda t: t[0], "x is bfloat16 [64]; supported: bfloat16 [M, 64]"),
        ("x", lambda t: t[:0], "x is bfloat16 [0, 64]; supported: bfloat16 [M, 64], each at least 1"),
        (
            "x",
            lambda t: t.T.contiguous().T,
            "x is bfloat16 [4, 64] with strides (1, 4); supported: contiguous memory",
        ),
        ("ids", lambda t: t.long(), "ids is int64 [4, 2]; supported: int32 [4, K]"),
        ("ids", lambda t: t[:3], "ids is int32 [3, 2]; supported: int32 [4, K]"),
        ("ids", lambda t: t[:, :0], "ids is int32 [4, 0]; supported: int32 [4, K], each at least 1"),
        ("weights", lambda t: t.bfloat16(), "weights is bfloat16 [4, 2]; supported: float32 [4, 2]"),
        ("weights", lambda t: t[:, :1], "weights is float32 [4, 1]; supported: float32 [4, 2]"),
        ("weights", lambda t: t.to("meta"), "weights is on meta; supported: the device of the other arguments, cpu"),
    ],
)
def test_tokens(name: str, change: Callable[[Tensor], Tensor], message: str) -> None:
    call = make_moe(MOE, 0)
    call = replace(call, **{name: change(getattr(call, name))})
    assert _refused(lambda: _moe(call)) == message


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("w13", lambda t: t.float(), "w13 is float32 [3, 64, 32]; supported: uint8 [E, 2I, D/2]"),
        ("w13", lambda t: t[0], "w13 is uint8 [64, 32]; supported: uint8 [E, 2I, D/2]"),
        (
            "w13",
            lambda t: t[:, :63].contiguous(),
            "w13 is uint8 [3, 63, 32]; supported: an even number of rows, gate's first and then up's",
        ),
        (
            "w13",
            lambda t: t[:, :, :24].contiguous(),
            "w13 is uint8 [3, 64, 24], so D = 48; supported: D a multiple of 32",
        ),
        (
            "w13",
            lambda t: t[:, :48].contiguous(),
            "w13 is uint8 [3, 48, 32], so I = 24; supported: I a multiple of 32",
        ),
        ("s13", lambda t: t[..., :1], "s13 is uint8 [3, 64, 1]; supported: uint8 [3, 64, 2]"),
        ("s13", lambda t: t.float(), "s13 is float32 [3, 64, 2]; supported: uint8 [3, 64, 2]"),
        ("w2", lambda t: t[:2], "w2 is uint8 [2, 64, 16]; supported: uint8 [3, 64, 16]"),
        ("s2", lambda t: t.int(), "s2 is int32 [3, 64, 1]; supported: uint8 [3, 64, 1]"),
        ("s2", lambda t: t.to("meta"), "s2 is on meta; supported: the device of the other arguments, cpu"),
    ],
)
def test_experts(name: str, change: Callable[[Tensor], Tensor], message: str) -> None:
    call = make_moe(MOE, 0)
    call = replace(call, experts=replace(call.experts, **{name: change(getattr(call.experts, name))}))
    assert _refused(lambda: _moe(call)) == message
    assert _refused(lambda: check_experts(call.experts, kernel="k")) == message


def test_a_kernel_may_need_wider_multiples() -> None:
    call = make_moe(MOE, 0)
    message = "w13 is uint8 [3, 64, 32], so I = 32; supported: I a multiple of 64"
    assert _refused(lambda: _moe(call, multiple=64)) == message
    check_tokens(call.x, call.ids, call.weights, hidden=64, kernel="k")


def _changed(call: AttentionCall, name: str, change: Callable[[Any], Any]) -> AttentionCall:
    if "." not in name:
        return replace(call, **{name: change(getattr(call, name))})
    cache, field = name.split(".")
    rows = getattr(call, cache)
    return replace(call, **{cache: replace(rows, **{field: change(getattr(rows, field))})})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("q", lambda t: t.float(), "q is float32 [2, 8, 512]; supported: bfloat16 [B, H, 512]"),
        ("q", lambda t: t[..., :448], "q is bfloat16 [2, 8, 448]; supported: bfloat16 [B, H, 512]"),
        ("q", lambda t: t[:, 0], "q is bfloat16 [2, 512]; supported: bfloat16 [B, H, 512]"),
        ("window.data", lambda t: t[:, :-1], "window.data is uint8 [1, 37439]; supported: uint8 [pages, 37440]"),
        ("window.data", lambda t: t.float(), "window.data is float32 [1, 37440]; supported: uint8 [pages, 37440]"),
        ("window.page_size", lambda n: 0, "window.page_size is 0; supported: 1 or more"),
        ("extra.page_size", lambda n: 2, "extra.data is uint8 [1, 37440]; supported: uint8 [pages, 1728]"),
        ("extra.index", lambda t: t.long(), "extra.index is int64 [2, 4]; supported: int32 [2, topk]"),
        ("extra.index", lambda t: t[:1], "extra.index is int32 [1, 4]; supported: int32 [2, topk]"),
        (
            "window.index",
            lambda t: t[:, :0],
            "window.index is int32 [2, 0]; supported: int32 [2, topk], each at least 1",
        ),
        ("window.length", lambda t: t.long(), "window.length is int64 [2]; supported: int32 [2]"),
        ("extra.length", lambda t: t[:1], "extra.length is int32 [1]; supported: int32 [2]"),
        (
            "extra.data",
            lambda t: t.to("meta"),
            "extra.data is on meta; supported: the device of the other arguments, cpu",
        ),
        ("sink", lambda t: t.bfloat16(), "sink is bfloat16 [8]; supported: float32 [8]"),
        ("sink", lambda t: t[:4], "sink is float32 [4]; supported: float32 [8]"),
        ("scale", lambda s: 0.0, "scale is 0.0; supported: a finite number above 0"),
        ("scale", lambda s: float("nan"), "scale is nan; supported: a finite number above 0"),
    ],
)
def test_attention(name: str, change: Callable[[Any], Any], message: str) -> None:
    call = _changed(make_attention(ATTENTION, 0), name, change)
    assert _refused(lambda: check_attention(call, kernel="k")) == message


def test_a_kernel_may_take_some_heads_and_page_sizes_only() -> None:
    call = make_attention(ATTENTION, 0)
    check_attention(call, kernel="k", heads=(8, 64), page_sizes=(64,))
    message = "q is bfloat16 [2, 8, 512], so H = 8; supported: H one of 64, 128"
    assert _refused(lambda: check_attention(call, kernel="k", heads=(64, 128))) == message
    message = "window.page_size is 64; supported: one of 256"
    assert _refused(lambda: check_attention(call, kernel="k", page_sizes=(256,))) == message


def test_a_cpu_tensor_is_for_the_interpreter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "interpreted", lambda: False)
    message = "is a CPU tensor; supported: a GPU of sm_80 or newer"
    call = make_moe(MOE, 0)
    assert _refused(lambda: _moe(call)) == f"w13 {message}"
    tokens = (call.x, call.ids, call.weights)
    assert _refused(lambda: check_tokens(*tokens, hidden=64, kernel="k")) == f"x {message}"
    assert _refused(lambda: check_attention(make_attention(ATTENTION, 0), kernel="k")) == f"q {message}"
    with pytest.raises(UsageError) as caught:
        _moe(call)
    assert "TRITON_INTERPRET=1" in caught.value.hint


class _OnGpu:
    """As much of a CUDA tensor as the checks look at: CI has no GPU."""

    is_cuda = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.device = tensor, torch.device("cuda", 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


@pytest.mark.parametrize(
    ("sm", "limits", "message"),
    [
        (90, {"min_sm": 90}, None),
        (120, {"archs": ("sm_90", "sm_120")}, None),
        (75, {}, "x is on cuda:0, Some GPU of sm_75; supported: a GPU of sm_80 or newer"),
        (
            100,
            {"archs": ("sm_90", "sm_120")},
            "x is on cuda:0, Some GPU of sm_100; supported: a GPU of sm_90, sm_120",
        ),
    ],
)
def test_an_unsupported_gpu(monkeypatch: pytest.MonkeyPatch, sm: int, limits: Any, message: str | None) -> None:
    monkeypatch.setattr(arguments, "compute_capability", lambda device: sm)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    call = make_moe(MOE, 0)
    tokens: list[Any] = [_OnGpu(t) for t in (call.x, call.ids, call.weights)]

    def check() -> None:
        check_tokens(*tokens, hidden=64, kernel="k", **limits)

    if message is None:
        check()
    else:
        assert _refused(check) == message


def test_another_kind_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make_moe(MOE, 0)
    tokens = [t.to("meta") for t in (call.x, call.ids, call.weights)]
    message = "x is on meta; supported: a GPU of sm_80 or newer"
    assert _refused(lambda: check_tokens(*tokens, hidden=64, kernel="k")) == message
