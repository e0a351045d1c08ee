"""Which implementation of experts and attention is live? Told by the kernels that ran, never by flags or logs.

A rule that names an implementation (`live: marlin`) counts its kernels' time; what has a tenth of the named time of
its component is live. Launch flags, environment variables and a server's own log have been wrong about this in public
(a "PyTorch fallback" that was Triton, a feature probe that chose silently), so they are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.attribution.components import classify_all
from dsv4bench.records.breakdown import DeviceBreakdown, LiveLabel
from dsv4bench.records.rules import Rules

LIVE_FRAC = 0.1
LABELLED = ("moe", "attention")


def live_label(label: str | None, devices: Sequence[DeviceBreakdown], rules: Rules) -> LiveLabel:
    """The implementations of one label's devices."""
    rows = [r for d in devices for r in d.rows]
    found = classify_all([[r.name] for r in rows], rules)
    named: dict[str, dict[str, int]] = {component: {} for component in LABELLED}
    for row, rule in zip(rows, found, strict=True):
        if rule is not None and rule.live and rule.component in named:
            times = named[rule.component]
            times[rule.live] = times.get(rule.live, 0) + max(row.time_ns, 1)  # counters alone have no time
    notes = []
    for component in LABELLED:
        own = [r for r in rows if r.component == component]
        if own and not named[component]:
            largest = max(own, key=lambda r: r.time_ns)
            notes.append(f"{component}: no rule names the implementation of {largest.name[:80]}")
    return LiveLabel(label=label, moe=_live(named["moe"]), attention=_live(named["attention"]), notes=notes)


def _live(times: dict[str, int]) -> list[str]:
    whole = sum(times.values())
    return [name for name, ns in sorted(times.items(), key=lambda t: (-t[1], t[0])) if ns >= LIVE_FRAC * whole]
