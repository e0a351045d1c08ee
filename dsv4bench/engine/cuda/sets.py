"""Which bundled kernels the decoder runs: a MoE and an attention runner from the registry, by role.

    fallback     slot_gemv, sparse_decode_per_head
    optimized    grouped_moe, sparse_decode_split_k

Either component can be chosen by itself, so that a campaign can pull one lever at a time. Prefill always takes the
optimized ones, as servers do: the slow kernels are decode kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, AttentionRunner, MoeRunner
from dsv4bench.kernels.registry import Component, Kernel, kernels
from dsv4bench.kernels.sets import KernelName

NAMES: dict[KernelName, dict[Component, str]] = {
    "fallback": {"moe": "slot_gemv", "attention": "sparse_decode_per_head"},
    "optimized": {"moe": "grouped_moe", "attention": "sparse_decode_split_k"},
}


@dataclass(frozen=True, slots=True)
class CudaKernels:
    """One set, ready to call; its kernels can be captured in a CUDA graph once they have run."""

    moe_name: str
    moe_runner: MoeRunner
    attention_name: str
    attention_runner: AttentionRunner

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor, prepared: Mapping[str, Any]) -> Tensor:
        """x bf16 [T, D], ids int32 [T, K], weights float32 [T, K] -> bf16 [T, D]; `prepared`: of `CudaLayer`."""
        return self.moe_runner(x, ids, weights, prepared[self.moe_name])

    def sparse_decode(self, call: AttentionCall) -> Tensor:
        """-> bf16 [T, H, 512]."""
        out, _ = self.attention_runner(call)
        return out


@dataclass(frozen=True, slots=True)
class Choice:
    """What decodes and what prefills."""

    decode: CudaKernels
    prefill: CudaKernels

    @property
    def moe_runners(self) -> dict[str, MoeRunner]:
        """Every MoE kernel that must prepare the experts, by name."""
        return {k.moe_name: k.moe_runner for k in (self.decode, self.prefill)}


def wanted(moe: KernelName, attention: KernelName) -> tuple[Kernel, Kernel]:
    """The registry's entries of these roles."""
    return _entry("moe", NAMES[moe]["moe"]), _entry("attention", NAMES[attention]["attention"])


def load(moe: KernelName, attention: KernelName) -> CudaKernels:
    """Raises UsageError where triton or a kernel is missing."""
    moe_kernel, attention_kernel = wanted(moe, attention)
    return CudaKernels(moe_kernel.name, moe_kernel.load(), attention_kernel.name, attention_kernel.load())


def choose(moe: KernelName, attention: KernelName) -> Choice:
    """The kernels of a server."""
    return Choice(decode=load(moe, attention), prefill=load("optimized", "optimized"))


def _entry(component: Component, name: str) -> Kernel:
    found = [k for k in kernels(component=component) if k.name == name]
    if not found:
        raise UsageError(f"kernel {name} is not part of this version", "choose --kernels fallback, or --device cpu")
    return found[0]
