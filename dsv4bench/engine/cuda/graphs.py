"""Decode steps by batch size: inputs at fixed addresses, one CUDA graph each, or the same launches one by one.

A step computes `positions` of each of its R requests and draws one token a request. Sizes are powers of two up to the
most that may run; a smaller batch is padded with requests that choose no expert and see no row. Everything is run
once before it is captured: Triton compiles and tunes then, the largest size first, as servers capture.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import step_tokens
from dsv4bench.engine.cuda.fused.sampling import sample
from dsv4bench.engine.cuda.inputs import Layout, StepInputs
from dsv4bench.engine.cuda.model import CudaDecoder, Routing
from dsv4bench.engine.cuda.sets import CudaKernels

_WARM_POSITION = 200  # where warm-up pretends to be: within the page of padding


def sizes(most: int) -> list[int]:
    """Batch sizes that are captured: powers of two, and `most` itself."""
    powers = [1 << bit for bit in range(most.bit_length())]
    return sorted({*powers, most})


class DecodeStep:
    """One batch size."""

    def __init__(self, decoder: CudaDecoder, kernels: CudaKernels, last: Tensor, layout: Layout, eos_id: int) -> None:
        self.inputs = StepInputs(layout, last.device)
        self._decoder, self._kernels, self._last, self._eos_id = decoder, kernels, last, eos_id
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tokens: Tensor | None = None  # what the graph draws, always at the same address

    @property
    def captured(self) -> bool:
        return self._graph is not None

    @torch.inference_mode()
    def run(self) -> Tensor:
        """Computes one step from `inputs` -> tokens int32 [R], valid until the next run."""
        if self._graph is None or self._tokens is None:
            return self._launch()
        self._graph.replay()
        return self._tokens

    def logits(self, routing: Routing | None = None) -> Tensor:
        """float32 [R * positions, vocab] of one step, launched one by one; nothing is drawn."""
        given = self.inputs.given
        tokens = step_tokens(self._last, self.inputs.draw.slots, given, self.inputs.layout.new)
        return self._decoder.forward(tokens, self.inputs.where, self._kernels, routing=routing)

    def _launch(self) -> Tensor:
        return sample(self.logits(), self.inputs.draw, self._last, self._eos_id)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compiles and tunes what this size needs, on rows of page 0."""
        layout = self.inputs.layout
        block = self.inputs.next_block()
        block.views["active"][:] = layout.requests
        block.views["start"][:] = max(0, min(_WARM_POSITION, self._decoder.positions - layout.new))
        block.views["slots"][:] = range(layout.requests)
        self.inputs.send(block)
        self._launch()

    @torch.inference_mode()
    def capture(self, pool: Any) -> None:
        """Records the step in a graph, in the memory of `pool`; call `warm_up` first."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self._tokens = self._launch()
        self._graph = graph


class DecodeSteps:
    """All sizes of a server."""

    def __init__(
        self,
        decoder: CudaDecoder,
        kernels: CudaKernels,
        *,
        slots: int,
        positions: int,
        pages: int,
        eos_id: int,
        device: torch.device,
    ) -> None:
        # One slot more than requests: padding leaves its token there.
        self.last = torch.zeros(slots + 1, dtype=torch.int32, device=device)
        self._steps = {
            size: DecodeStep(decoder, kernels, self.last, Layout(size, positions, positions - 1, pages), eos_id)
            for size in sizes(slots)
        }

    @property
    def captured(self) -> list[int]:
        return [size for size, step in self._steps.items() if step.captured]

    def for_batch(self, requests: int) -> DecodeStep:
        """The smallest size that holds them."""
        return next(step for size, step in self._steps.items() if size >= requests)

    def warm_up(self, *, capture: bool) -> None:
        """Warms every size, and captures it if asked to. Distinct tokens, so that tuning meets distinct experts."""
        self.last.copy_(torch.arange(len(self.last), dtype=torch.int32, device=self.last.device))
        pool = torch.cuda.graph_pool_handle() if capture else None
        for step in reversed(list(self._steps.values())):
            step.warm_up()
            if capture:
                step.capture(pool)
