"""The climb of one configuration: per launch and concurrency one step time and one throughput.

Step time, the time of one decode step: mean TPOT · tokens per step (the acceptance length; 1 without speculation),
TPOT and throughput under full load where every level tells them (`throughput.py`). Where a level of the ladder has no
TPOT, the whole ladder takes C · tokens per step / throughput, which holds prefill, too; sources are never mixed in
one ladder, for a line through both would fit their difference. Repeats of a launch are averaged. Invalid levels and
tokens counted by chunks stay out, and a note says so.
Launch ids must be unique over the arm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec

from dsv4bench.compare.throughput import Source, positive, rounds, source_of, whole
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource


class StepSource(StrEnum):
    """What the step times of a ladder were computed from."""

    TPOT = "TPOT"
    THROUGHPUT = "throughput"


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one launch. `output_tok_s` is throughput as measured, prefill inside."""

    launch: str
    concurrency: int
    step_s: float
    output_tok_s: float | None
    accept_length: float = 1.0
    half_digit_frac: float = 0.0  # of a published figure: half of its last printed digit over the figure
    approximate: bool = False
    rounds: float | None = None  # of C requests, where they are so few that ramp and drain may decide the throughput

    @property
    def decode_tok_s(self) -> float:
        """What the step time means in tok/s: C sequences, each `accept_length` tokens a step."""
        return self.concurrency * self.accept_length / self.step_s


class Ladder(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All rungs of one configuration at one ISL, by launch and level; what is asked for often is worked out once."""

    config: str
    isl: int
    source: StepSource
    rungs: list[Rung]
    figures: Source
    notes: list[str] = msgspec.field(default_factory=list)

    @cached_property
    def levels(self) -> list[int]:
        return sorted(self._by_level)

    @cached_property
    def _by_level(self) -> dict[int, list[Rung]]:
        found: dict[int, list[Rung]] = {}
        for r in self.rungs:
            found.setdefault(r.concurrency, []).append(r)
        return found

    @cached_property
    def launches(self) -> list[str]:
        return sorted({r.launch for r in self.rungs})

    @property
    def accept_length(self) -> float:
        """Mean over the rungs; 1 without any."""
        return mean_known(r.accept_length for r in self.rungs) or 1.0

    def of(self, launch: str) -> list[Rung]:
        """The rungs of one launch, lowest level first."""
        return sorted((r for r in self.rungs if r.launch == launch), key=lambda r: r.concurrency)

    def at(self, concurrency: int) -> list[Rung]:
        return self._by_level.get(concurrency, [])

    def measured_tok_s(self, concurrency: int) -> float | None:
        """Throughput at one level as measured, over all launches."""
        return mean_known(r.output_tok_s for r in self.at(concurrency))


def sources(arms: Sequence[Arm]) -> dict[int, Source]:
    """By ISL, where throughput and TPOT of all these configurations come from."""
    isls = {c.isl for arm in arms for c in arm.cells}
    return {isl: source_of([c for arm in arms for c in _usable(arm, isl)]) for isl in isls}


def ladders(arm: Arm, common: Mapping[int, Source] | None = None) -> list[Ladder]:
    """One ladder an ISL; one of which no level is usable has no rungs, and notes that say why.

    `common`: the `sources` of all that it is compared with; None: of its own levels.
    """
    found = []
    common = sources([arm]) if common is None else common
    for isl in sorted({c.isl for c in arm.cells}):
        cells = [c for c in arm.cells if c.isl == isl and c.concurrency is not None]
        notes = left_out(cells) if cells else ["open loop: a request rate was set, no concurrency"]
        found.append(_ladder(arm.name, isl, _usable(arm, isl), notes, common[isl]))
    return found


def _usable(arm: Arm, isl: int) -> list[Cell]:
    return [c for c in arm.cells if c.isl == isl and c.concurrency is not None and _why_not(c) is None]


def left_out(cells: Iterable[Cell]) -> list[str]:
    """One line a level that does not enter, with the reason."""
    lines = (f"C={c.concurrency} left out: {why}" for c in cells if (why := _why_not(c)) is not None)
    return list(dict.fromkeys(lines))


def _why_not(cell: Cell) -> str | None:
    if cell.invalid is not None:
        return f"{cell.invalid.value} ({cell.invalid_why})" if cell.invalid_why else cell.invalid.value
    if cell.token_source in (TokenSource.CHUNKS, TokenSource.MIXED):
        return "tokens were counted by chunks, a lower bound"
    if not positive(whole(cell)) and not positive(cell.tpot_mean_s):
        return "neither TPOT nor throughput was recorded"
    return None


def _ladder(config: str, isl: int, cells: Sequence[Cell], notes: list[str], common: Source) -> Ladder:
    tpot = common.tpot or source_of(cells).tpot
    source = StepSource.TPOT if tpot is not None else StepSource.THROUGHPUT
    if source is StepSource.THROUGHPUT:
        unusable = [c for c in cells if not positive(whole(c))]
        lines = (f"C={c.concurrency} left out: no throughput, and other levels have no TPOT" for c in unusable)
        notes = [*notes, *dict.fromkeys(lines)]
        cells = [c for c in cells if c not in unusable]
    groups: dict[tuple[str, int], list[Cell]] = defaultdict(list)
    for cell in cells:
        assert cell.concurrency is not None
        groups[cell.launch, cell.concurrency].append(cell)
    rungs = [_rung(launch, level, group, tpot, common) for (launch, level), group in sorted(groups.items())]
    return Ladder(
        config=config,
        isl=isl,
        source=source,
        rungs=rungs,
        figures=common,
        notes=[*notes, *_about(rungs, source, common)],
    )


def _rung(launch: str, concurrency: int, cells: Sequence[Cell], tpot: str | None, throughput: Source) -> Rung:
    tok_s = mean_known(throughput.rate(c) for c in cells)
    accept = mean_known(c.accept_length for c in cells) or 1.0
    if tpot is not None:
        step_s = mean([_known(getattr(c, tpot)) for c in cells]) * accept
    else:
        step_s = concurrency * accept / _known(tok_s)
    field = "output_tok_s" if any("output_tok_s" in c.rounding for c in cells) else throughput.field
    half_digit = mean([c.rounding.get(field, 0.0) for c in cells])
    return Rung(
        launch=launch,
        concurrency=concurrency,
        step_s=step_s,
        output_tok_s=tok_s,
        accept_length=accept,
        half_digit_frac=half_digit / tok_s if tok_s else 0.0,
        approximate=any("output_tok_s" in name for c in cells for name in c.approximate),
        rounds=min(map(rounds, cells)) if any(map(throughput.short, cells)) else None,
    )


def _about(rungs: Sequence[Rung], source: StepSource, throughput: Source) -> list[str]:
    notes = list(throughput.notes)
    if rungs and source is StepSource.THROUGHPUT:
        notes.append("step time from throughput (C/X): prefill and ramps are inside; TPOT was not recorded")
    about = sorted({r.concurrency for r in rungs if r.approximate})
    if about:
        levels = ", ".join(map(str, about))
        notes.append(f"the figure at C={levels} is only approximate (~): the law is indicative, no claim rests on it")
    accepted = [r.accept_length for r in rungs]
    if accepted and max(accepted) > 1.03 * min(accepted):
        notes.append(f"acceptance length varies from {min(accepted):.2f} to {max(accepted):.2f} along the ladder")
    return notes


def _known(value: float | None) -> float:
    assert value is not None
    return value


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def mean_known(values: Iterable[float | None]) -> float | None:
    """Mean of those that are known; None when none is."""
    known = [v for v in values if v is not None]
    return mean(known) if known else None
