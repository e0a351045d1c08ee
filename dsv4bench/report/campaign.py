"""A campaign on the terminal: the launches that are planned, and at the end what became of them and of each check."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.campaign import (
    Campaign,
    CampaignEntry,
    CampaignPlan,
    LaunchNote,
    LaunchStatus,
    LeverLive,
    Live,
    LiveCheck,
    OutputParity,
    ProfileNote,
)
from dsv4bench.records.verdict import Grade, VerdictDocument

DASH = "–"
PAIRS = 4
ALLOWS = {
    Grade.E0: "no verdict: fewer than five repeats of one launch",
    Grade.E1: "one launch each: the variance between launches is added, so only large effects show",
    Grade.E2U: "four launches each, not in pairs: verdicts, with drift in them",
    Grade.E2: "paired launches: full verdicts",
    Grade.P: "a bound from a profile, no measurement",
}


def plan_lines(c: Campaign, plan: CampaignPlan) -> list[str]:
    """What --dry-run says: the launches in order, block by block, the time, and what that rests on."""
    seed = "a seed drawn at start" if plan.seed is None else f"seed {plan.seed}"
    lines = [f"{c.name}: {len(plan.launches)} launches, {seed}"]
    for block in dict.fromkeys(n.block for n in plan.launches):
        lines.append(f"  block {block + 1}: {' · '.join(n.config for n in plan.launches if n.block == block)}")
    if c.blocks < PAIRS:
        lines.append(f"{c.blocks} block{'s' if c.blocks > 1 else ''}: paired verdicts (grade E2) need {PAIRS}")
    about = "at least" if plan.at_least else "about"
    lines.append("time: cannot be told" if plan.seconds is None else f"time: {about} {duration(plan.seconds)}")
    return [*lines, *(f"  {line}" for line in plan.basis)]


def campaigns_table(entries: Sequence[CampaignEntry]) -> Table:
    """A row a campaign: what became of it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("campaign", "status", "launches done", "configs"):
        table.add_column(head, no_wrap=True)
    for e in entries:
        done = f"{e.n_complete} of {e.n_launches}"
        table.add_row(*map(Text, (e.id, str(e.status), done, ", ".join(e.configs))))
    return table


