"""What the scheduler needs of whatever computes: prefill a chunk, decode a batch, tell the tokens when asked.

`CpuExecutor` computes when called. `cuda.executor.CudaExecutor` launches and returns; it `overlaps`, so the stepper
asks for the tokens of a step only after the next one has been launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import PAGE_SIZE
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.model import Decoder
from dsv4bench.engine.sampling import rank, sample
from dsv4bench.engine.sequence import Sequence
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.kernels.sets import kernel_set


class Pending(Protocol):
    """Tokens that have been launched for."""

    def tokens(self) -> list[int]:
        """One a request, in order; waits for them where they are not there yet."""
        ...


@dataclass(frozen=True, slots=True)
class Live:
    """Which kernels run, and where: for whoever asks the server."""

    moe: str
    attention: str
    prefill_moe: str
    prefill_attention: str
    device: str
    cuda_graphs: list[int]  # captured batch sizes; none on a CPU, and none when switched off


class Executor(Protocol):
    """One model on one device, used by one thread."""

    overlaps: bool
    eos_id: int

    @property
    def live(self) -> Live: ...

    def warm_up(self) -> None:
        """Whatever must not happen during a request: compilation, tuning, graph capture."""
        ...

    def prefill(self, seq: Sequence, tokens: list[int], *, last: bool) -> Pending | None:
        """Computes the next `tokens` of the prompt; with `last` it draws the request's first token."""
        ...

    def decode(self, sequences: list[Sequence], drafts: list[list[int]], accepted: list[int]) -> Pending:
        """One forward pass: each request's last token and its drafts; draws the token after the accepted ones."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens that are there already."""

    drawn: list[int]

    def tokens(self) -> list[int]:
        return self.drawn


class CpuExecutor:
    """Plain torch."""

    overlaps = False

    def __init__(self, config: EngineConfig, spans: Spans) -> None:
        dims = config.dims
        self._spans = spans
        self.eos_id = dims.vocab_size - 1
        self._decode_kernels = kernel_set(config.moe, config.attention)
        self._prefill_kernels = kernel_set("optimized", "optimized")
        self._live = Live(
            moe=config.moe,
            attention=config.attention,
            prefill_moe="optimized",
            prefill_attention="optimized",
            device=config.device,
            cuda_graphs=[],
        )
        self._decoder = Decoder(
            dims,
            RandomWeights(dims, config.seed, config.device).draw(),
            pages=config.pages,
            positions=config.max_model_len + config.positions_a_step,
            spans=spans,
            device=config.device,
        )

    @property
    def live(self) -> Live:
        return self._live

    def warm_up(self) -> None:
        pass

    def prefill(self, seq: Sequence, tokens: list[int], *, last: bool) -> Pending | None:
        logits = self._decoder.forward(_batch([seq], [tokens]), self._prefill_kernels, last_only=True)
        return self._draw(logits, [seq], [[]], [0]) if last else None

    def decode(self, sequences: list[Sequence], drafts: list[list[int]], accepted: list[int]) -> Pending:
        tokens = [[seq.output[-1], *draft] for seq, draft in zip(sequences, drafts, strict=True)]
        logits = self._decoder.forward(_batch(sequences, tokens), self._decode_kernels)
        return self._draw(logits, sequences, drafts, accepted)

    def _draw(self, logits: Tensor, sequences: list[Sequence], drafts: list[list[int]], accepted: list[int]) -> Drawn:
        """logits [R, S, vocab] -> the token after the accepted drafts of each request."""
        with self._spans("sampling"):
            after = logits[torch.arange(len(sequences)), torch.tensor(accepted)]  # a copy, which sampling may change
            tokens = sample(after, sequences, self.eos_id)
            for own, seq, draft, count, token in zip(logits, sequences, drafts, accepted, tokens, strict=True):
                if seq.sampling.logprobs is not None:
                    seq.ranked += rank(own[: count + 1], [*draft[:count], token], seq.sampling.logprobs)
        return Drawn(tokens)


def _batch(sequences: list[Sequence], tokens: list[list[int]]) -> ForwardBatch:
    start = [seq.computed for seq in sequences]
    columns = -(-(max(start) + len(tokens[0])) // PAGE_SIZE)
    tables = [(seq.pages + [0] * columns)[:columns] for seq in sequences]
    return ForwardBatch(torch.tensor(tokens), start, torch.tensor(tables), PAGE_SIZE)


def executor(config: EngineConfig, spans: Spans) -> Executor:
    """The one of `config.device`. Raises UsageError where the device or a kernel cannot be had."""
    if config.device == "cpu":
        return CpuExecutor(config, spans)
    from dsv4bench.engine.cuda.device import explaining_out_of_memory, require

    require(config)
    from dsv4bench.engine.cuda.executor import CudaExecutor

    with explaining_out_of_memory(config):
        return CudaExecutor(config, spans)
