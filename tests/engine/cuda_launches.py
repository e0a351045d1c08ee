"""The Triton launches of a real-size decode step, recorded instead of made: builds that can be compiled anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from dsv4bench.dsv4 import flash_layers
from dsv4bench.engine.cuda import weights
from dsv4bench.engine.cuda.cache import allocate
from dsv4bench.engine.cuda.graphs import DecodeStep
from dsv4bench.engine.cuda.inputs import Layout
from dsv4bench.engine.cuda.model import CudaDecoder
from dsv4bench.engine.cuda.sets import CudaKernels
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.calls import AttentionCall
from dsv4bench.kernels.sets import Experts

_TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.uint8: "*u8"}


class _Nothing:
    """In the place of both hot kernels: they are not what is recorded."""

    def prepare(self, _: Experts) -> None:
        return None

    def __call__(self, x: Tensor | AttentionCall, *_: Any) -> Any:
        return (torch.zeros_like(x.q), None) if isinstance(x, AttentionCall) else torch.zeros_like(x)


def record(monkeypatch: Any, *, requests: int, positions: int) -> list[Build]:
    """One build a launch of a decode step of `flash-layers` (four layers: each kind), on CPU tensors of nothing."""
    monkeypatch.setattr(RandomWeights, "_normal", lambda self, *shape, std: torch.empty(shape))
    nothing = Experts(*[torch.empty(0)] * 4, swiglu_limit=10.0, route_scale=1.5)
    monkeypatch.setattr(RandomWeights, "_experts", lambda self: nothing)
    dims = msgspec.structs.replace(flash_layers(4), vocab_size=2048)
    cpu, hot = torch.device("cpu"), _Nothing()
    kernels = CudaKernels("none", hot, "none", hot)  # type: ignore[arg-type]
    model = weights.draw(dims, 0, cpu, {"none": hot})  # type: ignore[dict-item]
    caches = allocate(dims, 2, requests + 1, positions, cpu)
    decoder = CudaDecoder(dims, *model, caches, positions=4096, spans=Spans(), device=cpu)
    last = torch.zeros(requests + 1, dtype=torch.int32)
    with _recording(monkeypatch) as launches:
        DecodeStep(decoder, kernels, last, Layout(requests, positions, positions - 1, 16), 2047).run()
    return launches


@contextmanager
def _recording(monkeypatch: Any) -> Iterator[list[Build]]:
    launches: list[Build] = []

    def note(function: Any, *args: Any, grid: Any, warmup: bool, num_warps: int = 4, **named: Any) -> None:
        bound = function.signature.bind(*args, **named)
        launches.append(_build(function, bound.arguments, num_warps))

    with monkeypatch.context() as patch:
        patch.setattr(JITFunction, "run", note)
        yield launches


def _build(function: Any, arguments: dict[str, Any], num_warps: int) -> Build:
    """As Triton would specialise it: a 1 is a constant, what 16 divides is known to be so."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    aligned = []
    for parameter in function.params:
        value, name = arguments[parameter.name], parameter.name
        special = isinstance(value, int) and not parameter.do_not_specialize
        if parameter.is_constexpr or (special and value == 1):
            constants[name] = value
            continue
        if isinstance(value, Tensor):
            signature[name] = _TYPES[value.dtype]
            divisible = value.data_ptr() % 16 == 0
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
            divisible = special and value % 16 == 0
        if divisible:
            aligned.append(name)
    return Build(function, signature, constants, num_warps=num_warps, num_stages=3, divisible_by_16=tuple(aligned))
