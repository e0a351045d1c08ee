"""From logits to tokens: greedy at temperature 0, else drawn with the request's own generator.

A request's draws depend on its seed and on how many it has made, never on the batch around it. `rank` tells the
log-probabilities of what was emitted, for requests that ask.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsv4bench.engine.sequence import Ranked, Sequence


@torch.inference_mode()
def sample(logits: Tensor, sequences: list[Sequence], eos_id: int) -> list[int]:
    """logits [R, vocab], one row a request -> R tokens. End of sequence is barred below `min_tokens`."""
    for row, seq in enumerate(sequences):
        if seq.barred_from_eos:
            logits[row, eos_id] = -math.inf
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, seq in enumerate(sequences):
        if seq.sampling.temperature > 0:
            probability = torch.softmax(logits[row] / seq.sampling.temperature, dim=-1)
            tokens[row] = int(torch.multinomial(probability, 1, generator=seq.generator))
    return tokens


@torch.inference_mode()
def rank(logits: Tensor, tokens: list[int], best: int) -> list[Ranked]:
    """logits [n, vocab] behind which n tokens were emitted -> each token's log-probability, and the `best` ones."""
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    own = logprobs[torch.arange(len(tokens)), torch.tensor(tokens)].tolist()
    values, ids = logprobs.topk(min(best, logprobs.shape[1]), dim=-1)
    pairs = [list(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]
    return [Ranked(*found) for found in zip(tokens, own, pairs, strict=True)]
