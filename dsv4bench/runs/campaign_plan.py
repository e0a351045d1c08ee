"""The launches of a campaign in their order, and how long they will take as far as that is known.

A block launches every configuration once, every second block in reverse order (A B C | C B A | …), so that drift
falls on all of them alike. The estimate uses what earlier launches of the same scenario took, else the levels' own
durations and an assumed start; it says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from dsv4bench.records.campaign import Campaign, CampaignPlan, LaunchNote, LaunchStatus
from dsv4bench.runs.campaign_sweep import base_options
from dsv4bench.runs.options import levels
from dsv4bench.scenario.launched import LaunchedCampaign

ASSUMED_READY_S = 60.0
LEFT = (LaunchStatus.PENDING, LaunchStatus.RUNNING)


def planned(configs: Sequence[str], blocks: int, first: int = 0) -> list[LaunchNote]:
    """The launches of blocks `first` to `blocks` - 1."""
    n = len(configs)
    return [
        LaunchNote(order=block * n + i, block=block, config=config)
        for block in range(first, blocks)
        for i, config in enumerate(configs if block % 2 == 0 else reversed(configs))
    ]


def within(
    launches: Sequence[LaunchNote], *, blocks: int | None, most: int | None, only: Sequence[str] = ()
) -> list[LaunchNote]:
    """The launches that this run shall do: those still to do, of the next `blocks` blocks, at most `most`."""
    left = [n for n in launches if n.status in LEFT and (not only or n.config in only)]
    if blocks is not None:
        allowed = sorted({n.block for n in left})[:blocks]
        left = [n for n in left if n.block in allowed]
    return left if most is None else left[:most]


def plan_of(
    spec: LaunchedCampaign, launches: Sequence[LaunchNote], sha: str, before: Sequence[Campaign]
) -> CampaignPlan:
    """The estimate. `before` are the campaigns that were run of this scenario's name, whatever became of them."""
    configs = dict.fromkeys(n.config for n in launches)
    sweep_s = _sweep_s(spec)
    basis, each, measured = [], {}, 0
    for config in configs:
        whole = [_took(n) for c in before if c.scenario_sha256 == sha for n in c.launches if n.config == config]
        known = [s for s in whole if s is not None]
        ready = [n.ready_s for c in before for n in c.launches if n.config == config and n.ready_s is not None]
        if known:
            each[config] = median(known)
            measured += 1
            basis.append(f"{config}: {median(known):.0f} s a launch, the median of {len(known)} earlier ones")
        elif sweep_s is not None:
            start = median(ready) if ready else ASSUMED_READY_S
            each[config] = start + sweep_s
            told = f"the median of {len(ready)} earlier ones" if ready else "assumed"
            basis.append(f"{config}: {start:.0f} s to start ({told}), {sweep_s:.0f} s of levels")
    if len(each) < len(configs):
        basis.append("levels end by their number of requests: how long they take is known after the first launch")
        return CampaignPlan(launches=list(launches), seconds=None, basis=basis)
    at_least = measured < len(configs)
    if at_least:
        basis.append("warm-up, drain, output parity and profiles are left out where no earlier launch tells")
    seconds = sum(each[n.config] for n in launches)
    return CampaignPlan(launches=list(launches), seconds=seconds, at_least=at_least, basis=basis)


def _sweep_s(spec: LaunchedCampaign) -> float | None:
    """All levels of one launch; None when they end by their number of requests."""
    plan = base_options(spec).plan()
    return None if plan.duration_s is None else plan.duration_s * len(levels(plan))


def _took(n: LaunchNote) -> float | None:
    if n.status is not LaunchStatus.COMPLETE or n.started_utc is None or n.ended_utc is None:
        return None
    return (datetime.fromisoformat(n.ended_utc) - datetime.fromisoformat(n.started_utc)).total_seconds()
