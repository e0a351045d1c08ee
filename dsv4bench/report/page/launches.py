"""Launches: which were run, in which order, what each needed to come up, and why one failed."""

from __future__ import annotations

from collections import Counter

from dsv4bench.records.campaign import Campaign, LaunchNote, LaunchStatus, ReportInput
from dsv4bench.records.experiment import Experiment
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page.blocks import Block, Fold, Lines, Table, missing
from dsv4bench.report.page.words import listed, moment, seconds

FLAGGED = "the GPU was throttled at "  # of older campaigns, for a flag alone; the levels tell whether it was
BAD = (LaunchStatus.FAILED, LaunchStatus.SKIPPED)


def blocks(r: ReportInput) -> list[Block]:
    if r.campaign is None:
        return _of_experiments([d.experiment for d in r.experiments])
    c = r.campaign
    if not c.launches:
        return [missing("No launch is recorded.")]
    found: list[Block] = [_table(c)]
    said: dict[str, list[str]] = {}
    for n in c.launches:
        for note in n.notes:
            if not note.startswith(FLAGGED):
                said.setdefault(note, []).append(f"{n.order} ({n.config})")
    notes = [f"Launch {listed(of)}: {note}" for note, of in said.items()]
    return [*found, Lines(notes, "note")] if notes else found


def failure_blocks(r: ReportInput) -> list[Block]:
    """Every failure with its cause; the last lines of its log on demand."""
    found: list[Block] = []
    lines = failures(r)
    if lines:
        found.append(Lines(lines))
    for n in r.campaign.launches if r.campaign is not None else []:
        if n.log_tail:
            found.append(Fold(f"Last lines of the log, {_name(n)}", log=n.log_tail.strip("\n"), short=True))
    return found or [missing("No failure is recorded.")]


def failures(r: ReportInput) -> list[str]:
    found = []
    for n in r.campaign.launches if r.campaign is not None else []:
        if n.status in BAD:
            cause = f" Likely cause: {n.cause}." if n.cause else " Its cause is not known."
            found.append(f"{_name(n)} {n.status}: {n.reason or 'no reason was recorded'}.{cause}")
    for p in r.campaign.profiles if r.campaign is not None else []:
        if p.error:
            found.append(f"The profile of {p.config} ({p.method}) failed: {p.error}")
    for d in r.experiments:
        n_err = sum(c.n_err for c in d.cells)
        if n_err:
            example = next((c.error_example for c in d.cells if c.error_example), None)
            sent = sum(c.n_sent for c in d.cells)
            said = f", for instance: {example}" if example else ""
            found.append(f"{d.experiment.config} ({d.experiment.id}): {n_err} of {sent} requests failed{said}")
    return found


def count_line(c: Campaign) -> str:
    """`12 launches planned: 10 complete, 2 failed.`"""
    counts = Counter(n.status for n in c.launches)
    said = ", ".join(f"{counts[s]} {s}" for s in LaunchStatus if counts[s])
    planned = f"{len(c.launches)} launch{'' if len(c.launches) == 1 else 'es'} planned"
    return f"{planned}: {said or 'none'}."


def _name(n: LaunchNote) -> str:
    return f"Launch {n.order} ({n.config}, block {n.block})"


def _table(c: Campaign) -> Table:
    rows = [
        [
            str(n.order),
            str(n.block),
            n.config,
            str(n.status),
            str(n.attempt) if n.attempt else "not started",
            seconds(n.ready_s),
            f"{seconds(n.first_generation_s)}, {seconds(n.second_generation_s)}"
            if n.first_generation_s is not None
            else DASH,
            n.experiment or DASH,
        ]
        for n in c.launches
    ]
    head = [
        "order",
        "block",
        "configuration",
        "status",
        "attempts",
        "ready after",
        "first, second generation",
        "experiment",
    ]
    caption = "Launches in the order they were run; a pair is two launches of one block"
    return Table(caption, head, rows, text_columns=4, prose=(7,))


def _of_experiments(experiments: list[Experiment]) -> list[Block]:
    rows = [
        [
            e.config,
            str(e.status),
            moment(e.started_utc),
            moment(e.ended_utc),
            str(len(e.launches)),
            e.reason or DASH,
            e.id,
        ]
        for e in experiments
    ]
    head = ["configuration", "status", "started, UTC", "ended, UTC", "launches seen", "reason", "experiment"]
    return [Table("Experiments of this report", head, rows, text_columns=2, prose=(5, 6))]
