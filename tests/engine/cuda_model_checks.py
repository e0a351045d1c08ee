"""Checks of the GPU engine's whole step, on CPU tensors; run by `cuda_checks` under the interpreter.

The model is small but for its heads, which are those of the kernels. Weights that the GPU keeps in bf16 are rounded
to bf16 for the reference too, so what differs is arithmetic: bf16 activations, the FP8 cache.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine import reference
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda import agreement, weights
from dsv4bench.engine.cuda.cache import allocate
from dsv4bench.engine.cuda.executor import CudaExecutor
from dsv4bench.engine.cuda.fused.addressing import Where
from dsv4bench.engine.cuda.model import CudaDecoder, Routing
from dsv4bench.engine.cuda.sets import Choice, CudaKernels, load
from dsv4bench.engine.sequence import Sampling, Sequence
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.stepper import Stepper
from dsv4bench.engine.weights import ModelWeights, RandomWeights
from dsv4bench.kernels import mla_cache
from dsv4bench.kernels import reference as exact
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.sets import Experts

CPU = torch.device("cpu")
# Of logits of unit variance. Every expert is chosen and every entry attended, so that no choice can flip.
TOLERANCE = 0.15
SMALL = ModelDims(
    name="small",
    vocab_size=300,
    hidden=128,
    ratios=(0, 4),
    hash_layers=1,
    heads=2,
    head_dim=512,
    rope_dim=64,
    q_lora=32,
    o_groups=2,
    o_lora=16,
    experts=4,
    experts_per_token=4,
    shared_experts=1,
    expert_hidden=64,
    window=6,
    index_heads=3,
    index_head_dim=16,
    index_topk=16,
    hc_sinkhorn_iters=2,
)
_ROUNDED = {"embed", "head", "wq_a", "wq_b", "wkv", "wo_a", "wo_b", "value", "gate", "query", "head_weight", "mix"}
_ROUNDED |= {"router", "shared_w13", "shared_w2"}


class ExactMoe:
    """The float64 reference, in the place of a kernel."""

    def prepare(self, experts: Experts) -> Experts:
        return experts

    def __call__(self, x: Tensor, ids: Tensor, share: Tensor, prepared: Experts) -> Tensor:
        return exact.moe(MoeCall(x, ids, share, prepared)).bfloat16()


class ExactAttention:
    lse = "plain"

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        out, lse = exact.sparse_decode(call)
        return out.bfloat16(), lse.float()


EXACT = CudaKernels("exact", ExactMoe(), "exact", ExactAttention())  # type: ignore[arg-type]


def rounded(value: Any, name: str = "") -> Any:
    if isinstance(value, Tensor):
        return value.bfloat16().float() if name in _ROUNDED else value
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(
            value, **{f.name: rounded(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
        )
    return tuple(map(rounded, value)) if isinstance(value, tuple) else value


def model(drawn: ModelWeights, *sets: CudaKernels) -> tuple[weights.CudaOuter, list[weights.CudaLayer]]:
    runners = {k.moe_name: k.moe_runner for k in sets or (EXACT,)}
    return weights.outer(drawn, CPU), [weights.layer(w, CPU, runners) for w in drawn.layers]


def decoder(drawn: ModelWeights) -> CudaDecoder:
    return CudaDecoder(SMALL, *model(drawn), allocate(SMALL, 5, 4, 3, CPU), positions=512, spans=Spans(), device=CPU)


def ints(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def tokens(count: int, seed: int) -> list[int]:
    drawn: list[int] = torch.randint(
        0, SMALL.vocab_size, (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return drawn


def near(got: Tensor, truth: Tensor) -> None:
    error = (got - truth).abs().max().item()
    assert error <= TOLERANCE, error


def check_prefill_decode_and_verification_against_the_reference() -> None:
    drawn = RandomWeights(SMALL, 0).draw()
    long, short = tokens(13, 1), tokens(5, 2)
    truth_long = reference.logits(long, rounded(drawn), SMALL)
    truth_short = reference.logits(short, rounded(drawn), SMALL)
    run = decoder(drawn)

    def one(at: int, new: int, table: list[int]) -> Where:
        return Where(ints([table[0]]), ints([at]), ints([1]), ints([table]), new)  # its slot: its first page

    near(run.forward(ints(long[:6]), one(0, 6, [2, 1]), EXACT), truth_long[:6])
    near(run.forward(ints(long[6:9]), one(6, 3, [2, 1]), EXACT, last_only=True), truth_long[8:9])
    near(run.forward(ints(short[:3]), one(0, 3, [3, 0]), EXACT)[-1:], truth_short[2:3])
    # Two requests of unlike length and a padded one; the padding's page is 0.
    at = Where(ints([2, 3, 0]), ints([9, 3, 0]), ints([2]), ints([[2, 1], [3, 0], [0, 0]]), 1)
    got = run.forward(ints([long[9], short[3], 0]), at, EXACT)
    near(got[:2], torch.stack((truth_long[9], truth_short[3])))
    # Three positions verified; then again behind rejected drafts.
    wrong = [long[10], (long[11] + 1) % 300, 5]
    near(run.forward(ints(wrong), one(10, 3, [2, 1]), EXACT)[:1], truth_long[10:11])
    near(run.forward(ints(long[11:13]), one(11, 2, [2, 1]), EXACT), truth_long[11:13])


def _agrees(kernels: CudaKernels) -> None:
    found = agreement.compare(
        SMALL,
        kernels,
        EXACT,
        EXACT,
        model(RandomWeights(SMALL, 0).draw(), kernels, EXACT),
        prompts=[tokens(5, 1), tokens(2, 2)],
        steps=2,
        seed=3,
        device=CPU,
    )
    assert found.holds, found
    assert (found.requests, found.steps, found.decided > 0) == (2, 2, True)
    assert 0.5 < found.scale < 2.0 and 0 < found.rms < 0.05


def check_the_fallback_kernels_agree_with_exact_arithmetic() -> None:
    _agrees(load("fallback", "fallback"))


def check_the_optimized_kernels_agree_with_exact_arithmetic() -> None:
    _agrees(load("optimized", "optimized"))


def check_agreement_sees_a_kernel_that_is_wrong() -> None:
    class Wrong(ExactMoe):
        def __call__(self, x: Tensor, ids: Tensor, share: Tensor, prepared: Experts) -> Tensor:
            return super().__call__(x, ids.roll(1, dims=1), share, prepared)

    drawn = RandomWeights(SMALL, 0).draw()
    wrong = CudaKernels("exact", Wrong(), "exact", ExactAttention())  # type: ignore[arg-type]
    arguments: dict[str, Any] = {"prompts": [tokens(2, 1)], "steps": 1, "seed": 3, "device": CPU}
    found = agreement.compare(SMALL, EXACT, wrong, EXACT, model(drawn), **arguments)
    assert not found.holds and found.largest > 2 * found.tolerance


def check_routing_is_recorded_and_forced() -> None:
    dims = msgspec.structs.replace(SMALL, experts_per_token=2, ratios=(0,), hash_layers=0)
    drawn = RandomWeights(dims, 0).draw()
    run = CudaDecoder(dims, *model(drawn), allocate(dims, 2, 1, 1, CPU), positions=256, spans=Spans(), device=CPU)
    at = Where(ints([0]), ints([0]), ints([1]), ints([[1]]), 2)
    made = Routing()
    free = run.forward(ints([5, 6]), at, EXACT, routing=made)
    again = Routing(forced=made.made)
    assert torch.equal(run.forward(ints([5, 6]), at, EXACT, routing=again), free)
    others = [(ids + 1) % 4 for ids in made.made]
    assert not torch.equal(run.forward(ints([5, 6]), at, EXACT, routing=Routing(forced=others)), free)


def _stepper(drawn: ModelWeights, **options: Any) -> Stepper:
    options = {"prefill_chunk": 4} | options
    config = EngineConfig(device="cuda", preset="flash-layers", max_model_len=64, **options)
    small = _WithDims(**msgspec.structs.asdict(config))
    choice = Choice(decode=EXACT, prefill=EXACT)
    given = CudaExecutor(small, Spans(), device=CPU, kernels=choice, drawn=model(drawn))
    return Stepper(small, given)


class _WithDims(EngineConfig, frozen=True):
    @property
    def dims(self) -> ModelDims:
        return SMALL


def _sequence(name: str, prompt: list[int], count: int, **options: Any) -> Sequence:
    sampling = Sampling(max_tokens=count, temperature=options.pop("temperature", 0.0), ignore_eos=True)
    return Sequence(name, prompt, sampling, options.pop("seed", 5), 0.0)


def _run(stepper: Stepper, *sequences: Sequence) -> list[list[str]]:
    """Who was delivered to, step by step."""
    stepper.schedule.waiting.extend(sequences)
    delivered = []
    while stepper.schedule.waiting or stepper.schedule.running:
        delivered.append([e.delivery.request_id for e in stepper.step().emissions])
    assert stepper.schedule.pool.used_frac == 0.0
    return delivered


def check_served_tokens_are_those_of_the_reference() -> None:
    drawn = RandomWeights(SMALL, 0).draw()
    stepper = _stepper(drawn, max_running=3)
    sequences = [_sequence("a", tokens(6, 1), 3), _sequence("b", tokens(2, 2), 2)]
    delivered = _run(stepper, *sequences)
    # The tokens of a step come with the next one: b's prompt is through in the second step, a's as well.
    assert delivered == [[], [], ["a", "b"], ["a", "b"], ["a"]], delivered
    for seq in sequences:
        truth = reference.logits(seq.prompt + seq.output, rounded(drawn), SMALL)[len(seq.prompt) - 1 : -1]
        chosen = truth.gather(1, torch.tensor(seq.output).unsqueeze(1)).squeeze(1)
        assert (truth.max(dim=1).values - chosen).max().item() <= TOLERANCE


def check_a_prompt_in_chunks_leaves_the_cache_of_a_whole_one() -> None:
    """Six tokens a chunk cut the spans of the compressor, so that chunks need what earlier ones left behind."""
    drawn = RandomWeights(SMALL, 0).draw()
    found = []
    for chunk in (32, 6):
        stepper = _stepper(drawn, max_running=2, prefill_chunk=chunk)
        _run(stepper, _sequence("a", tokens(18, 1), 1), _sequence("b", tokens(9, 2), 1))
        executor = stepper.executor
        assert isinstance(executor, CudaExecutor)
        entries = executor.decoder._caches[1].entries
        assert entries is not None
        found.append(mla_cache.gather(entries, 64, torch.tensor([*range(64, 68), *range(128, 130)])))
    assert found[0].abs().sum() > 0
    assert torch.equal(*found)


def check_served_speculation_keeps_the_accepted_drafts() -> None:
    drawn = RandomWeights(SMALL, 0).draw()
    stepper = _stepper(drawn, max_running=1, spec_tokens=3, spec_accept=0.7)
    seq = _sequence("a", tokens(3, 1), 7)
    _run(stepper, seq)
    assert len(seq.output) == 7
    truth = reference.logits(seq.prompt + seq.output, rounded(drawn), SMALL)[len(seq.prompt) - 1 : -1]
    chosen = truth.gather(1, torch.tensor(seq.output).unsqueeze(1)).squeeze(1)
    own = (truth.max(dim=1).values - chosen) <= TOLERANCE  # the others are drafts
    assert own[0] and 3 <= own.sum().item() < 7, own


def check_live_says_what_runs() -> None:
    stepper = _stepper(RandomWeights(SMALL, 0).draw(), max_running=5)
    live = stepper.executor.live
    assert (live.moe, live.attention, live.device, live.cuda_graphs) == ("exact", "exact", "cpu", [])
