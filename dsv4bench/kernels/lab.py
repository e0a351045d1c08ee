"""Where a benchmark takes place: a GPU with its data, its clock and its read ceiling, or what a test puts there.

`Lab` is all that a run needs to know of hardware. `CudaLab` keeps one set of expert weights for all batches and gives
the memory of everything else back when asked to.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from dsv4bench.errors import BenchError, MeasuredBad
from dsv4bench.kernels import ceiling, device
from dsv4bench.kernels.registry import Component
from dsv4bench.kernels.timing import GraphStopwatch, Stopwatch
from dsv4bench.kernels.workload import Workload, attention_workload, moe_workload, pool_rows
from dsv4bench.records.kernels import DeviceFacts, ReadCeiling

if TYPE_CHECKING:
    from dsv4bench.kernels.cases import Pools
    from dsv4bench.kernels.sets import Experts


class Lab(Protocol):
    """A device that kernels are timed on."""

    facts: DeviceFacts
    stopwatch: Stopwatch

    def workload(self, component: Component, batch: int) -> Workload:
        """Its data sets, made anew."""
        ...

    def read_ceiling(self, sizes_mb: Sequence[float]) -> ReadCeiling:
        """Raises MeasuredBad where the measurement itself is at fault."""
        ...

    def free(self) -> None:
        """Give back what nobody holds any more; raises MeasuredBad when the device no longer answers."""
        ...


class CudaLab:
    """The current CUDA device."""

    def __init__(self, seed: int = 0) -> None:
        """Raises Unanswerable where there is no GPU, UsageError where torch is missing."""
        self.facts = device.gpu_facts()
        self.stopwatch: Stopwatch = GraphStopwatch()
        self._seed = seed
        self._experts: Experts | None = None  # one layer's weights and one pair of caches, for all batches
        self._pools: Pools | None = None

    def workload(self, component: Component, batch: int) -> Workload:
        from dsv4bench.kernels import cases

        l2_bytes = self.facts.l2_bytes or 0
        if component == "attention":
            # Without lengths all rows count, and planners that ask for equal lengths may keep their plan.
            attention = replace(cases.bench_attention(batch), lengths="absent")
            if self._pools is None:
                rows = pool_rows(attention, l2_bytes)
                self._pools = cases.make_pools(attention, self._seed, "cuda", tokens=rows)
            return attention_workload(attention, self._pools, l2_bytes, self._seed, "cuda")
        moe = cases.bench_moe(batch)
        if self._experts is None:
            self._experts = cases.make_experts(moe, self._seed, "cuda")
        return moe_workload(moe, self._experts, l2_bytes, self._seed, "cuda")

    def read_ceiling(self, sizes_mb: Sequence[float]) -> ReadCeiling:
        found = ceiling.measure(sizes_mb, self.facts.sms or 1, self.facts.l2_bytes or 0, self.stopwatch)
        self.free()
        return found

    def free(self) -> None:
        import torch

        gc.collect()
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            raise MeasuredBad(
                f"the GPU no longer answers: {first_line(error)}", "the kernel before broke it"
            ) from error


def prepared(runner: Any, load: Workload) -> Any:
    """What a MoE runner makes of the weights; nothing for attention."""
    from dsv4bench.kernels.calls import MoeCall

    first = load.sets[0]
    return runner.prepare(first.experts) if isinstance(first, MoeCall) else None


def first_line(error: BaseException) -> str:
    """One line of a library's error: `RuntimeError: CUDA error: …`; the message alone of one of ours."""
    if isinstance(error, BenchError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
