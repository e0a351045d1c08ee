"""Several ranks of one capture: each for itself, then the median and the worst. Nothing is ever summed over ranks.

The worst rank is the one with the most time outside communication: the others wait for it, and their waiting looks
like work, since collectives spin. A rank without kernels enters no median and is said, as is one without a file.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dsv4bench.records.breakdown import ComponentTime, DeviceBreakdown, RankSummary, StepComponent, Steps

COMM = "comm"
MAX_SKEW = 1.1


def summary(
    label: str | None, devices: Sequence[DeviceBreakdown], world_size: int | None = None
) -> tuple[RankSummary | None, list[str]]:
    """One label's ranks and what must be said of them; None for a single device that no rank is missing beside."""
    here = [d for d in devices if d.label == label]
    told = sorted({d.rank for d in here if d.rank is not None})
    missing = sorted(set(range(world_size or 0)) - set(told)) if told else []
    if not here or (len(here) == 1 and not missing):
        return None, []
    full = [d for d in here if d.kernels]
    timed = [d for d in full if d.window_ns]  # a table of sums has no window
    worst = max(timed, key=_own_frac, default=None)
    made = RankSummary(
        label=label,
        ranks=[d.rank for d in here],
        missing=missing,
        median_busy_frac=statistics.median(_busy_frac(d) for d in timed) if timed else None,
        worst_rank=None if worst is None else worst.rank,
        worst_busy_frac=None if worst is None else _busy_frac(worst),
        components_median=_components(full),
    )
    return made, _warnings(made, here, full)


def joined(steps: Sequence[Steps]) -> Steps | None:
    """The steps of one label: the median over its ranks, each already a median over its steps.

    Ranks without steps are left out; None when there is none at all. `count` is that of the rank with the fewest.
    """
    found = [s for s in steps if s.count and s.median_ns]
    if not found:
        return steps[0] if steps else None
    if len(found) == 1:
        return found[0]
    first = found[0]
    low, high = (_median(s.iqr_ns[i] for s in found if s.iqr_ns is not None) for i in (0, 1))
    return msgspec.structs.replace(
        first,
        count=min(s.count for s in found),
        method=" and ".join(dict.fromkeys(s.method for s in found)),
        median_ns=_median(s.median_ns for s in found),
        iqr_ns=None if low is None or high is None else (low, high),
        busy_median_ns=_median(s.busy_median_ns for s in found),
        idle_median_ns=_median(s.idle_median_ns for s in found),
        overlap_median_ns=_median(s.overlap_median_ns for s in found),
        copy_only_median_ns=_median(s.copy_only_median_ns for s in found),
        launches=_middle(s.launches for s in found),
        graph_launches=_middle(s.graph_launches for s in found),
        prefill_steps=max(s.prefill_steps for s in found),
        mixed_steps=max(s.mixed_steps for s in found),
        components=_step_components(found),
        warnings=list(dict.fromkeys(w for s in found for w in s.warnings)),
    )


def _busy_frac(d: DeviceBreakdown) -> float:
    return (d.kernel_busy_ns or 0) / (d.window_ns or 1)


def _own_frac(d: DeviceBreakdown) -> float:
    """Busy outside communication."""
    waiting = sum(
        c.time_ns if c.exclusive_ns is None else c.exclusive_ns for c in d.components if c.component == COMM
    )
    return ((d.kernel_busy_ns or 0) - waiting) / (d.window_ns or 1)


def _components(devices: Sequence[DeviceBreakdown]) -> list[ComponentTime]:
    """Of every component any rank has; a rank without it counts as zero."""
    names = dict.fromkeys(c.component for d in devices for c in d.components)
    found = []
    for name in names:
        own = [next((c for c in d.components if c.component == name), None) for d in devices]
        found.append(
            ComponentTime(
                component=name,
                time_ns=_zeros(own, lambda c: c.time_ns),
                exclusive_ns=_zeros(own, lambda c: c.exclusive_ns)
                if any(c and c.exclusive_ns for c in own)
                else None,
                count=_zeros(own, lambda c: c.count),
                share_of_sum_frac=_share(own, lambda c: c.share_of_sum_frac),
                share_of_busy_frac=_share(own, lambda c: c.share_of_busy_frac),
                share_of_span_frac=_share(own, lambda c: c.share_of_span_frac),
            )
        )
    return sorted(found, key=lambda c: (-c.time_ns, c.component))


def _zeros(own: Sequence[ComponentTime | None], pick: Callable[[ComponentTime], int | None]) -> int:
    return round(statistics.median((pick(c) or 0) if c is not None else 0 for c in own))


def _share(own: Sequence[ComponentTime | None], pick: Callable[[ComponentTime], float | None]) -> float | None:
    values = [0.0 if c is None else pick(c) for c in own]
    known = [v for v in values if v is not None]
    return statistics.median(known) if len(known) == len(values) else None


def _step_components(ranks: Sequence[Steps]) -> list[StepComponent]:
    names = dict.fromkeys(c.component for s in ranks for c in s.components)
    found = []
    for name in names:
        own = [next((c for c in s.components if c.component == name), None) for s in ranks]
        zero = StepComponent(component=name, median_ns=0, exclusive_median_ns=0, launches=0.0, share_of_step_frac=0.0)
        all_of = [c or zero for c in own]
        found.append(
            StepComponent(
                component=name,
                median_ns=_median(c.median_ns for c in all_of) or 0,
                exclusive_median_ns=_median(c.exclusive_median_ns for c in all_of),
                launches=_middle(c.launches for c in all_of),
                share_of_step_frac=_middle(c.share_of_step_frac for c in all_of),
            )
        )
    return sorted(found, key=lambda c: (-c.median_ns, c.component))


def _warnings(made: RankSummary, here: Sequence[DeviceBreakdown], full: Sequence[DeviceBreakdown]) -> list[str]:
    where = f"{made.label}: " if made.label else ""
    said = [f"{where}no file of rank {', '.join(map(str, made.missing))}"] if made.missing else []
    said += [f"{where}{_name(d)} has no kernels ({d.file}): it enters no median" for d in here if d not in full]
    twice = sorted({r for r in made.ranks if r is not None and made.ranks.count(r) > 1})
    one_file = len({d.file for d in here}) == 1
    if twice and not one_file:
        said.append(
            f"{where}rank {', '.join(map(str, twice))} comes from more than one file: give each its own label"
        )
    windows = [d.window_ns for d in full if d.window_ns]
    if windows and max(windows) > MAX_SKEW * min(windows):
        said.append(f"{where}the windows differ by x{max(windows) / min(windows):.2f} between ranks")
    return said


def _name(d: DeviceBreakdown) -> str:
    return f"device {d.device}" if d.rank is None else f"rank {d.rank}"


def _median(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return round(statistics.median(known)) if known else None


def _middle(values: Iterable[float | None]) -> float | None:
    """The median of fractions and counts, not rounded."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None
