"""Does a kernel compute what the reference computes? The gate that no kernel passes by luck.

Each case is called with two different inputs, so that a result left over from the first is found in the second,
and on a GPU with the first ones again. Memory is poisoned (see `poison`), and arguments must come back unchanged.
The bounds are those of `comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels import cases, reference
from dsv4bench.kernels.arguments import compute_capability
from dsv4bench.kernels.calls import AttentionCall, MoeCall
from dsv4bench.kernels.comparison import Comparison, compare
from dsv4bench.kernels.poison import poisoned
from dsv4bench.kernels.registry import Kernel
from dsv4bench.kernels.sets import Experts
from dsv4bench.kernels.shapes import MoeShape, Shape
from dsv4bench.records.kernels import Outcome, ParityRow

__all__ = ["Comparison", "compare", "green", "poisoned", "run_case", "run_list"]


@dataclass(frozen=True, slots=True)
class _Trial:
    """One call with its truth, and its arguments as they were."""

    call: MoeCall | AttentionCall
    out: Tensor
    lse: Tensor | None  # without the sink
    before: dict[str, Tensor]


class _Checker:
    """Runs cases on one device; experts, and what kernels prepared from them, are kept while cases share them."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.seed = seed
        self.lost: str | None = None  # why the GPU answers no more
        self._weights: Any = None
        self._experts: Experts | None = None
        self._prepared: dict[str, Any] = {}

    def trials(self, case: Shape) -> tuple[_Trial, ...]:
        """Two calls that share their experts or caches."""
        seeds = (self.seed, self.seed + 1)
        if isinstance(case, MoeShape):
            if self._weights != case.weights:
                self._prepared.clear()
                self._experts = None  # frees the memory first
                self._experts = cases.make_experts(case, self.seed, self.device)
                self._weights = case.weights
            calls: list[Any] = [cases.make_moe(case, seed, self.device, self._experts) for seed in seeds]
            truths: list[Any] = [(reference.moe(call), None) for call in calls]
        else:
            pools = cases.make_pools(case, self.seed, self.device)
            calls = [cases.make_attention(case, seed, self.device, pools) for seed in seeds]
            truths = [reference.sparse_decode(call) for call in calls]
        copies: dict[int, Tensor] = {}  # the calls share their largest arguments
        trials = []
        for call, truth in zip(calls, truths, strict=True):
            arguments = dict(_arguments(call))
            for tensor in arguments.values():
                if tensor.data_ptr() not in copies:
                    copies[tensor.data_ptr()] = tensor.clone()
            before = {name: copies[tensor.data_ptr()] for name, tensor in arguments.items()}
            trials.append(_Trial(call, truth[0], truth[1], before))
        return tuple(trials)

    def run(self, kernel: Kernel, runner: Any, case: Shape, trials: Sequence[_Trial]) -> ParityRow:
        if kernel.role == "peer" and case.scales.endswith("counts"):
            return _row(kernel, case, "skipped", why="peers are not held to scale bytes that no model has")
        rounds = [("", trials[0]), ("with fresh inputs: ", trials[1])]
        if self.device.type == "cuda":  # what depends on the order of threads
            rounds.append(("when called again: ", trials[0]))
        results = []
        try:
            for prefix, trial in rounds:
                result = self._call(kernel, runner, trial)
                results.append((prefix, result))
                if result.why:
                    break
        except UsageError as error:
            # A bundled kernel takes every case; a peer may not.
            return _row(kernel, case, "skipped" if kernel.role == "peer" else "fail", why=error.message)
        except Exception as error:  # whatever a kernel raises is a finding
            if not self._alive():
                self.lost = f"the GPU was lost to {kernel.name} in the case {case.label!r}"
            return _row(kernel, case, "fail", why=_first_line(error))
        return _summary(kernel, case, results)

    def _call(self, kernel: Kernel, runner: Any, trial: _Trial) -> Comparison:
        with poisoned(self.device):
            out, lse = self._outputs(kernel, runner, trial.call)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        expected_lse = trial.lse
        if isinstance(trial.call, AttentionCall) and trial.lse is not None and runner.lse == "with_sink":
            expected_lse = reference.with_sink(trial.lse, trial.call.sink)
        result = compare(out, lse, trial.out, expected_lse, kernel.rel_fro_limit)
        changed = _restore(trial)
        if changed:
            return Comparison(why=f"it changed its argument {changed[0]}")
        return result

    def _outputs(self, kernel: Kernel, runner: Any, call: MoeCall | AttentionCall) -> tuple[Tensor, Tensor | None]:
        if isinstance(call, AttentionCall):
            out, lse = runner(call)
            return out, lse
        if kernel.name not in self._prepared:
            self._prepared[kernel.name] = runner.prepare(call.experts)
        return runner(call.x, call.ids, call.weights, self._prepared[kernel.name]), None

    def _alive(self) -> bool:
        if self.device.type != "cuda":
            return True
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError:
            return False
        return True


