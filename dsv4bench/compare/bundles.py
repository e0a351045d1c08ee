"""A bundle taken apart, where each of its levers was also measured alone on the same parent.

    product = Π alone_i / parent                 over the product = (bundle / parent) / product

Of throughput, level by level. Levers that shorten different parts of one step are worth more together than the
product says, each being a larger part of the step once the other is in. The interval of `over the product` is a
paired t over the blocks in which all of these configurations were launched; without them there is none, and nothing
is said of which way it goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from dsv4bench.compare import wording
from dsv4bench.compare.comparable import comparable, comparable_at, realised
from dsv4bench.compare.grading import LAUNCHES, Effect, blocks_of_both, weigh
from dsv4bench.compare.levers import lever_verdict
from dsv4bench.compare.samples import Column, Coordinate, aligned, columns, known, order
from dsv4bench.compare.statistics import DEFAULT_SIGMA_LAUNCH, Estimate, holm, paired
from dsv4bench.records.arm import Arm
from dsv4bench.records.verdict import BundleLevel, LeverStatus, LeverVerdict

METRIC = "output_tok_s"
ALPHA = 0.05


def measured_alone(
    parent: Arm, new: Arm, siblings: Sequence[Arm], *, across_hardware: bool = False
) -> dict[str, Arm]:
    """Lever -> the one configuration of `siblings` that is `parent` and this lever; empty unless each has one.

    `siblings` have the same parent as the bundle. One whose lever is contradicted or not live, or whose workload or
    hardware is another, stands for nothing.
    """
    if len(new.levers) < 2 or len(set(new.levers)) < len(new.levers) or not _sound(parent, new, across_hardware):
        return {}
    found: dict[str, Arm] = {}
    for lever in new.levers:
        own = [a for a in siblings if a.levers == [lever] and _sound(parent, a, across_hardware)]
        if len(own) != 1:
            return {}
        found[lever] = own[0]
    return found


def _sound(parent: Arm, new: Arm, across_hardware: bool) -> bool:
    told = parent.not_live is None and comparable(parent, new, across_hardware=across_hardware).ok
    return told and lever_verdict(parent, new).status not in (LeverStatus.CONTRADICTED, LeverStatus.NOT_LIVE)


def taken_apart(verdict: LeverVerdict, parent: Arm, new: Arm, alone: Mapping[str, Arm]) -> LeverVerdict:
    """The lever's verdict with its levels; as it was where nothing was measured alone.

    Raises Unanswerable for an unsound value.
    """
    levels = _levels(parent, new, alone) if alone else []
    if not levels:
        return verdict
    inseparable = wording.bundled(new.name, new.levers)
    several = len({x.isl for x in levels}) > 1
    told = [f"at {_place(x, several)} alone: {x.text}" for x in levels]
    others = [note for note in verdict.notes if note != inseparable]
    return msgspec.structs.replace(verdict, bundle=levels, notes=[*told, *others])


def _place(x: BundleLevel, with_isl: bool) -> str:
    at = Coordinate(x.concurrency, x.rate_req_s, x.isl)
    return str(at) if with_isl else at.load


class _Level(msgspec.Struct, frozen=True):
    """What one level gives before the family of levels is known."""

    at: Coordinate
    alone: dict[str, float]
    together: float
    over: Estimate | None  # ln(together / product)

    @property
    def product(self) -> float:
        return math.prod(self.alone.values())


def _levels(parent: Arm, new: Arm, alone: Mapping[str, Arm]) -> list[BundleLevel]:
    base, sides = _Side(parent), {name: _Side(arm, parent) for name, arm in {**alone, "": new}.items()}
    found = [x for at in sorted(base.columns, key=order) if (x := _level(at, base, sides)) is not None]
    tested = [x for x in found if x.over is not None]
    proven = holm([x.over.p_value() for x in tested if x.over is not None], ALPHA)
    sure = [tested[i].at for i in proven]
    return [_told(x, x.at in sure) for x in found]


class _Side:
    """One configuration by the parent's coordinates."""

    def __init__(self, arm: Arm, parent: Arm | None = None) -> None:
        own = {at: column for (_, at), column in columns(arm, [METRIC]).items()}
        to_parent = {at: at for at in own}
        if parent is not None:
            to_parent = aligned([at for _, at in columns(parent, [METRIC])], list(own))
        facts = realised(arm.cells)
        self.columns = {to_parent[at]: column for at, column in own.items()}
        self.facts = {to_parent[at]: fact for at, fact in facts.items()}


def _level(at: Coordinate, base: _Side, sides: Mapping[str, _Side]) -> _Level | None:
    """None where one of the configurations has no figure that may be held against the parent's."""
    effects: dict[str, Effect] = {}
    there = base.columns[at]
    for name, side in sides.items():
        column = side.columns.get(at)
        if column is None or not there.samples or not column.samples:
            return None
        if not comparable_at(base.facts[at], side.facts[at], METRIC).ok:
            return None
        effects[name] = weigh(there, column, known(METRIC), DEFAULT_SIGMA_LAUNCH)
    ratios = {name: 1 + e.delta for name, e in effects.items() if e.delta is not None}
    if len(ratios) < len(sides):
        return None
    together = ratios.pop("")
    return _Level(at, ratios, together, _interaction(there, {name: side.columns[at] for name, side in sides.items()}))


def _interaction(base: Column, sides: Mapping[str, Column]) -> Estimate | None:
    """Over the blocks, which must be the same for all; None where they are not, or too few."""
    by_block = {name: blocks_of_both(base.samples, column.samples, math.log) for name, column in sides.items()}
    blocks = list(by_block[""])
    if len(blocks) < LAUNCHES or any(list(own) != blocks for own in by_block.values()):
        return None
    gains = {name: [y - x for x, y in own.values()] for name, own in by_block.items()}
    together = gains.pop("")
    return paired([both - math.fsum(apart) for both, *apart in zip(together, *gains.values(), strict=True)])


def _told(x: _Level, proven: bool) -> BundleLevel:
    over = x.together / x.product
    ci = None
    if x.over is not None:
        low, high = x.over.interval(1 - ALPHA)
        ci = math.exp(low), math.exp(high)
    return BundleLevel(
        concurrency=x.at.concurrency,
        rate_req_s=x.at.rate_req_s,
        isl=x.at.isl,
        alone_ratio=x.alone,
        product_ratio=x.product,
        together_ratio=x.together,
        over_product_ratio=over,
        over_product_ci=ci,
        proven=proven,
        text=wording.bundle(x.alone, x.product, x.together, ci, proven),
    )
