"""Synthetic speculative decoding: real verification, drawn acceptance, and drafts that cost nothing.

A step computes m forward positions of each request: its last token and m - 1 drafts. The drafts are drawn at
random, and how many of them count as accepted is drawn too: each with probability `accept`, up to the first
that is not. Accepted drafts are emitted as given; the token after them is the model's own choice in exactly
that context, computed in this step. So every emitted token is defined by prompt, seed, m and `accept` alone,
whatever else is in the batch. What such a run measures is the cost of verification; it says nothing about how
well a real draft model would do, and a real one would also cost time. Every output of the server says so.
"""

from __future__ import annotations

import random

import msgspec

from dsv4bench.errors import UsageError

NOTICE = (
    "synthetic: acceptance is drawn from a seeded distribution, not measured; drafting costs nothing here; "
    "verification is computed"
)


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """m positions verified a step; each draft is accepted with probability `accept` if those before it were."""

    tokens: int
    accept: float

    def __post_init__(self) -> None:
        if self.tokens < 2:
            raise UsageError(
                f"--spec-tokens {self.tokens} verifies no draft",
                "give 2 or more (the last token and its drafts), or 0 for no speculation",
            )
        if not 0.0 <= self.accept <= 1.0:
            raise UsageError(f"--spec-accept {self.accept} is no probability", "give a value from 0 to 1")

    @property
    def drafts(self) -> int:
        return self.tokens - 1

    def draft(self, rng: random.Random, vocab_size: int) -> list[int]:
        """m - 1 draft tokens; the last id of the vocabulary (end of sequence) is never drafted."""
        return [rng.randrange(vocab_size - 1) for _ in range(self.drafts)]

    def accepted(self, rng: random.Random) -> int:
        """How many drafts of a step are accepted, 0..m-1. Always draws m - 1 times, to keep seeds aligned."""
        draws = [rng.random() < self.accept for _ in range(self.drafts)]
        return next((at for at, accepted in enumerate(draws) if not accepted), self.drafts)