def run_case(
    kernel: Kernel, runner: Any, case: Shape, device: torch.device | str = "cpu", seed: int = 0
) -> ParityRow:
    """One kernel on one case. What the kernel raises is in the row; a UsageError of a peer is a skipped row."""
    checker = _Checker(torch.device(device), seed)
    return checker.run(kernel, runner, case, checker.trials(case))


def run_list(
    kernels: Sequence[Kernel],
    shapes: Sequence[Shape],
    device: torch.device | str = "cpu",
    progress: Callable[[ParityRow], None] | None = None,
    seed: int = 0,
) -> list[ParityRow]:
    """Every kernel on every case of its component; one row, "all", for a kernel that cannot run here.

    Never raises for what a kernel does. `progress` sees each row as it is found. After an error that costs a process
    its GPU the remaining rows fail, saying to which kernel it was lost.
    """
    rows = []
    for row in _rows(kernels, shapes, torch.device(device), seed):
        rows.append(row)
        if progress is not None:
            progress(row)
    return rows


def _rows(kernels: Sequence[Kernel], shapes: Sequence[Shape], device: torch.device, seed: int) -> Iterator[ParityRow]:
    checker, loaded = _Checker(device, seed), []
    for kernel in kernels:
        try:
            if device.type == "cuda" and not kernel.supports(compute_capability(device)):
                raise UsageError(f"it does not support sm_{compute_capability(device)}")
            loaded.append((kernel, kernel.load()))
        except UsageError as error:
            yield ParityRow(kernel=kernel.name, case="all", outcome="skipped", why=error.message)
    for case in shapes:
        component = "moe" if isinstance(case, MoeShape) else "attention"
        mine = [(kernel, runner) for kernel, runner in loaded if kernel.component == component]
        trials: Sequence[_Trial] = ()
        if mine and not checker.lost:
            trials = checker.trials(case)
        for kernel, runner in mine:
            if checker.lost:
                yield _row(kernel, case, "fail", why=f"not run: {checker.lost}")
            else:
                yield checker.run(kernel, runner, case, trials)


def green(rows: Iterable[ParityRow]) -> list[str]:
    """Names of the kernels that passed at least one case and failed none, in order of appearance."""
    rows = list(rows)
    failed = {row.kernel for row in rows if row.outcome == "fail"}
    return list(dict.fromkeys(row.kernel for row in rows if row.outcome == "pass" and row.kernel not in failed))


def _arguments(call: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for field in fields(call):
        value = getattr(call, field.name)
        if isinstance(value, Tensor):
            yield prefix + field.name, value
        elif is_dataclass(value):
            yield from _arguments(value, f"{prefix}{field.name}.")


def _restore(trial: _Trial) -> list[str]:
    """Names of the arguments that differ from what they were; they are made as they were."""
    changed = []
    for name, tensor in _arguments(trial.call):
        if not torch.equal(tensor, trial.before[name]):
            changed.append(name)
            tensor.copy_(trial.before[name])
    return changed


def _summary(kernel: Kernel, case: Shape, results: Sequence[tuple[str, Comparison]]) -> ParityRow:
    """The worst of all rounds; the last one is the bad one, if there is any."""

    def largest(name: str) -> float | None:
        values = [getattr(result, name) for _, result in results]
        return None if None in values else max(values)

    prefix, last = results[-1]
    return _row(
        kernel,
        case,
        "fail" if last.why else "pass",
        why=prefix + last.why if last.why else None,
        rel_fro=largest("rel_fro"),
        worst=largest("worst"),
        lse_worst=largest("lse_worst"),
    )


def _row(kernel: Kernel, case: Shape, outcome: Outcome, **found: Any) -> ParityRow:
    return ParityRow(
        kernel=kernel.name, case=case.label, outcome=outcome, rel_fro_limit=kernel.rel_fro_limit, **found
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