def launch_table(c: Campaign) -> Table:
    """A row a configuration: what became of its launches, and how long it took to start."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("config", "launches", "starts in s", "lever", "output", "profile"):
        table.add_column(head, justify="right" if head == "starts in s" else "left", no_wrap=True)
    for config in c.configs:
        own = [n for n in c.launches if n.config == config]
        cells = (
            config,
            _counts(own),
            _starts(own),
            _live_word(next((x for x in c.live if x.config == config), None)),
            _parity_word(c, next((x for x in c.parity if x.config == config), None), config),
            _profile_word(next((x for x in c.profiles if x.config == config), None)),
        )
        table.add_row(*map(Text, cells))
    return table


def failure_lines(c: Campaign) -> list[str]:
    """Every launch that failed, with its likely cause; those that were left out for it."""
    lines = []
    for n in c.launches:
        where = f"block {n.block + 1}, {n.config}"
        if n.status is LaunchStatus.FAILED:
            lines.append(f"{where}: FAILED: {n.reason or 'no reason recorded'}")
            lines += [f"  likely cause: {n.cause}"] if n.cause else []
            tail = [line for line in (n.log_tail or "").splitlines() if line.strip()]
            lines += [f"  | {line}" for line in tail[-3:]]
        elif n.status is LaunchStatus.SKIPPED:
            lines.append(f"{where}: left out: {n.reason or 'no reason recorded'}")
    return lines


def live_lines(live: Sequence[LeverLive]) -> list[str]:
    """What was looked for of each lever, and what was seen."""
    lines = []
    for lever in live:
        if not lever.checks:
            continue
        verdict = ": no verdict" if lever.state is Live.NOT_LIVE else ""
        name = f"{lever.config}: lever {lever.lever}" if lever.lever else f"{lever.config} (no lever)"
        lines.append(f"{name}: {str(lever.state).upper()}{verdict}")
        lines += [f"  {c.where}: {c.wanted}: {c.state}{_seen(c)}" for c in lever.checks]
    return lines


def parity_lines(c: Campaign) -> list[str]:
    """How each configuration's greedy output stands to the baseline's."""
    lines = []
    for p in c.parity:
        if p.same is None:
            against = f" with {p.base}" if p.outcome == "not compared" else ""
            lines.append(f"{p.config}: {p.outcome}{against}: {p.why or 'no reason recorded'}")
            continue
        apart = [x for x in p.pairs if x.first_difference is not None]
        ties = sum(x.near_tie is True for x in apart)
        said = f"{p.config}: {'the same as' if p.same else 'DIFFERS from'} {p.base}'s"
        counts = f"{len(p.pairs)} prompts, {len(apart)} apart, {ties} of them at a near-tie"
        lines.append(f"{said} ({counts})" + (f": {p.why}" if p.why else ""))
    return lines


def grade_lines(document: VerdictDocument) -> list[str]:
    """What the data allow to say."""
    grades = {v.grade for v in document.cells if v.grade is not None}
    return [f"{grade}: {ALLOWS[grade]}" for grade in Grade if grade in grades]


def profile_lines(profiles: Sequence[ProfileNote]) -> list[str]:
    return [
        f"{p.config}: {p.live_label or 'no kernel names tell which implementation ran'}"
        + (f"; {p.error}" if p.error else "")
        for p in profiles
    ]


def ending_lines(c: Campaign, document: VerdictDocument | None) -> list[str]:
    """Everything beside the comparison's own lines, a heading a part; parts with nothing to say are left out."""
    parts = (
        ("Launches that failed", failure_lines(c)),
        ("Levers live", live_lines(c.live)),
        ("Output against the baseline's", parity_lines(c)),
        ("Profiles", profile_lines(c.profiles)),
        ("What the data allow", grade_lines(document) if document is not None else []),
    )
    lines: list[str] = []
    for head, found in parts:
        if found:
            lines += [head, *(f"  {line}" for line in found), ""]
    return lines


def status_line(c: Campaign) -> str:
    done = sum(n.status is LaunchStatus.COMPLETE for n in c.launches)
    why = f" ({c.reason})" if c.reason else ""
    return f"campaign {c.id}: {c.status}{why}, {done} of {len(c.launches)} launches complete"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _counts(own: Sequence[LaunchNote]) -> str:
    counted = {s: sum(n.status is s for n in own) for s in LaunchStatus}
    said = ", ".join(f"{n} {s}" for s, n in counted.items() if n and s is not LaunchStatus.COMPLETE)
    return f"{counted[LaunchStatus.COMPLETE]}/{len(own)} complete" + (f", {said}" if said else "")


def _starts(own: Sequence[LaunchNote]) -> str:
    ready = [n.ready_s for n in own if n.ready_s is not None]
    if not ready:
        return DASH
    low, high = f"{min(ready):.1f}", f"{max(ready):.1f}"
    return low if low == high else f"{low}–{high}"


def _live_word(live: LeverLive | None) -> str:
    if live is None or not live.checks:
        return DASH
    return "NOT LIVE" if live.state is Live.NOT_LIVE else str(live.state)


def _parity_word(c: Campaign, p: OutputParity | None, config: str) -> str:
    if config == c.baseline:
        return "reference"
    if p is None or p.outcome == "not compared":
        return DASH
    return {True: "same", False: "DIFFERS", None: "not told"}[p.same]


def _profile_word(p: ProfileNote | None) -> str:
    if p is None:
        return DASH
    return "failed" if p.error else p.method


def _seen(c: LiveCheck) -> str:
    parts = [f"seen {c.seen}" if c.seen is not None else "", c.note or ""]
    said = "; ".join(filter(None, parts))
    return f" ({said})" if said else ""
