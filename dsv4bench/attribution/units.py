"""Which unit does a kernel run on: tensor cores (any real MMA), CUDA cores, or unknown, each with its evidence.

    counter   ncu's counters of that kernel at that grid (see counters.py)
    sass      MMA opcodes in its compiled code; their absence proves CUDA cores, their presence that it can use MMA
    rule      an exact fragment of its name, from a rule file
    none      unknown: its own row, folded into nothing

The first that answers wins. A kernel of another grid, a cubin of another GPU, builds that disagree, and counters that
leave a type out are no answer; the note says what was seen. Names are joined in `normalise`d form (the caller's, as
each profiler spells names in its own way); where one side shows no template arguments, by the base name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

import msgspec

from dsv4bench.attribution.counters import dram_share, judge, tensor_share
from dsv4bench.records.breakdown import RunsOn, UnitEvidence
from dsv4bench.records.rules import Rules, UnitRule
from dsv4bench.records.trace import CounterRow, KernelCounters, Sass, SassBuild

Dims = tuple[int, int, int]
Normalise = Callable[[str], str]
T = TypeVar("T")


class UnitVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The unit of one kernel at one grid. Fractions are means over the profiled launches."""

    runs_on: RunsOn
    evidence: UnitEvidence
    note: str
    tensor_pipe_frac: float | None = None
    tensor_pipe_metric: str | None = None  # with its denominator: of elapsed or active cycles
    dram_frac: float | None = None
    launches: int = 0  # profiled ones that entered


@dataclass(frozen=True, slots=True)
class _Answer:
    runs_on: RunsOn | None  # None: this kind of evidence does not tell
    note: str = ""


class Units:
    """All evidence of one capture, indexed; `of` asks it for one kernel."""

    def __init__(
        self, counters: Sequence[KernelCounters], sass: Mapping[str, Sass], rules: Rules, normalise: Normalise
    ) -> None:
        self._normalise = normalise
        self._rows: dict[str, list[CounterRow]] = {}
        self._builds: dict[str, list[SassBuild]] = {}
        for row in (row for file in counters for row in file.rows):
            _index(self._rows, normalise(row.name), [row])
        for name, kernel in sass.items():
            _index(self._builds, normalise(name), kernel.builds)
        self._named: dict[str, _Answer] = {}
        self._rules = [(rule, re.compile(rule.regex) if rule.regex is not None else None) for rule in rules.units]

    def of(
        self, name: str, grid: Dims | None = None, block: Dims | None = None, compute: tuple[int, int] | None = None
    ) -> UnitVerdict:
        """The verdict of the kernel `name` launched with `grid` (None or zeros: the trace does not tell).

        `compute` is the capability of the GPU that ran it: code compiled for another one is no evidence.
        """
        rows, joined = self._launches(name, grid, block)
        counted = _from_counters(rows, joined)
        compute = compute or next((row.compute for row in rows if row.compute is not None), None)
        compiled = _from_code(_found(self._builds, self._normalise(name)), compute)
        named = self._from_name(name)
        shares = [share for row in rows if (share := tensor_share(row)) is not None]
        metric = shares[0][1] if shares else None
        drams = [dram for row in rows if (dram := dram_share(row)) is not None]
        verdict = self._first(counted, compiled, named)
        return msgspec.structs.replace(
            verdict,
            tensor_pipe_frac=fmean(v for v, m in shares if m == metric) if shares else None,
            tensor_pipe_metric=metric,
            dram_frac=fmean(drams) if drams else None,
            launches=len(rows),
        )

    @staticmethod
    def _first(counted: _Answer, compiled: _Answer, named: _Answer) -> UnitVerdict:
        ladder: list[tuple[UnitEvidence, _Answer]] = [("counter", counted), ("sass", compiled), ("rule", named)]
        seen: list[str] = []
        for evidence, answer in ladder:
            if answer.runs_on in ("tensor", "cuda"):
                note = "; ".join(filter(None, (answer.note, *seen)))
                return UnitVerdict(runs_on=answer.runs_on, evidence=evidence, note=note)
            if answer.note:
                seen.append(answer.note)
        return UnitVerdict(runs_on="unknown", evidence="none", note="; ".join(seen))

    def _launches(self, name: str, grid: Dims | None, block: Dims | None) -> tuple[list[CounterRow], str]:
        """Profiled launches of this kernel at this grid, and a remark when they are less than that."""
        key = self._normalise(name)
        found = _found(self._rows, key)
        if not found:
            return [], ""
        remark = "" if key in self._rows else "joined by base name"
        if not _known(grid):
            return found, "; ".join(filter(None, (remark, "the trace tells no grid")))
        same = [row for row in found if not _known(row.grid) or row.grid == grid]
        if _known(block):
            same = [row for row in same if not _known(row.block) or row.block == block]
        if not same:
            return [], f"profiled at another grid only: {_listed({row.grid for row in found})}"
        return same, remark

    def _from_name(self, name: str) -> _Answer:
        if name not in self._named:  # a trace has few names and many grids
            self._named[name] = self._ruled(name)
        return self._named[name]

    def _ruled(self, name: str) -> _Answer:
        for rule, pattern in self._rules:
            fragment = _matched(rule, pattern, name)
            if fragment is not None:
                note = f"name has {fragment}" + (f": {rule.note}" if rule.note else "")
                return _Answer(rule.runs_on, note)
        return _Answer(None)


