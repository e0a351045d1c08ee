"""Synthetic speculation: the drawn acceptance has the promised distribution, and its tokens are well defined."""

from __future__ import annotations

import random

import pytest
import torch

from dsv4bench.engine import reference
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.sequence import Sampling, Sequence
from dsv4bench.engine.speculation import Speculation
from dsv4bench.engine.stepper import Stepper
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.errors import UsageError


def test_acceptance_is_geometric_up_to_m_minus_one() -> None:
    spec, rng, draws = Speculation(tokens=4, accept=0.6), random.Random(0), 20_000
    counts = [0, 0, 0, 0]
    for _ in range(draws):
        counts[spec.accepted(rng)] += 1
    for got, wanted in zip(counts, [0.4, 0.6 * 0.4, 0.36 * 0.4, 0.216], strict=True):
        assert abs(got / draws - wanted) < 0.015  # four standard errors


@pytest.mark.parametrize(("accept", "length"), [(0.0, 0), (1.0, 3)])
def test_extremes(accept: float, length: int) -> None:
    assert Speculation(tokens=4, accept=accept).accepted(random.Random(1)) == length


@pytest.mark.parametrize(("tokens", "accept"), [(1, 0.5), (4, 1.5), (4, -0.1)])
def test_refuses_what_is_no_speculation(tokens: int, accept: float) -> None:
    with pytest.raises(UsageError):
        Speculation(tokens=tokens, accept=accept)


def test_the_token_after_the_accepted_drafts_is_the_models_own() -> None:
    config = EngineConfig(kernels="optimized", max_running=1, max_model_len=256, spec_tokens=4, spec_accept=0.6)
    stepper = Stepper(config)
    seq = Sequence("s", [1, 2, 3, 4, 5], Sampling(max_tokens=40, temperature=0.0, ignore_eos=True), 9, 0.0)
    stepper.schedule.waiting.append(seq)
    chunks, accepted, drafts = [], 0, 0
    while stepper.schedule.waiting or stepper.schedule.running:
        result = stepper.step()
        chunks += [e.delivery.tokens for e in result.emissions]
        accepted, drafts = accepted + result.accepted_tokens, drafts + result.drafts
    weights = RandomWeights(stepper.dims, config.seed).draw()
    truth = reference.logits(seq.prompt + seq.output, weights, stepper.dims)
    at = len(seq.prompt) - 1
    for chunk in chunks[:-1]:  # the last may have been cut at max_tokens, before the model's own token
        at += len(chunk)
        own = truth[at - 1]
        assert (own.max() - own[chunk[-1]]).item() <= 1e-4
    assert len(seq.output) == 40
    assert drafts == len(chunks) - 1
    assert 1.0 < 1 + accepted / drafts <= 4.0
    assert any(len(chunk) > 1 for chunk in chunks)
    assert torch.isfinite(truth).all()
