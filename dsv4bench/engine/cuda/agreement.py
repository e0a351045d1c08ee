"""Do two kernel sets compute the same model? Teacher-forced logits, the second set with the experts of the first.

Both read the same weights and decode the same tokens after the same prompts, each on a cache of its own. A choice of
experts is discrete: a rounding may flip it and move the logits by far more than any rounding does. The second set
therefore takes the first one's choices, and what is left is arithmetic. Two statements follow:

    close    |logit_a - logit_b| <= tolerance for every token of every step
    same     argmax_a = argmax_b wherever the margin of a's best over its second exceeds the tolerance

Contexts stay below `4 * index_topk` tokens, where the indexer takes every entry and has nothing to flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.cuda import weights
from dsv4bench.engine.cuda.cache import allocate
from dsv4bench.engine.cuda.fused.addressing import Where
from dsv4bench.engine.cuda.limits import PAGE_SIZE
from dsv4bench.engine.cuda.model import CudaDecoder, Routing
from dsv4bench.engine.cuda.sets import CudaKernels
from dsv4bench.engine.spans import Spans

# Of logits of unit variance, over all of the vocabulary. bf16 keeps 8 bits, so each of some tens of roundings on the
# way moves a logit by a few thousandths; the largest of a million logits is five of their deviations.
TOLERANCE = 0.125


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came out, over `steps` steps of `requests` requests."""

    requests: int
    steps: int
    largest: float  # |logit_a - logit_b|
    rms: float  # of the same
    scale: float  # standard deviation of a's logits
    decided: int  # tokens whose margin exceeds the tolerance
    differing: int  # of those, how many have another best token in b
    differing_undecided: int  # of the others
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.largest <= self.tolerance and self.differing == 0


def compare(
    dims: ModelDims,
    first: CudaKernels,
    second: CudaKernels,
    prefill: CudaKernels,
    model: tuple[weights.CudaOuter, list[weights.CudaLayer]],
    *,
    prompts: Sequence[Sequence[int]],
    steps: int,
    seed: int,
    device: torch.device,
    tolerance: float = TOLERANCE,
) -> Agreement:
    """Decodes `steps` random tokens after each prompt with both sets. The prompts must be longer than 0 tokens."""
    longest = max(len(prompt) for prompt in prompts) + steps
    if longest > 4 * dims.index_topk:
        raise ValueError(
            f"{longest} tokens: above {4 * dims.index_topk} the indexer chooses, and may choose otherwise"
        )
    forced = torch.randint(0, dims.vocab_size, (steps, len(prompts)), generator=torch.Generator().manual_seed(seed))
    runs = [_Run(dims, model, prefill, prompts, longest, device) for _ in range(2)]
    tally = _Tally(tolerance)
    for step in range(steps):
        tokens = forced[step].to(device, torch.int32)
        made = Routing()
        a = runs[0].decode(tokens, step, first, made)
        b = runs[1].decode(tokens, step, second, Routing(forced=made.made))
        tally.add(a, b)
    return tally.result(len(prompts), steps)


class _Run:
    """One cache, with the prompts in it."""

    def __init__(
        self,
        dims: ModelDims,
        model: tuple[weights.CudaOuter, list[weights.CudaLayer]],
        prefill: CudaKernels,
        prompts: Sequence[Sequence[int]],
        longest: int,
        device: torch.device,
    ) -> None:
        pages = -(-longest // PAGE_SIZE)
        caches = allocate(dims, 1 + pages * len(prompts), len(prompts), 1, device)
        self._decoder = CudaDecoder(dims, *model, caches, positions=longest, spans=Spans(), device=device)
        self._lengths = [len(prompt) for prompt in prompts]
        self._device = device
        self._tables = 1 + torch.arange(pages * len(prompts), device=device, dtype=torch.int32).view(-1, pages)
        for row, prompt in enumerate(prompts):
            tokens = torch.tensor(prompt, dtype=torch.int32, device=device)
            where = Where(
                self._ints([row]), self._ints([0]), self._ints([1]), self._tables[row : row + 1], len(prompt)
            )
            self._decoder.forward(tokens, where, prefill, last_only=True)

    def decode(self, tokens: Tensor, step: int, kernels: CudaKernels, routing: Routing) -> Tensor:
        start = self._ints([length + step for length in self._lengths])
        slots = self._ints(list(range(len(self._lengths))))
        where = Where(slots, start, self._ints([len(self._lengths)]), self._tables, 1)
        return self._decoder.forward(tokens, where, kernels, routing=routing)

    def _ints(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self._device)


class _Tally:
    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._largest = self._squares = self._variance = 0.0
        self._counts = [0, 0, 0]  # decided, differing, differing undecided
        self._values = 0

    def add(self, a: Tensor, b: Tensor) -> None:
        difference = (a - b).double()
        # `not <=`: a NaN must count as the worst, not as nothing
        largest = float(difference.abs().max())
        self._largest = max(self._largest, largest) if largest <= float("inf") else float("inf")
        self._squares += float(difference.square().sum())
        self._variance += float(a.double().square().sum())
        self._values += a.numel()
        best = a.topk(2, dim=1).values
        decided = best[:, 0] - best[:, 1] > self._tolerance
        other = a.argmax(dim=1) != b.argmax(dim=1)
        for i, found in enumerate((decided, decided & other, ~decided & other)):
            self._counts[i] += int(found.sum())

    def result(self, requests: int, steps: int) -> Agreement:
        decided, differing, undecided = self._counts
        return Agreement(
            requests=requests,
            steps=steps,
            largest=self._largest,
            rms=(self._squares / self._values) ** 0.5,
            scale=(self._variance / self._values) ** 0.5,
            decided=decided,
            differing=differing,
            differing_undecided=undecided,
            tolerance=self._tolerance,
        )
