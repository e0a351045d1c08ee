"""Who runs: a queue in order of arrival, an admission limit, and pages reserved up front.

A request is admitted when a slot and all the pages it can ever need are free; the first that does not fit holds
the rest back, so that none starves. Nothing is preempted. A decode step takes every request whose prompt is in
the cache; before it, up to `prefill_chunk` prompt tokens are computed, request by request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dsv4bench.engine.pages import PagePool
from dsv4bench.engine.sequence import Sequence


class Scheduler:
    """Owned by the engine's thread."""

    def __init__(self, pool: PagePool, max_running: int, positions_a_step: int) -> None:
        self.pool = pool
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._max_running = max_running
        self._slots = list(range(max_running - 1, -1, -1))
        self._slack = positions_a_step  # a verification may write past the last token

    def pages_needed(self, seq: Sequence) -> int:
        return self.pool.pages_for(len(seq.prompt) + seq.sampling.max_tokens + self._slack)

    def admit(self) -> None:
        while self.waiting and len(self.running) < self._max_running:
            pages = self.pool.take(self.pages_needed(self.waiting[0]))
            if pages is None:
                return
            seq = self.waiting.popleft()
            seq.pages, seq.slot = pages, self._slots.pop()
            self.running.append(seq)

    def prefill_chunks(self, budget: int) -> Iterator[tuple[Sequence, int]]:
        """(request, prompt tokens to compute now), `budget` tokens in all."""
        for seq in list(self.running):
            if budget <= 0:
                return
            if not seq.prefilled:
                take = min(budget, len(seq.prompt) - seq.computed)
                budget -= take
                yield seq, take

    def decoding(self) -> list[Sequence]:
        """Requests with a token to draw; those whose last one is on its way wait for it."""
        return [seq for seq in self.running if seq.prefilled and seq.launched < seq.sampling.max_tokens]

    def finish(self, seq: Sequence) -> None:
        """Frees the slot and the pages."""
        self.running.remove(seq)
        self.pool.give_back(seq.pages)
        self._slots.append(seq.slot)
        seq.pages, seq.slot, seq.finished = [], -1, True

    def cancel(self, request_id: str) -> Sequence | None:
        """Takes a request out wherever it is; None when it is not here (any more)."""
        for seq in self.running:
            if seq.request_id == request_id:
                self.finish(seq)
                return seq
        for seq in self.waiting:
            if seq.request_id == request_id:
                self.waiting.remove(seq)
                seq.finished = True
                return seq
        return None
