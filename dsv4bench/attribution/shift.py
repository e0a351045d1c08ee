"""Two or more labels side by side: the time of each component in a step, not only its share.

The first label is the base. A share can fall because the rest grew; time a step says which it was. Exclusive times
are taken where both sides have them, so that the rows of components, overlap and idle add up to the row `step`.
Without steps on one side there is no time a step, and only the shares of busy time stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4bench.records.breakdown import DeviceBreakdown, Shift, Steps

STEP, IDLE, COPY = "step", "idle", "copy"
REST = "overlap, rounding"  # several components at once; also what medians of parts lack to the median of the whole


def shifts(steps: Sequence[Steps], devices: Sequence[DeviceBreakdown] = ()) -> tuple[list[Shift], list[str]]:
    """Every later label against the first, the largest change first, then what must be said."""
    found: list[Shift] = []
    warnings: list[str] = []
    for new in steps[1:]:
        base = steps[0]
        if base.median_ns and new.median_ns:
            found += _by_time(base, new)
        else:
            without = base if not base.median_ns else new
            warnings.append(f"{without.label or 'the trace'}: no decode step was found, so shares stand side by side")
            found += _by_share(base, new, devices)
        if base.batch is not None and new.batch is not None and base.batch != new.batch:
            warnings.append(
                f"{base.label} has {base.batch} sequences a step and {new.label} {new.batch}: "
                "a longer step may still be more tokens a second"
            )
    return found, warnings


def _by_time(base: Steps, new: Steps) -> list[Shift]:
    exclusive = all(c.exclusive_median_ns is not None for c in [*base.components, *new.components])
    old, fresh = _times(base, exclusive), _times(new, exclusive)
    rows = [_row(c, base, new, old.get(c, 0), fresh.get(c, 0)) for c in dict.fromkeys([*old, *fresh]) if c != STEP]
    rows.sort(key=lambda s: (-abs(s.delta_ns or 0), s.component))
    return [_row(STEP, base, new, base.median_ns, new.median_ns), *rows]


def _times(steps: Steps, exclusive: bool) -> dict[str, int]:
    if not exclusive:
        found = {c.component: c.median_ns for c in steps.components}
        return found if steps.idle_median_ns is None else {**found, IDLE: steps.idle_median_ns}
    found = {c.component: c.exclusive_median_ns or 0 for c in steps.components}
    for name, time_ns in ((COPY, steps.copy_only_median_ns), (IDLE, steps.idle_median_ns)):
        if time_ns is not None:
            found[name] = found.get(name, 0) + time_ns
    if steps.idle_median_ns is not None and steps.median_ns:
        found[REST] = steps.median_ns - sum(found.values())
    return found


def _row(component: str, base: Steps, new: Steps, base_ns: int | None, new_ns: int | None) -> Shift:
    known = base_ns is not None and new_ns is not None
    return Shift(
        component=component,
        base_label=base.label,
        new_label=new.label,
        base_ns=base_ns,
        new_ns=new_ns,
        delta_ns=new_ns - base_ns if base_ns is not None and new_ns is not None else None,
        ratio=new_ns / base_ns if known and base_ns and base_ns > 0 and new_ns is not None and new_ns >= 0 else None,
        base_share_frac=_share(base_ns, base),
        new_share_frac=_share(new_ns, new),
    )


def _share(time_ns: int | None, steps: Steps) -> float | None:
    return None if time_ns is None or not steps.median_ns else time_ns / steps.median_ns


def _by_share(base: Steps, new: Steps, devices: Sequence[DeviceBreakdown]) -> list[Shift]:
    old, fresh = (_busy_shares([d for d in devices if d.label == s.label]) for s in (base, new))
    rows = [
        Shift(
            component=c,
            base_label=base.label,
            new_label=new.label,
            base_ns=None,
            new_ns=None,
            delta_ns=None,
            ratio=None,
            base_share_frac=old.get(c, 0.0),
            new_share_frac=fresh.get(c, 0.0),
        )
        for c in dict.fromkeys([*old, *fresh])
    ]
    return sorted(rows, key=lambda s: (-abs((s.new_share_frac or 0) - (s.base_share_frac or 0)), s.component))


def _busy_shares(devices: Sequence[DeviceBreakdown]) -> Mapping[str, float]:
    """Of the device with the most kernels; a mean over ranks would hide a rank without work."""
    if not devices:
        return {}
    one = max(devices, key=lambda d: d.kernels)
    return {c.component: c.share_of_busy_frac for c in one.components if c.share_of_busy_frac is not None}
