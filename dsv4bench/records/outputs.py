"""Greedy outputs of one server on a few prompts, kept to be held beside another configuration's."""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4bench.records.workload import Endpoint

Unit = Literal["ids", "tokens", "words"]

NO_LOGPROBS = "the server tells no log-probabilities"  # notes of a server's outputs
REFUSED = "the server does not take "  # and then the names of fields


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt gave. `best`: by position, what the server told of it: token -> log-probability."""

    prompt: int
    tokens: list[str]  # ids in decimal, the tokens' texts, or words, as `Outputs.unit` says
    best: list[dict[str, float]] | None = None  # the chosen token is among them; None: the server tells none


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """One server's answers; prompts that failed are missing, and the notes say why."""

    unit: Unit
    endpoint: Endpoint
    prompt_kind: str  # token_ids | text | messages
    prompts_sha256: str  # of what was asked, so that only like is compared with like
    seed: int
    isl: int
    osl: int
    outputs: list[Output] = msgspec.field(default_factory=list)
    repeats: bool | None = None  # whether the first prompt, asked once more, gave the same; None: not asked
    notes: list[str] = msgspec.field(default_factory=list)
