"""One step of the engine: admit, prefill a chunk, decode every running request once, say what came of it.

    step = [EXTEND forward for each prompt chunk] + [one DECODE forward over all decoding requests]

No thread, no clock of its own, no HTTP: the loop around it is `loop.EngineLoop`. With speculation the decode
forward computes m positions of each request (see `speculation`). What computes is an `Executor`; with one that
overlaps, a step delivers the tokens of the step before, while the GPU computes its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.executor import Executor, Pending, executor
from dsv4bench.engine.pages import PagePool
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.sequence import Delivery, Emission, FinishReason, Sampling, Sequence
from dsv4bench.engine.spans import Spans


@dataclass(slots=True)
class StepResult:
    """What the step delivers, what it computed, and what speculation did."""

    emissions: list[Emission] = field(default_factory=list)
    prompt_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One forward pass on its way: the drafts that count for each request, and the tokens to come after them."""

    sequences: list[Sequence]
    accepted: list[list[int]]
    pending: Pending


class Stepper:
    """The model, its cache and its schedule. One thread only."""

    def __init__(self, config: EngineConfig, given: Executor | None = None) -> None:
        self.config = config
        self.dims = config.dims
        self.spans = Spans()
        pool = PagePool(config.pages, config.page_size)
        self.schedule = Scheduler(pool, config.max_running, config.positions_a_step)
        self.executor = executor(config, self.spans) if given is None else given
        self._speculation = config.speculation
        self._flying: list[Launch] = []

    def warm_up(self) -> None:
        """Compiles and captures; then one small request, so that the first real one pays no first-call costs."""
        self.executor.warm_up()
        prompt = [0] * min(8, self.config.max_model_len - 1)
        sampling = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
        self.schedule.waiting.append(Sequence("warm-up", prompt, sampling, 0, time.monotonic()))
        while self.schedule.waiting or self.schedule.running:
            self.step()

    def step(self) -> StepResult:
        result = StepResult()
        self.schedule.admit()
        decoding = self.schedule.decoding()  # those that get their first token now decode from the next step on
        launches = []
        for seq, take in self.schedule.prefill_chunks(self.config.prefill_chunk):
            launches += self._prefill(seq, take, result)
        if decoding:
            launches.append(self._decode(decoding, result))
        if self.executor.overlaps:
            launches, self._flying = self._flying, launches
        for launch in launches:
            self._collect(launch, result)
        now = time.monotonic()  # a step delivers at its end, whatever was ready before
        for emission in result.emissions:
            emission.gap_s = emission.sequence.stamp(now, len(emission.delivery.tokens))
        return result

    def _prefill(self, seq: Sequence, take: int, result: StepResult) -> list[Launch]:
        chunk = seq.prompt[seq.computed : seq.computed + take]
        last = seq.computed + take >= len(seq.prompt)
        with self.spans(f"step[EXTEND bs=1 toks={take}]"):
            pending = self.executor.prefill(seq, chunk, last=last)
        seq.computed += take
        result.prompt_tokens += take
        if pending is None:
            return []
        seq.launched = 1
        return [Launch([seq], [[]], pending)]

    def _decode(self, sequences: list[Sequence], result: StepResult) -> Launch:
        vocab, spec = self.dims.vocab_size, self._speculation
        drafts = [spec.draft(seq.drafter, vocab) if spec else [] for seq in sequences]
        counts = [spec.accepted(seq.drafter) if spec else 0 for seq in sequences]
        with self.spans(f"step[DECODE bs={len(sequences)}]"):
            pending = self.executor.decode(sequences, drafts, counts)
        if spec:
            result.drafts += len(sequences)
            result.draft_tokens += len(sequences) * spec.drafts
            result.accepted_tokens += sum(counts)
        for seq, count in zip(sequences, counts, strict=True):
            seq.computed += 1 + count
            seq.launched += 1 + count
        return Launch(sequences, [draft[:n] for draft, n in zip(drafts, counts, strict=True)], pending)

    def _collect(self, launch: Launch, result: StepResult) -> None:
        """A request that ended meanwhile (end of sequence, cancelled) has no use for what was computed beyond."""
        for seq, draft, token in zip(launch.sequences, launch.accepted, launch.pending.tokens(), strict=True):
            if not seq.finished:
                self._emit(seq, [*draft, token], result)

    def _emit(self, seq: Sequence, tokens: list[int], result: StepResult) -> None:
        tokens = tokens[: seq.remaining]
        finish: FinishReason | None = None
        eos_id = self.executor.eos_id
        if eos_id in tokens and not seq.sampling.ignore_eos:
            tokens, finish = tokens[: tokens.index(eos_id) + 1], "stop"
        seq.output += tokens
        if finish is None and seq.remaining <= 0:
            finish = "length"
        if finish:
            self.schedule.finish(seq)
        ranked, seq.ranked = seq.ranked[: len(tokens)], []
        delivery = Delivery(request_id=seq.request_id, tokens=tokens, ranked=ranked, finish=finish)
        result.emissions.append(Emission(seq, delivery))
