"""Continuous batching: what comes out depends on the request alone, and every slot and page comes back."""

from __future__ import annotations

import pytest
import torch

from dsv4bench.engine import reference
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.sequence import Sampling, Sequence
from dsv4bench.engine.stepper import Stepper, StepResult
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.kernels.sets import KERNEL_NAMES, KernelName


def _sequence(name: str, prompt: list[int], tokens: int, temperature: float = 0.0, seed: int = 5) -> Sequence:
    sampling = Sampling(max_tokens=tokens, temperature=temperature, ignore_eos=True)
    return Sequence(name, prompt, sampling, seed, 0.0)


def _run(stepper: Stepper, *sequences: Sequence) -> list[StepResult]:
    stepper.schedule.waiting.extend(sequences)
    results = []
    while stepper.schedule.waiting or stepper.schedule.running:
        results.append(stepper.step())
    assert stepper.schedule.pool.used_frac == 0.0
    return results


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_greedy_tokens_are_those_of_the_reference(name: KernelName) -> None:
    stepper = Stepper(EngineConfig(kernels=name, max_running=2, max_model_len=256, prefill_chunk=16, seed=4))
    prompts = [list(range(40)), [7, 9, 11], list(range(100, 150))]
    sequences = [_sequence(str(i), prompt, 5) for i, prompt in enumerate(prompts)]
    _run(stepper, *sequences)
    weights = RandomWeights(stepper.dims, 4).draw()
    for seq in sequences:
        truth = reference.logits(seq.prompt + seq.output, weights, stepper.dims)[len(seq.prompt) - 1 : -1]
        chosen = truth.gather(1, torch.tensor(seq.output).unsqueeze(1)).squeeze(1)
        assert (truth.max(dim=1).values - chosen).max().item() <= 1e-4, (name, seq.request_id)


def test_admission_limit_and_one_token_a_step() -> None:
    stepper = Stepper(EngineConfig(kernels="optimized", max_running=2, max_model_len=256))
    results = _run(stepper, *[_sequence(str(i), [1, 2, 3], 4) for i in range(3)])
    delivered = [[e.delivery.request_id for e in result.emissions] for result in results]
    assert delivered == [["0", "1"]] * 4 + [["2"]] * 4
    assert all(len(e.delivery.tokens) == 1 for result in results for e in result.emissions)
    assert [e.delivery.finish for e in results[3].emissions] == ["length", "length"]


def test_a_request_waits_for_pages_not_only_for_a_slot() -> None:
    stepper = Stepper(EngineConfig(kernels="optimized", max_running=2, max_model_len=4096))
    big = [_sequence(str(i), [1] * 100, 3000) for i in range(2)]  # the pool holds one of them
    stepper.schedule.waiting.extend(big)
    stepper.schedule.admit()
    assert [len(stepper.schedule.running), len(stepper.schedule.waiting)] == [1, 1]
    assert stepper.schedule.cancel("0") is big[0]
    stepper.schedule.admit()
    assert stepper.schedule.running == [big[1]]


@pytest.mark.parametrize("spec_tokens", [0, 3])
def test_sampling_does_not_depend_on_the_batch(spec_tokens: int) -> None:
    config = EngineConfig(kernels="optimized", max_running=4, max_model_len=256, spec_tokens=spec_tokens)
    alone = _sequence("alone", [5, 6, 7], 12, temperature=1.0)
    _run(Stepper(config), alone)
    among = _sequence("among", [5, 6, 7], 12, temperature=1.0)
    others = [_sequence(str(i), [9, i], 6, temperature=1.0, seed=i) for i in range(3)]
    _run(Stepper(config), *others, among)
    assert among.output == alone.output
    assert len(set(alone.output)) > 3


def test_end_of_sequence_stops_unless_ignored_and_not_before_min_tokens() -> None:
    stepper = Stepper(EngineConfig(kernels="optimized", max_running=1, max_model_len=256))

    def generate(**options: object) -> Sequence:
        sampling = Sampling(max_tokens=6, temperature=0.0, **options)  # type: ignore[arg-type]
        seq = Sequence("s", [3, 4], sampling, 0, 0.0)
        _run(stepper, seq)
        return seq

    plain = generate(ignore_eos=True)
    stepper.executor.eos_id = plain.output[
        1
    ]  # declare the second token the end: random weights draw the true one rarely
    stopped = generate()
    assert stopped.output == plain.output[: plain.output.index(stepper.executor.eos_id) + 1]
    assert generate(ignore_eos=True).output == plain.output
    assert stepper.executor.eos_id not in generate(min_tokens=4).output[:4]
