"""A benchmark without a GPU: small tensors on the CPU, kernels in plain torch, a stopwatch that is told the time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsv4bench.errors import MeasuredBad, UsageError
from dsv4bench.kernels import reference
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.cases import AttentionShape, MoeShape, make_experts, make_pools
from dsv4bench.kernels.registry import Component, Role
from dsv4bench.kernels.sets import Experts
from dsv4bench.kernels.timing import Call
from dsv4bench.kernels.workload import Workload, attention_workload, moe_workload
from dsv4bench.records.kernels import DeviceFacts, ParityDocument, ReadCeiling
from dsv4bench.store import kernels as store

DEVICE = DeviceFacts(name="Test GPU", arch="sm_90", sms=4, l2_bytes=1 << 10, torch="2.13.0", triton="3.6.0")
CREATED = "2026-11-30T00:00:00.000Z"


class PlainMoe:
    """The reference in bf16; `off` spoils it."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off

    def prepare(self, experts: Experts) -> Experts:
        return experts

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Experts) -> Tensor:
        return (reference.moe(MoeCall(x, ids, weights, prepared)) * (1 + self.off)).bfloat16()


class PlainAttention:
    """Likewise, with the sink in its log-sum-exp."""

    lse = "with_sink"

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        out, lse = reference.sparse_decode(call)
        return out.bfloat16(), reference.with_sink(lse, call.sink).float()


@dataclass(frozen=True)
class ToyKernel:
    """A kernel of a registry that a test makes up."""

    name: str
    component: Component
    role: Role
    runner: Callable[[], Any]
    rel_fro_limit: float = 1e-2
    min_sm: int = 0
    replaces: str | None = None

    def load(self) -> Any:
        return self.runner()

    def supports(self, sm: int) -> bool:
        return sm >= self.min_sm

    def code_hash(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()[:12]


def missing() -> Any:
    raise UsageError("absent: vllm cannot be imported (ModuleNotFoundError: No module named 'vllm')", "needs vllm")


REGISTRY: tuple[ToyKernel, ...] = (
    ToyKernel("slow_moe", "moe", "fallback", PlainMoe),
    ToyKernel("fast_moe", "moe", "optimized", PlainMoe),
    ToyKernel("absent", "moe", "peer", missing),
    ToyKernel("loose", "moe", "peer", lambda: PlainMoe(0.03), rel_fro_limit=0.05),
    ToyKernel("wrong", "moe", "peer", lambda: PlainMoe(0.5)),
    ToyKernel("slow_attention", "attention", "fallback", PlainAttention),
)


@dataclass
class Clock:
    """Seconds a call by the kind of runner, slightly different in each capture; every call is really made once."""

    seconds: Callable[[Any], float]
    captures: list[Any] = field(default_factory=list)

    def replays(self, calls: Sequence[Call]) -> list[float]:
        for call in calls:
            call()
        runner: Any = calls[0].func  # type: ignore[attr-defined]
        self.captures.append(runner)
        base = self.seconds(runner) * (1 + 1e-3 * (len(self.captures) % 3))
        return [base * (1 + 1e-3 * i) for i in range(5)]


@dataclass
class ToyLab:
    """`broken_after`: the kernel after whose n-th free the device no longer answers."""

    stopwatch: Any
    facts: DeviceFacts = DEVICE
    broken_after: int | None = None
    frees: int = 0
    ceilings: list[list[float]] = field(default_factory=list)

    def workload(self, component: Component, batch: int) -> Workload:
        if component == "moe":
            shape = MoeShape(tokens=batch, experts=8, top_k=2, hidden=64, inner=32)
            return moe_workload(shape, make_experts(shape, 0), 1 << 10, 0, "cpu")
        attention = AttentionShape(batch=batch, heads=8, window=4, extra=8, lengths="absent")
        return attention_workload(attention, make_pools(attention, 0), 1 << 10, 0, "cpu")

    def read_ceiling(self, sizes_mb: Sequence[float]) -> ReadCeiling:
        self.ceilings.append(list(sizes_mb))
        return ReadCeiling(stream_gb_s=1000.0, stream_bytes=1 << 30, cold_gb_s={"0.001": 0.5, "1": 100.0})

    def free(self) -> None:
        self.frees += 1
        if self.broken_after is not None and self.frees > self.broken_after:
            raise MeasuredBad("the GPU no longer answers: CUDA error", "the kernel that ran before it is at fault")


def record_green(root: Path, *kernels: ToyKernel, device: DeviceFacts = DEVICE) -> None:
    """What `kernels check` would have stored."""
    document = ParityDocument(
        created_utc=CREATED,
        tool="0",
        device=device,
        code={k.name: k.code_hash() for k in kernels},
        green=[k.name for k in kernels],
        red=[],
        rows=[],
    )
    store.write_parity(root, document, lambda _: "")


def bundled(registry: Sequence[ToyKernel] = REGISTRY) -> list[ToyKernel]:
    return [k for k in registry if k.role != "peer"]


def shifted(kernel: ToyKernel, name: str) -> ToyKernel:
    return replace(kernel, name=name)
