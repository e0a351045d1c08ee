"""Steps on the GPU for the scheduler: launches a step and returns at once; its tokens are asked for a step later.

While the GPU computes a step, the host has already planned it and delivers the tokens of the one before. That works
because the host knows beforehand where each request will stand: how many drafts count is drawn, not measured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda import weights
from dsv4bench.engine.cuda.cache import allocate
from dsv4bench.engine.cuda.device import explaining_out_of_memory
from dsv4bench.engine.cuda.fused.sampling import sample
from dsv4bench.engine.cuda.graphs import DecodeSteps
from dsv4bench.engine.cuda.inputs import HostBlock, Layout, Outbox, StepInputs
from dsv4bench.engine.cuda.limits import PAGE_SIZE
from dsv4bench.engine.cuda.model import CudaDecoder
from dsv4bench.engine.cuda.sets import Choice, choose
from dsv4bench.engine.executor import Live, Pending
from dsv4bench.engine.sequence import Sequence
from dsv4bench.engine.spans import Spans

# Beside a full chunk: kernels are compiled anew for some numbers of tokens (1, multiples of 16, each plan of the MoE)
_WARM_PROMPTS = (1, 2, 3, 4, 7, 16, 17, 32, 34, 45, 48, 86, 96, 129, 144)


class CudaExecutor:
    """Model, cache and captured steps of one server. `device` and `kernels` are given by tests."""

    overlaps = True

    def __init__(
        self,
        config: EngineConfig,
        spans: Spans,
        *,
        device: torch.device | None = None,
        kernels: Choice | None = None,
        drawn: tuple[weights.CudaOuter, list[weights.CudaLayer]] | None = None,
    ) -> None:
        self._config = config
        dims, positions = config.dims, config.positions_a_step
        self._device = torch.device("cuda") if device is None else device
        self._kernels = choose(config.moe, config.attention) if kernels is None else kernels
        self._spare_slot = config.max_running
        self.eos_id = dims.vocab_size - 1
        self._capture = config.cuda_graphs and self._device.type == "cuda"
        outer, layers = drawn or weights.draw(dims, config.seed, self._device, self._kernels.moe_runners)
        longest = config.max_model_len + positions
        self.decoder = CudaDecoder(
            dims,
            outer,
            layers,
            allocate(dims, config.pages, config.max_running + 1, positions, self._device),
            positions=longest,
            spans=spans,
            device=self._device,
        )
        pages = -(-longest // PAGE_SIZE)
        self.steps = DecodeSteps(
            self.decoder,
            self._kernels.decode,
            slots=config.max_running,
            positions=positions,
            pages=pages,
            eos_id=self.eos_id,
            device=self._device,
        )
        self._chunk = StepInputs(Layout(1, 1, config.prefill_chunk, pages), self._device)

    @property
    def live(self) -> Live:
        on_gpu = self._device.type == "cuda"
        return Live(
            moe=self._kernels.decode.moe_name,
            attention=self._kernels.decode.attention_name,
            prefill_moe=self._kernels.prefill.moe_name,
            prefill_attention=self._kernels.prefill.attention_name,
            device=torch.cuda.get_device_name(self._device) if on_gpu else str(self._device),
            cuda_graphs=self.steps.captured,
        )

    def warm_up(self) -> None:
        """Compiles, tunes and captures everything; no request pays for it later."""
        with explaining_out_of_memory(self._config):
            self._warm_up()

    def _warm_up(self) -> None:
        longest = min(self._chunk.layout.given, self._config.max_model_len)
        for length in {*_WARM_PROMPTS, longest}:
            prompt = [token % self.eos_id for token in range(min(length, longest))]
            block = self._chunk.next_block()
            block.views["active"][:] = 1
            block.views["slots"][:] = self._spare_slot
            self._prefill(block, prompt)
        self.steps.warm_up(capture=self._capture)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @torch.inference_mode()
    def prefill(self, seq: Sequence, tokens: list[int], *, last: bool) -> Pending | None:
        """Computes a chunk of the prompt; with `last` it draws the request's first token."""
        block = self._chunk.next_block()
        block.views["active"][:] = 1
        # Its own slot in every chunk: the next one pools over what this one leaves in the compressors' rings. What an
        # early chunk draws is left in the slot, too, and overwritten by the last one before anything reads it.
        _describe(block, 0, seq, accepted=0)
        drawn = self._prefill(block, tokens)
        return _outbox(drawn, 1) if last else None

    def _prefill(self, block: HostBlock, tokens: list[int]) -> Tensor:
        chunk = self._chunk
        block.views["given"][0, : len(tokens)] = tokens
        chunk.send(block)
        where = chunk.where._replace(new=len(tokens))
        ids = chunk.given[0, : len(tokens)]
        logits = self.decoder.forward(ids, where, self._kernels.prefill, last_only=True)
        return sample(logits, chunk.draw, self.steps.last, self.eos_id)

    @torch.inference_mode()
    def decode(self, sequences: list[Sequence], drafts: list[list[int]], accepted: list[int]) -> Pending:
        """One step over all of them, a token each; drafts are computed behind the last token of their request."""
        step = self.steps.for_batch(len(sequences))
        block = step.inputs.next_block()
        block.views["active"][:] = len(sequences)
        block.views["slots"][:] = self._spare_slot
        for row, (seq, draft, count) in enumerate(zip(sequences, drafts, accepted, strict=True)):
            _describe(block, row, seq, accepted=count)
            block.views["given"][row] = draft
        step.inputs.send(block)
        return _outbox(step.run(), len(sequences))


def _outbox(tokens: Tensor, count: int) -> Outbox:
    box = Outbox(count, tokens.device)
    box.fetch(tokens, count)
    return box


def _describe(block: HostBlock, row: int, seq: Sequence, *, accepted: int) -> None:
    """Writes what the GPU must know of one request."""
    views = block.views
    views["slots"][row] = seq.slot
    views["start"][row] = seq.computed
    views["accepted"][row] = accepted
    views["barred"][row] = seq.barred_from_eos
    block.temperature[row] = seq.sampling.temperature
    views["seed"][row] = seq.seed & 0x7FFFFFFF
    views["drawn"][row] = seq.launched
    pages = seq.pages[: views["tables"].shape[1]]
    views["tables"][row, : len(pages)] = pages
