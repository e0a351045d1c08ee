"""The whole step against the plain reference: paged, batched, chunked, verified, with both kernel sets.

Tolerance: 1e-4 on logits of unit variance. Both sides compute in float32; a choice that differs (an expert, an
index entry) would move logits by 0.01 and more.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims, tiny
from dsv4bench.engine import reference
from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import PAGE_SIZE
from dsv4bench.engine.model import Decoder
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import ModelWeights, RandomWeights
from dsv4bench.kernels.sets import KERNEL_NAMES, KernelName, kernel_set

TOLERANCE = 1e-4
LONG, SHORT = 142, 37  # the long one crosses a page and completes an entry of 128 tokens

SMALL = ModelDims(
    name="test",
    vocab_size=300,
    hidden=64,
    ratios=(0, 4, 128, 4),
    hash_layers=1,
    heads=4,
    head_dim=32,
    rope_dim=8,
    q_lora=32,
    o_groups=2,
    o_lora=16,
    experts=8,
    experts_per_token=3,
    shared_experts=1,
    expert_hidden=32,
    window=12,
    index_heads=3,
    index_head_dim=16,
    index_topk=8,
    hc_sinkhorn_iters=3,
)


class Case:
    """Two sequences, their reference logits, and a decoder whose pages are deliberately out of order."""

    def __init__(self) -> None:
        rng = torch.Generator().manual_seed(1)
        self.weights: ModelWeights = RandomWeights(SMALL, seed=0).draw()
        self.long = torch.randint(0, SMALL.vocab_size, (LONG,), generator=rng).tolist()
        self.short = torch.randint(0, SMALL.vocab_size, (SHORT,), generator=rng).tolist()
        self.long_truth = reference.logits(self.long, self.weights, SMALL)
        self.short_truth = reference.logits(self.short, self.weights, SMALL)

    def decoder(self) -> Decoder:
        return Decoder(SMALL, self.weights, pages=8, positions=512, spans=Spans())


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def _batch(tokens: list[list[int]], start: list[int], tables: list[list[int]]) -> ForwardBatch:
    return ForwardBatch(torch.tensor(tokens), start, torch.tensor(tables), PAGE_SIZE)


def _prefill(decoder: Decoder, tokens: list[int], table: list[int], cuts: list[int]) -> Tensor:
    bounds = [0, *cuts, len(tokens)]
    parts = []
    for begin, end in itertools.pairwise(bounds):
        batch = _batch([tokens[begin:end]], [begin], [table])
        parts.append(decoder.forward(batch, kernel_set("optimized"))[0])
    return torch.cat(parts)


@pytest.mark.parametrize("cuts", [[], [1, 50, 127, 128, 131]])
def test_prefill_whole_and_in_chunks(case: Case, cuts: list[int]) -> None:
    got = _prefill(case.decoder(), case.long, [5, 2], cuts)
    assert (got - case.long_truth).abs().max().item() <= TOLERANCE


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_batched_decode_of_sequences_of_unlike_length(case: Case, name: KernelName) -> None:
    decoder, steps = case.decoder(), 17
    _prefill(decoder, case.long[:-steps], [5, 2], [])
    _prefill(decoder, case.short[:-steps], [3], [])
    for at in range(steps):
        a, b = LONG - steps + at, SHORT - steps + at
        batch = _batch([[case.long[a]], [case.short[b]]], [a, b], [[5, 2], [3, 0]])
        got = decoder.forward(batch, kernel_set(name))
        assert (got[0, 0] - case.long_truth[a]).abs().max().item() <= TOLERANCE, (name, at)
        assert (got[1, 0] - case.short_truth[b]).abs().max().item() <= TOLERANCE, (name, at)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_verification_computes_m_positions_and_forgets_rejected_ones(case: Case, name: KernelName) -> None:
    decoder, m, position = case.decoder(), 4, 120
    _prefill(decoder, case.long[:position], [5, 2], [])
    while position + m <= LONG:
        true = case.long[position : position + m]
        wrong = [true[0], *[(token + 1) % SMALL.vocab_size for token in true[1:]]]
        decoder.forward(_batch([wrong], [position], [[5, 2]]), kernel_set(name))  # all drafts rejected
        got = decoder.forward(_batch([true], [position], [[5, 2]]), kernel_set(name))[0]
        error = (got - case.long_truth[position : position + m]).abs().max().item()
        assert error <= TOLERANCE, (name, position)
        position += 3  # one draft rejected: the next verification starts inside this one


def test_tiny_preset_agrees_and_its_logits_have_unit_scale() -> None:
    dims = tiny()
    weights = RandomWeights(dims, seed=3).draw()
    tokens = list(range(70, 118))
    truth = reference.logits(tokens, weights, dims)
    decoder = Decoder(dims, weights, pages=3, positions=256, spans=Spans())
    _prefill(decoder, tokens[:40], [1], [])
    for name in KERNEL_NAMES:
        for at in range(40, 48):
            got = decoder.forward(_batch([[tokens[at]]], [at], [[1]]), kernel_set(name))
            assert (got[0, 0] - truth[at]).abs().max().item() <= TOLERANCE, (name, at)
    assert 0.5 < truth.std().item() < 2.0


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (RandomWeights(SMALL, seed).draw() for seed in (7, 7, 8))
    assert torch.equal(first.layers[1].experts.w13, again.layers[1].experts.w13)
    assert torch.equal(first.head, again.head)
    assert not torch.equal(first.head, other.head)
