"""From an arm's cells to the values that may enter a verdict, and those that may only be shown.

Left out, and said: invalid levels, fields marked as "about", token metrics whose tokens were not counted by the
server's usage, and "no data". Refused: a value that is not finite, a zero on a logarithmic scale, and the same cell
given twice. What this module lets through is a finite number measured on a valid level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.metrics import BY_NAME, Metric
from dsv4bench.records.arm import Arm, Sample
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

TOKEN_METRICS = frozenset(
    name
    for name in BY_NAME
    if name.startswith(
        ("output_tok_s", "full_load_", "total_tok_s", "tok_s_per_user", "tpot_", "ntpot_", "tokens_per_chunk")
    )
)


class Coordinate(NamedTuple):
    """Where a value was measured; a closed loop has a concurrency, an open one a rate."""

    concurrency: int | None
    rate_req_s: float | None
    isl: int

    @property
    def load(self) -> str:
        """`C=8`, `2.5 req/s`."""
        rate = "?" if self.rate_req_s is None else f"{self.rate_req_s:g}"
        return f"C={self.concurrency}" if self.concurrency is not None else f"{rate} req/s"

    def __str__(self) -> str:
        return f"{self.load}, ISL {self.isl}"


def place(cell: Cell) -> Coordinate:
    return Coordinate(cell.concurrency, cell.rate_req_s, cell.isl)


def order(at: Coordinate) -> tuple[int, float, float]:
    """A sorting key: by ISL, then by load, closed loops first."""
    return (at.isl, -1.0 if at.rate_req_s is None else at.rate_req_s, at.concurrency or 0)


@dataclass(slots=True)
class Column:
    """One metric at one coordinate. `shown` values enter no verdict; `why_not` counts the reasons."""

    samples: list[Sample] = field(default_factory=list)
    shown: list[float] = field(default_factory=list)
    rounding: float = 0.0  # the largest half of a last printed digit, in the metric's unit
    shown_rounding: float = 0.0
    why_not: dict[str, int] = field(default_factory=dict)
    n_cells: int = 0
    recorded: bool = False  # whether any level, valid or not, has the figure

    def leave_out(self, why: str) -> None:
        self.why_not[why] = self.why_not.get(why, 0) + 1

    def note(self) -> str:
        """Why values are missing; empty when none are."""
        return "; ".join(
            why if n == self.n_cells else f"{n} of {self.n_cells} left out: {why}" for why, n in self.why_not.items()
        )


def samples(arm: Arm, metrics: Iterable[str]) -> list[Sample]:
    """Every value of these metrics that may enter a verdict. Raises as `columns` does."""
    return [s for column in columns(arm, metrics).values() for s in column.samples]


def columns(arm: Arm, metrics: Iterable[str]) -> dict[tuple[str, Coordinate], Column]:
    """The arm's values by metric and coordinate; a coordinate without any value has an empty column.

    Raises UsageError for a metric that no cell has, Unanswerable for unsound values or a cell given twice.
    """
    wanted = [known(name) for name in metrics]
    found: dict[tuple[str, Coordinate], Column] = {}
    for cell, repeat in _numbered(arm):
        at = place(cell)
        for metric in wanted:
            column = found.get((metric.name, at))
            if column is None:
                column = found[metric.name, at] = Column()
            _add(column, arm, cell, repeat, metric)
    return found


def known(name: str) -> Metric:
    """The registry's entry. Raises UsageError for a name that is no measured field of a cell."""
    metric = BY_NAME.get(name)
    if metric is None or name not in Cell.__struct_fields__:
        raise UsageError(f"unknown metric: {name}", "`dsv4bench metrics` lists them")
    return metric


def _numbered(arm: Arm) -> Iterable[tuple[Cell, int]]:
    """Cells with a repeat number unique in their launch: two experiments on one launch are further repeats."""
    seen: dict[tuple[str, Coordinate], tuple[list[Cell], set[int]]] = {}
    for cell in arm.cells:
        cells, taken = seen.setdefault((cell.launch, place(cell)), ([], set()))
        if cell in cells:
            raise Unanswerable(
                f"{arm.name}: the same cell {cell.cell} of launch {cell.launch!r} is given twice",
                "a copied experiment or file adds no evidence; name it once",
            )
        repeat = cell.repeat if cell.repeat not in taken else max(taken) + 1
        cells.append(cell)
        taken.add(repeat)
        yield cell, repeat


def _add(column: Column, arm: Arm, cell: Cell, repeat: int, metric: Metric) -> None:
    column.n_cells += 1
    name = metric.name
    value = getattr(cell, name)
    column.recorded |= value is not None
    if cell.invalid is not None:
        column.leave_out(f"level invalid ({cell.invalid})")
        return
    if value is None:
        why = cell.why_null.get(name)
        column.leave_out(f"no {name}" + (f" ({why})" if why else ""))
        return
    _check(arm, cell, metric, value)
    rounding = cell.rounding.get(name, 0.0)
    why = _only_shown(cell, metric, value)
    if why is not None:
        column.leave_out(why)
        column.shown.append(float(value))
        column.shown_rounding = max(column.shown_rounding, rounding)
        return
    column.rounding = max(column.rounding, rounding)
    column.samples.append(
        Sample(
            metric=name,
            config=arm.name,
            concurrency=cell.concurrency,
            rate_req_s=cell.rate_req_s,
            isl=cell.isl,
            launch=cell.launch,
            block=cell.block,
            repeat=repeat,
            value=float(value),
        )
    )


def _only_shown(cell: Cell, metric: Metric, value: float) -> str | None:
    if metric.name in cell.approximate:
        return f"'~{value:g}' enters no verdict"
    if metric.name in TOKEN_METRICS and cell.token_source is not TokenSource.USAGE:
        return f"tokens not counted by usage ({cell.token_source}): shown, enters no verdict"
    return None


def _check(arm: Arm, cell: Cell, metric: Metric, value: float) -> None:
    sound = math.isfinite(value) and (metric.scale == "linear" or value > 0)
    if not sound:
        raise Unanswerable(
            f"{arm.name}: {metric.name} = {value} at {place(cell)} (launch {cell.launch!r}, repeat {cell.repeat})",
            "no measurement of a valid level gives this; measure it again, or leave the metric out",
        )


def aligned(
    base: Sequence[Coordinate], new: Sequence[Coordinate], tolerance: float = 0.02
) -> dict[Coordinate, Coordinate]:
    """For each new coordinate the base's: the same, or the only one of that load whose ISL is within 2 %.

    Other tools' files tell the realised prompt length (1021), ours the requested one (1024).
    """
    exact = set(base) & set(new)
    by_load: dict[tuple[int | None, float | None], list[Coordinate]] = {}
    for b in base:
        if b not in exact:
            by_load.setdefault((b.concurrency, b.rate_req_s), []).append(b)
    found: dict[Coordinate, Coordinate] = {}
    taken: set[Coordinate] = set()
    for n in new:
        rest = [] if n in exact else by_load.get((n.concurrency, n.rate_req_s), [])
        near = [b for b in rest if abs(n.isl - b.isl) <= tolerance * b.isl]
        found[n] = near[0] if len(near) == 1 and near[0] not in taken else n
        taken.add(found[n])
    return found
