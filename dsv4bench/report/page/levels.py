"""Cells by configuration and level: the order of configurations, what counts as measured, and means over launches.

A level's figure is the geometric mean over its valid cells (the launches and repeats of one configuration), as in the
tables of `compare`. A cell that is invalid, or of a launch that did not complete, enters no mean and no curve; it is
listed with its reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsv4bench.records.campaign import ExperimentData, ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Status
from dsv4bench.report.page.blocks import Key
from dsv4bench.report.page.words import level

Place = tuple[int, int]  # concurrency, ISL


@dataclass(frozen=True, slots=True)
class Measured:
    """One cell with where it comes from. `why_not` says why it enters no mean; None: it does."""

    config: str
    launch: str  # a short name of the launch, unique in the report
    cell: Cell
    why_not: str | None


def configs(r: ReportInput) -> list[str]:
    """The baseline first, then as the campaign or the comparison names them, then by first appearance."""
    planned = list(r.campaign.configs) if r.campaign is not None else []
    base = r.campaign.baseline if r.campaign is not None else r.verdict.baseline if r.verdict is not None else None
    compared = [i.name for i in r.verdict.inputs] if r.verdict is not None else []
    seen = [d.experiment.config for d in r.experiments] + [b.config for b in r.breakdowns if b.config]
    named = [*([base] if base else []), *planned, *compared, *seen]
    return list(dict.fromkeys(named))


def keys(r: ReportInput, only: Iterable[str] | None = None) -> list[Key]:
    """The legend of configurations; a colour belongs to its configuration in every chart."""
    wanted = None if only is None else set(only)
    return [Key("config", i, c) for i, c in enumerate(configs(r)) if wanted is None or c in wanted]


def launch_names(r: ReportInput) -> dict[str, str]:
    """Experiment id -> `launch 3 (block 2)` in a campaign, else the end of the id."""
    names = {d.experiment.id: d.experiment.id.rpartition("-")[2] for d in r.experiments}
    for note in r.campaign.launches if r.campaign is not None else []:
        if note.experiment is not None:
            names[note.experiment] = f"launch {note.order} (block {note.block})"
    return names


def measured(r: ReportInput) -> list[Measured]:
    """Every cell, by configuration, launch and level."""
    names, found = launch_names(r), []
    for d in ordered(r):
        several = len({c.launch for c in d.cells}) > 1
        for c in d.cells:
            launch = names[d.experiment.id] + (f" {c.launch}" if several else "")
            found.append(Measured(d.experiment.config, launch, c, _why_not(d, c, r.campaign is not None)))
    return found


def ordered(r: ReportInput) -> list[ExperimentData]:
    """Experiments by configuration, then by time."""
    order = {name: i for i, name in enumerate(configs(r))}
    return sorted(r.experiments, key=lambda d: (order[d.experiment.config], d.experiment.started_utc))


def _why_not(d: ExperimentData, c: Cell, of_campaign: bool) -> str | None:
    if c.invalid is not None:
        return f"invalid: {c.invalid}" + (f" ({c.invalid_why})" if c.invalid_why else "")
    if of_campaign and d.experiment.status is not Status.COMPLETE:
        return f"its launch is {d.experiment.status}"
    return None


def closed(cells: Iterable[Measured], isl: int | None = None) -> list[Measured]:
    """Cells of a closed loop (with a concurrency), of one prompt length if given."""
    return [m for m in cells if m.cell.concurrency is not None and isl in (None, m.cell.isl)]


def prompt_lengths(cells: Iterable[Measured]) -> list[int]:
    return sorted({m.cell.isl for m in cells if m.cell.concurrency is not None})


def by_level(cells: Iterable[Measured]) -> dict[tuple[str, Place], list[Cell]]:
    """The valid cells of each configuration at each level of a closed loop, in order."""
    found: dict[tuple[str, Place], list[Cell]] = {}
    for m in cells:
        if m.why_not is None and m.cell.concurrency is not None:
            found.setdefault((m.config, (m.cell.concurrency, m.cell.isl)), []).append(m.cell)
    return found


def mean(cells: Sequence[Cell], field: str) -> float | None:
    """Geometric mean of a field over the cells that have it; None for none."""
    values = [v for c in cells if (v := getattr(c, field)) is not None]
    if not values:
        return None
    return statistics.geometric_mean(values) if all(v > 0 for v in values) else statistics.fmean(values)


def places(cells: Iterable[Measured]) -> list[Place]:
    return sorted({(m.cell.concurrency, m.cell.isl) for m in cells if m.cell.concurrency is not None}, key=_by_isl)


def _by_isl(p: Place) -> Place:
    return p[1], p[0]


def head(place: Place, every: Sequence[Place]) -> str:
    """`C=8`; with the prompt length where there are several."""
    return level(place[0], isl=place[1] if len({p[1] for p in every}) > 1 else None)


def excluded(cells: Iterable[Measured]) -> Iterator[str]:
    """What was measured and does not count, a line a cell."""
    for m in cells:
        if m.why_not is not None:
            where = level(m.cell.concurrency, m.cell.rate_req_s, m.cell.isl)
            yield f"{m.config}, {m.launch}, {where}: {m.why_not}; shown in the table of levels, in no curve or mean"
