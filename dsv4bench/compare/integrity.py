"""May the two arms be held against each other? Every breach is returned; one is enough to conclude nothing.

Both arms: every cell sound (`soundness`), the same levels in both and in each launch, the same workload and
hardware, as many tokens a request, the same prefix-cache hits and acceptance length, the same clocks, other
measurements than the base's own. What is not told on either side is no breach; it is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dsv4bench.clocks import SLOWED_DOWN, clocks
from dsv4bench.compare.comparable import comparable
from dsv4bench.compare.gate import GATING
from dsv4bench.compare.levels import by_launch, by_level, mean_of
from dsv4bench.compare.samples import Coordinate, place
from dsv4bench.compare.soundness import Breach, breaches_of, in_flight_of
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell

PARITY_FRAC = 0.01
PROMPT_FRAC = 0.02
HIT_POINTS = 0.01
ACCEPT_FRAC = 0.03
CLOCK_FRAC = 0.02
GAUGE_FRAC = 0.10
GAUGE_MIN_S = 10.0  # the gauges are read once a second


def check(base: Arm, new: Arm, max_error_frac: float = 0.0) -> list[Breach]:
    """Every breach; none means that statistics may begin."""
    found = [*_same_measurement(base, new), *_likeness(base, new), *_levels(base, new)]
    found += breaches_of_arm(base, "baseline", max_error_frac) + breaches_of_arm(new, "candidate", max_error_frac)
    base_levels, new_levels = by_level(base.cells), by_level(new.cells)
    for level in base_levels:
        if level in new_levels:
            found += _pair(level, base_levels[level], new_levels[level], bool(new.levers))
    return found


def breaches_of_arm(arm: Arm, role: str, max_error_frac: float = 0.0) -> list[Breach]:
    """What is wrong with one arm by itself."""
    ignore_eos = bool(arm.workload.get("ignore_eos", False))
    found = list(_whole(arm, role))
    for c in arm.cells:
        found += breaches_of(c, f"{role} {c.cell} ({c.launch})", max_error_frac, ignore_eos)
    return found


def notes(base: Arm, new: Arm) -> list[str]:
    """What could not be checked, or differs and may."""
    said = [f"baseline: {n}" for n in base.notes] + [f"candidate: {n}" for n in new.notes]
    said += comparable(base, new).notes
    if base.server is None or new.server is None:
        said.append("a server does not tell its arguments: what changed between the two is not known")
    else:
        changed = differing(base.server, new.server)
        if changed:
            said.append(f"the servers differ in {'; '.join(changed[:8])}" + (" …" if len(changed) > 8 else ""))
    if {c.launch for c in base.cells} & {c.launch for c in new.cells}:
        said.append("baseline and candidate were measured on one launch of one server: nothing was restarted")
    capped = [
        role
        for arm, role in ((base, "baseline"), (new, "candidate"))
        if any(c.throttled and "sw_power_cap" in c.flags for c in clocks((str(place(c)), c, None) for c in arm.cells))
    ]
    if capped:
        said.append(f"the power limit held the GPUs' clock back ({' and '.join(capped)})")
    return said


def differing(base: Mapping[str, Plain], new: Mapping[str, Plain]) -> list[str]:
    """`key: old -> new` of every key that is not equal."""
    absent = "not told"
    keys = [*base, *(k for k in new if k not in base)]
    return [
        f"{k}: {base.get(k, absent)} -> {new.get(k, absent)}"
        for k in keys
        if base.get(k, absent) != new.get(k, absent)
    ]


def _whole(arm: Arm, role: str) -> Iterator[Breach]:
    if not arm.cells:
        yield Breach("no_cells", f"{role} {arm.name}: it holds no cell")
    if not arm.complete:
        yield Breach("incomplete", f"{role} {arm.name}: {'; '.join(arm.notes) or 'not complete'}")
    expected = set(by_level(arm.cells))
    for launch, cells in by_launch(arm.cells).items():
        for level in sorted(expected - set(by_level(cells)), key=str):
            yield Breach("missing_cell", f"{role}: {level} is missing in {launch}")


def _same_measurement(base: Arm, new: Arm) -> Iterator[Breach]:
    both = sorted(set(base.ids) & set(new.ids))
    if both:
        yield Breach("same_measurement", f"the candidate is the baseline itself ({', '.join(both)})")
    elif base.cells and base.cells == new.cells:
        yield Breach("same_measurement", "the candidate's cells are the baseline's own")


def _likeness(base: Arm, new: Arm) -> Iterator[Breach]:
    like = comparable(base, new)
    if not like.ok:
        yield Breach("not_alike", f"workload or hardware differ: {like.why()}")
    if (base.hardware is None) != (new.hardware is None):
        silent = "baseline" if base.hardware is None else "candidate"
        yield Breach(
            "hardware", f"the {silent} does not tell its hardware, the other does: that it is the same is open"
        )


def _levels(base: Arm, new: Arm) -> Iterator[Breach]:
    ours, theirs = by_level(base.cells), by_level(new.cells)
    for level in ours:
        if level not in theirs:
            yield Breach("missing_cell", f"{level} is in the baseline and not in the candidate")
    for level in theirs:
        if level not in ours:
            yield Breach("missing_cell", f"{level} is in the candidate and not in the baseline")


def _pair(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell], declared: bool) -> Iterator[Breach]:
    yield from _values_on_both_sides(level, base, new)
    yield from _relative(
        level, base, new, lambda c: c.osl_mean, PARITY_FRAC, "token_parity", "output tokens a request"
    )
    yield from _relative(
        level, base, new, lambda c: c.isl_mean, PROMPT_FRAC, "prompt_parity", "prompt tokens a request"
    )
    yield from _prefix_hits(level, base, new)
    yield from _acceptance(level, base, new, declared)
    yield from _clocks(level, base, new)
    yield from _gauges(level, base, new)


def _values_on_both_sides(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell]) -> Iterator[Breach]:
    for name in GATING[1:]:
        absent = sum(getattr(c, name) is None for c in (*base, *new))
        if 0 < absent < len(base) + len(new):
            yield Breach("missing_value", f"{level}: {name} is missing in {absent} of {len(base) + len(new)} cells")


def _relative(
    level: Coordinate,
    base: Sequence[Cell],
    new: Sequence[Cell],
    pick: Callable[[Cell], float | None],
    tolerance_frac: float,
    code: str,
    what: str,
) -> Iterator[Breach]:
    before, after = mean_of(base, pick), mean_of(new, pick)
    if before is None or after is None:
        return
    if not abs(after - before) <= tolerance_frac * abs(before):
        yield Breach(code, f"{level}: {what} {before:.4g} -> {after:.4g}, more than {tolerance_frac:.0%} apart")


def _prefix_hits(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell]) -> Iterator[Breach]:
    before, after = mean_of(base, lambda c: c.prefix_hit_frac), mean_of(new, lambda c: c.prefix_hit_frac)
    if before is not None and after is not None and not abs(after - before) <= HIT_POINTS:
        yield Breach("prefix_hit", f"{level}: prefix-cache hits {before:.1%} -> {after:.1%}")


def _acceptance(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell], declared: bool) -> Iterator[Breach]:
    """A changed acceptance length is another text or another draft; a declared lever may change it."""
    if declared:
        return
    before, after = mean_of(base, lambda c: c.accept_length), mean_of(new, lambda c: c.accept_length)
    if (before is None) != (after is None):
        told = "baseline" if after is None else "candidate"
        yield Breach(
            "accept_length", f"{level}: only the {told} decodes speculatively, or tells its acceptance length"
        )
    elif before is not None and after is not None and not abs(after - before) <= ACCEPT_FRAC * before:
        yield Breach("accept_length", f"{level}: acceptance length {before:.3g} -> {after:.3g}")


def _clocks(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell]) -> Iterator[Breach]:
    for cells, role in ((base, "baseline"), (new, "candidate")):
        slowed = sorted(SLOWED_DOWN.intersection(*[{r for c in cells for r in c.gpu_throttle}]))
        if slowed:
            yield Breach("throttled", f"{level}: the {role}'s GPUs were slowed down ({', '.join(slowed)})")
    yield from _relative(level, base, new, lambda c: c.gpu_sm_clock_mean_mhz, CLOCK_FRAC, "clock", "SM clock MHz")


def _gauges(level: Coordinate, base: Sequence[Cell], new: Sequence[Cell]) -> Iterator[Breach]:
    """Of the requests that the client held, how many did the server see? A share that changed is another path to it.

    An admission cap moves requests from running to waiting and leaves their sum: it is no breach, it is a finding.
    """
    before, after = (mean_of(cells, _seen_share) for cells in (base, new))
    if before is not None and after is not None and not abs(after - before) <= GAUGE_FRAC * before:
        yield Breach(
            "gauges",
            f"{level}: the server saw {before:.0%} of the requests in flight in the baseline, {after:.0%} in the "
            "candidate",
        )


def _seen_share(c: Cell) -> float | None:
    if c.server_running_mean is None or c.server_waiting_mean is None or not (c.duration_s or 0) >= GAUGE_MIN_S:
        return None
    in_flight = c.achieved_batch if c.achieved_batch is not None else in_flight_of(c)
    return (c.server_running_mean + c.server_waiting_mean) / in_flight if in_flight else None
