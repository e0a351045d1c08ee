"""The cells of an arm by level, and by launch; a level is one concurrency (or request rate) at one ISL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import NamedTuple

from dsv4bench.compare.samples import Coordinate, order, place
from dsv4bench.records.cell import Cell


class Key(NamedTuple):
    """One gating cell: a metric at a level."""

    level: Coordinate
    metric: str


def by_level(cells: Iterable[Cell]) -> dict[Coordinate, list[Cell]]:
    """By ISL, then by load."""
    found: dict[Coordinate, list[Cell]] = {}
    for c in cells:
        found.setdefault(place(c), []).append(c)
    return {level: found[level] for level in sorted(found, key=order)}


def by_launch(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for c in cells:
        found.setdefault(c.launch, []).append(c)
    return found


def mean_of(cells: Iterable[Cell], pick: Callable[[Cell], float | None]) -> float | None:
    """The mean of what the cells have; None when they have nothing."""
    values = [v for v in map(pick, cells) if v is not None]
    return fmean(values) if values else None


def started(c: Cell) -> datetime | None:
    """When its first request was sent; None for a cell that does not say."""
    try:
        moment = datetime.fromisoformat(c.started_utc)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def days(cells: Iterable[Cell]) -> int:
    """On how many different days; at least one."""
    return max(1, len({s.astimezone(UTC).date() for s in map(started, cells) if s is not None}))


def span(cells: Sequence[Cell]) -> tuple[datetime, datetime] | None:
    """From the first start to the last; None when a cell does not say."""
    moments = [started(c) for c in cells]
    known = [m for m in moments if m is not None]
    return (min(known), max(known)) if known and len(known) == len(moments) else None
