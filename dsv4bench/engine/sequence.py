"""One request inside the engine: what it asked for, how far it is, and what the engine delivers for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
import torch

FinishReason = Literal["length", "stop", "error"]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate. Temperature 0 is greedy; a seed makes sampling and speculation reproducible."""

    max_tokens: int
    min_tokens: int = 0  # end of sequence is not drawn before
    temperature: float = 1.0
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None  # tell each token's log-probability and those of so many best; None: tell none


class Ranked(NamedTuple):
    """What the model thought of one emitted token: natural logarithms, before temperature and `min_tokens`."""

    token: int
    logprob: float
    best: list[tuple[int, float]]  # best first


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What one step produced for one request: one chunk of its stream."""

    request_id: str
    tokens: list[int]
    ranked: list[Ranked] = []  # one a token where they were asked for
    finish: FinishReason | None = None
    error: str | None = None


@dataclass(slots=True)
class Sequence:
    """Mutable; owned by the engine's thread once submitted."""

    request_id: str
    prompt: list[int]
    sampling: Sampling
    seed: int
    arrived_s: float  # monotonic, as the times below
    output: list[int] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)  # of tokens that are drawn and not yet delivered
    computed: int = 0  # positions whose keys and values are in the cache
    pages: list[int] = field(default_factory=list)
    slot: int = -1  # of `max_running`, while it runs
    launched: int = 0  # output tokens that are drawn or on their way; `output` holds those delivered
    finished: bool = False  # delivered whole, or cancelled
    first_token_s: float | None = None
    last_token_s: float | None = None
    first_tokens: int = 0  # tokens of the first delivery
    drafter: random.Random = field(init=False)
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.drafter = random.Random(self.seed)
        self.generator = torch.Generator().manual_seed(self.seed)

    @property
    def prefilled(self) -> bool:
        return self.computed >= len(self.prompt)

    @property
    def remaining(self) -> int:
        return self.sampling.max_tokens - len(self.output)

    @property
    def barred_from_eos(self) -> bool:
        """Whether the next token must not end the sequence."""
        return self.launched < self.sampling.min_tokens

    def stamp(self, now_s: float, tokens: int) -> float | None:
        """Notes a delivery; returns the seconds since the previous one, None at the first."""
        previous, self.last_token_s = self.last_token_s, now_s
        if previous is None:
            self.first_token_s, self.first_tokens = now_s, tokens
            return None
        return now_s - previous

    @property
    def tpot_s(self) -> float | None:
        """(last - first) / (tokens - tokens of the first delivery); None without a second delivery."""
        later = len(self.output) - self.first_tokens
        if later < 1 or self.first_token_s is None or self.last_token_s is None:
            return None
        return (self.last_token_s - self.first_token_s) / later


@dataclass(slots=True)
class Emission:
    """A delivery on its way out: the request it belongs to, and the gap to its previous one."""

    sequence: Sequence
    delivery: Delivery
    gap_s: float | None = None
