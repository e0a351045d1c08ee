"""Section 10 of the findings: what speaks against them, from the comparison, its campaign and its experiments.

What a campaign wrote down about itself comes first after the grades: it is the reader's warning on the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dsv4bench.clocks import clocks, flag_notes, max_mhz, throttle_notes
from dsv4bench.records.campaign import Campaign, LaunchStatus, OutputParity
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import Grade, LeverStatus, VerdictDocument
from dsv4bench.report.findings import tables as tables
from dsv4bench.report.findings.data import Compared
from dsv4bench.report.findings.gpu import caution
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.markdown import number, text, wrapped

THROTTLED = (
    "the GPU was throttled",
    "GPU throttled",
)  # a launch's note on it; the levels themselves tell it in one line


def threats(c: Compared) -> str:
    lines = [*_grades(c.document), *_gpu(c), *_of_campaign(c), *_data(c.document), *_notes(c)]
    found = dict.fromkeys(lines)
    return wrapped(f"{line} {tag(c.document)}" for line in found) if found else f"None recorded. {tag(c.document)}"


def _grades(d: VerdictDocument) -> list[str]:
    lines = []
    pairs = {(v.metric, v.config, v.versus_name, tables.place(v)): v.grade for v in d.cells}
    grades = Counter(g for g in pairs.values() if g is not None)
    if grades:
        lines.append("grades of the changes: " + ", ".join(f"{n} {g}" for g, n in sorted(grades.items())))
    if grades[Grade.E0]:
        lines.append("grade E0 (fewer than five repeats of one launch) allows no verdict")
    if d.sigma_launch_frac is not None and grades[Grade.E1]:
        sigma = f"{100 * d.sigma_launch_frac:.2g} % ({d.sigma_source or 'source not told'})"
        lines.append(f"one launch each: the variance between launches is taken as {sigma}")
    return lines


def _gpu(c: Compared) -> list[str]:
    """Another GPU than the target's; the levels at which it was slowed down, and flags that slowed nothing."""
    found = clocks((f"{config} C={cell.concurrency}", cell, top) for config, cell, top in _closed_loops(c))
    return [text(line) for line in (caution(c), *throttle_notes(found), *flag_notes(found)) if line]


def _closed_loops(c: Compared) -> Iterator[tuple[str, Cell, float | None]]:
    for x in c.experiments:
        for cell in x.cells:
            if cell.concurrency is not None:
                yield x.experiment.config, cell, max_mhz(x.experiment.machine)


def _of_campaign(c: Compared) -> list[str]:
    """What the campaign's own file says: its notes, its launches, outputs that nobody could tell apart."""
    if c.campaign is None:
        return []
    own = {i.name for i in c.document.inputs}
    notes = [f"the campaign's own note: {text(n)}" for n in c.campaign.notes]
    return [*notes, *_launches(c.campaign, own), *_parity(c.campaign, own)]


def _launches(campaign: Campaign, own: set[str]) -> list[str]:
    """Those that were started more than once, and what was noted of several in the same words."""
    mine = [n for n in campaign.launches if n.config in own]
    lines = []
    again = Counter(n.config for n in mine if n.attempt > 1)
    if again:
        named = ", ".join(f"{text(config)} {n}" for config, n in again.items())
        lines.append(f"launches that were started more than once: {named} (of {len(mine)} in all)")
    noted: dict[str, list[str]] = {}
    for n in mine:
        for note in n.notes:
            if not note.startswith(THROTTLED):
                noted.setdefault(note, []).append(n.config)
    for note, configs in noted.items():
        named = ", ".join(map(text, dict.fromkeys(configs)))
        lines.append(f"{len(configs)} of {len(mine)} launches ({named}): {text(note)}")
    return lines


def _parity(campaign: Campaign, own: set[str]) -> list[str]:
    """Outputs of which it is open whether they are the baseline's; those that differ are among the notes."""
    untold = [p for p in campaign.parity if p.same is None and p.config in own]
    lines = []
    parted = [f"{text(p.config)} ({_apart(p)} of {len(p.pairs)})" for p in untold if p.pairs]
    if parted:
        lines.append(
            f"greedy output parts from {text(campaign.baseline)}'s on some prompts, and whether at near-ties cannot "
            f"be told: {', '.join(parted)}"
        )
    by_reason: dict[str, list[str]] = {}
    for p in untold:
        if not p.pairs:
            by_reason.setdefault(p.why or "no reason recorded", []).append(p.config)
    for why, configs in by_reason.items():
        lines.append(f"greedy output was not compared: {', '.join(map(text, configs))} ({text(why)})")
    return lines


def _apart(p: OutputParity) -> int:
    return sum(x.first_difference is not None for x in p.pairs)


def _failed(campaign: Campaign | None) -> list[str]:
    """In the words of the comparison that was made at the campaign's end, so that the same is not said twice."""
    if campaign is None:
        return []
    lines = []
    for config in campaign.configs:
        own = [n for n in campaign.launches if n.config == config]
        bad = [n for n in own if n.status in (LaunchStatus.FAILED, LaunchStatus.SKIPPED)]
        if bad:
            why = next((n.reason for n in bad if n.status is LaunchStatus.FAILED and n.reason), "no reason recorded")
            lines.append(f"{config}: {len(bad)} of {len(own)} launches failed or were left out: {why}")
    return lines


def _notes(c: Compared) -> list[str]:
    """The comparison's own, each once: what it notes of several configurations in the same words names them all."""
    names = {i.name for i in c.document.inputs}
    whose: dict[str, list[str]] = {}
    for note in dict.fromkeys([*c.document.notes, *_failed(c.campaign)]):
        name, _, said = note.partition(": ")
        own = whose.setdefault(said if said and name in names else note, [])
        own += [name] if said and name in names else []
    return [text(f"{', '.join(own)}: {said}" if own else said) for said, own in whose.items()]


def _data(d: VerdictDocument) -> list[str]:
    """What the comparison's own figures leave open."""
    lines = [
        f"{text(x.config)} at C={x.concurrency} is an about-value (~{number(x.value)} ± {x.half:g})"
        for x in d.figures
        if x.about
    ]
    published = sorted({i.source for i in d.inputs} - {"dsv4bench"})
    if published:
        lines.append(f"not measured by dsv4bench, but {', '.join(map(text, published))}")
    dead = [lever.config for lever in d.levers if lever.status is LeverStatus.NOT_LIVE]
    if dead:
        lines.append(f"levers that were seen not to be in force, so without a verdict: {', '.join(map(text, dead))}")
    sure = (LeverStatus.VERIFIED, LeverStatus.NOT_LIVE)
    loose = [lever.config for lever in d.levers if lever.status not in sure]
    if loose:
        lines.append(f"levers that the server's own record does not verify: {', '.join(map(text, loose))}")
    if d.shares is not None and any(s.of == "unknown" for s in d.shares.shares):
        lines.append("the kernel shares do not say of which time they are shares")
    if d.across_hardware:
        lines.append("the configurations ran on different hardware")
    return lines
