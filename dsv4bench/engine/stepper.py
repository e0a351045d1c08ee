"""One step of the engine: admit, prefill a chunk, decode every running request once, say what came of it.

    step = [EXTEND forward for each prompt chunk] + [one DECODE forward over all decoding requests]

No thread, no clock of its own, no HTTP: the loop around it is `loop.EngineLoop`. With speculation the decode
forward computes m positions of each request (see `speculation`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import PAGE_SIZE
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.model import Decoder
from dsv4bench.engine.pages import PagePool
from dsv4bench.engine.sampling import sample
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.sequence import Delivery, Emission, FinishReason, Sampling, Sequence
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.kernels.sets import kernel_set


@dataclass(slots=True)
class StepResult:
    """What the step delivers, what it computed, and what speculation did."""

    emissions: list[Emission] = field(default_factory=list)
    prompt_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class Stepper:
    """The model, its cache and its schedule. One thread only."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.dims = config.dims
        self.eos_id = self.dims.vocab_size - 1
        self.spans = Spans()
        pool = PagePool(config.pages, PAGE_SIZE)
        self.schedule = Scheduler(pool, config.max_running, config.positions_a_step)
        self._speculation = config.speculation
        self._decode_kernels = kernel_set(config.kernels)
        self._prefill_kernels = kernel_set("optimized")
        self._decoder = Decoder(
            self.dims,
            RandomWeights(self.dims, config.seed, config.device).draw(),
            pages=config.pages,
            positions=config.max_model_len + config.positions_a_step,
            spans=self.spans,
            device=config.device,
        )

    def warm_up(self) -> None:
        """One small request through prefill and decode, so that the first real one pays no first-call costs."""
        prompt = [0] * min(8, self.config.max_model_len - 1)
        sampling = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
        self.schedule.waiting.append(Sequence("warm-up", prompt, sampling, 0, time.monotonic()))
        while self.schedule.waiting or self.schedule.running:
            self.step()

    def step(self) -> StepResult:
        result = StepResult()
        self.schedule.admit()
        decoding = self.schedule.decoding()  # those that get their first token now decode from the next step on
        for seq, take in self.schedule.prefill_chunks(self.config.prefill_chunk):
            self._prefill(seq, take, result)
        if decoding:
            self._decode(decoding, result)
        now = time.monotonic()  # a step delivers at its end, whatever was ready before
        for emission in result.emissions:
            emission.gap_s = emission.sequence.stamp(now, len(emission.delivery.tokens))
        return result

    def _prefill(self, seq: Sequence, take: int, result: StepResult) -> None:
        chunk = seq.prompt[seq.computed : seq.computed + take]
        with self.spans(f"step[EXTEND bs=1 toks={take}]"):
            batch = self._batch([seq], [chunk])
            logits = self._decoder.forward(batch, self._prefill_kernels, last_only=True)
            seq.computed += take
            result.prompt_tokens += take
            if seq.prefilled:
                with self.spans("sampling"):
                    token = sample(logits[:, 0], [seq], self.eos_id)
                self._emit(seq, token, result)

    def _decode(self, sequences: list[Sequence], result: StepResult) -> None:
        vocab = self.dims.vocab_size
        spec = self._speculation
        drafts = [spec.draft(seq.drafter, vocab) if spec else [] for seq in sequences]
        with self.spans(f"step[DECODE bs={len(sequences)}]"):
            tokens = [[seq.output[-1], *draft] for seq, draft in zip(sequences, drafts, strict=True)]
            logits = self._decoder.forward(self._batch(sequences, tokens), self._decode_kernels)
            with self.spans("sampling"):
                accepted = [spec.accepted(seq.drafter) if spec else 0 for seq in sequences]
                chosen = logits[torch.arange(len(sequences)), torch.tensor(accepted)]
                own = sample(chosen, sequences, self.eos_id)
        if spec:
            result.drafts += len(sequences)
            result.draft_tokens += len(sequences) * spec.drafts
            result.accepted_tokens += sum(accepted)
        for seq, draft, count, token in zip(sequences, drafts, accepted, own, strict=True):
            seq.computed += 1 + count
            self._emit(seq, [*draft[:count], token], result)

    def _batch(self, sequences: list[Sequence], tokens: list[list[int]]) -> ForwardBatch:
        start = [seq.computed for seq in sequences]
        columns = -(-(max(start) + len(tokens[0])) // PAGE_SIZE)
        tables = [(seq.pages + [0] * columns)[:columns] for seq in sequences]
        return ForwardBatch(torch.tensor(tokens), start, torch.tensor(tables), PAGE_SIZE)

    def _emit(self, seq: Sequence, tokens: list[int], result: StepResult) -> None:
        tokens = tokens[: seq.remaining]
        finish: FinishReason | None = None
        if self.eos_id in tokens and not seq.sampling.ignore_eos:
            tokens, finish = tokens[: tokens.index(self.eos_id) + 1], "stop"
        seq.output += tokens
        if finish is None and seq.remaining <= 0:
            finish = "length"
        if finish:
            self.schedule.finish(seq)
        delivery = Delivery(request_id=seq.request_id, tokens=tokens, finish=finish)
        result.emissions.append(Emission(seq, delivery))