def runs_on(
    name: str,
    grid: Dims | None,
    *,
    counters: Sequence[KernelCounters],
    sass: Mapping[str, Sass],
    rules: Rules,
    normalise: Normalise,
) -> UnitVerdict:
    """One kernel; for many, make one `Units` and ask it."""
    return Units(counters, sass, rules, normalise).of(name, grid)


def _from_counters(rows: Sequence[CounterRow], joined: str) -> _Answer:
    """One launch with a real MMA makes the kernel a tensor kernel: an expert without tokens executes none."""
    if not rows:
        return _Answer(None, joined)
    verdicts = [judge(row) for row in rows]
    tensor = [v for v in verdicts if v.unit == "tensor"]
    cuda = [v for v in verdicts if v.unit == "cuda"]
    if tensor and cuda and joined:  # not known to be the same kernel at one shape
        return _Answer(None, f"{joined}, and its profiled launches ran on different units")
    said = tensor or cuda
    if not said:
        return _Answer(None, "; ".join(filter(None, (f"counters: {verdicts[0].why}", joined))))
    share = f"{len(said)} of {len(rows)} launches" if len(said) < len(rows) else ""
    return _Answer(said[0].unit, "; ".join(filter(None, (said[0].why, share, joined))))


def _from_code(builds: Sequence[SassBuild], compute: tuple[int, int] | None) -> _Answer:
    if not builds:
        return _Answer(None)
    if compute is not None:
        arch = f"sm_{compute[0]}{compute[1]}"
        fitting = [b for b in builds if b.arch in ("", arch)]
        if not fitting:
            return _Answer(None, f"compiled for {_listed({b.arch for b in builds})} only, the trace is of {arch}")
        builds = fitting
    opcodes = sorted({op for b in builds for op in b.opcodes})
    with_mma = sum(bool(b.opcodes) for b in builds)
    weak = sorted({b.proof for b in builds if b.proof != "sass"})
    weaker = f" (from {' and '.join(w.upper() for w in weak)} text, weaker than disassembly)" if weak else ""
    if with_mma == len(builds):
        return _Answer("tensor", f"compiled with {' '.join(opcodes)}{weaker}")
    if with_mma == 0:
        return _Answer("cuda", f"no MMA instruction in {len(builds)} build{'s' * (len(builds) > 1)}{weaker}")
    return _Answer(None, f"{with_mma} of {len(builds)} builds of this name have MMA, which one ran is not told")


def _matched(rule: UnitRule, pattern: re.Pattern[str] | None, name: str) -> str | None:
    """The part of the name that the rule knows; None when it does not apply."""
    if any(part in name for part in rule.without):
        return None
    if pattern is not None:
        hit = pattern.search(name)
        return hit[0] if hit is not None else None
    return next((part for part in rule.contains if part in name), None)


def _index(table: dict[str, list[T]], key: str, items: Iterable[T]) -> None:
    table.setdefault(key, []).extend(items)


def _found(table: Mapping[str, list[T]], key: str) -> list[T]:
    """Entries of this key; where either side shows no template arguments, of this base name."""
    if key in table:
        return table[key]
    base, arguments, _ = key.partition("<")
    if arguments:
        return table.get(base, [])
    return [item for other, items in table.items() if other.partition("<")[0] == base for item in items]


def _known(dims: Dims | None) -> bool:
    return dims is not None and any(dims)


def _listed(items: Iterable[object]) -> str:
    texts = sorted(str(item) or "an untold GPU" for item in items)
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
