"""The sections of a report in their order; what is `short` also goes into the Markdown of a pull request."""

from __future__ import annotations

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import (
    activity,
    bottom_line,
    kernels,
    latency,
    launches,
    levels,
    levers,
    pareto,
    plan,
    provenance,
    results_table,
    scaling,
    throughput,
    verdicts,
)
from dsv4bench.report.page.blocks import Block, Lines, Section, missing
from dsv4bench.report.page.words import moment
from dsv4bench.report.page.written import typeset, written

WORDS = (
    "What the words mean (grades E0 to E2, GAIN, UNRESOLVED, knee, mechanism) stands in docs/verdicts.md of dsv4bench"
)


def title(r: ReportInput) -> str:
    if r.campaign is not None:
        return r.campaign.name
    return " and ".join(levels.configs(r)[:3]) or "nothing was measured"


def subtitle(r: ReportInput) -> list[str]:
    """What this is and where it comes from."""
    c = r.campaign
    if c is not None:
        about = [c.about] if c.about else []
        return [
            *map(typeset, about),
            f"Campaign {c.id}, {c.status}, started {moment(c.started_utc)} UTC, {len(c.configs)} configurations",
            WORDS,
        ]
    shown = [f"Experiment {d.experiment.id}, {d.experiment.status}" for d in r.experiments] or ["No experiment"]
    return [*shown, WORDS]


def sections(r: ReportInput) -> list[Section]:
    return [written(s) for s in _sections(r)]


def _sections(r: ReportInput) -> list[Section]:
    return [
        Section("bottom-line", "Bottom line", bottom_line.blocks(r), short=True),
        Section(
            "throughput",
            "Throughput, and what one user gets",
            [*throughput.blocks(r), *pareto.blocks(r), *throughput.conditions(r)],
        ),
        Section("results", "Results by level", results_table.blocks(r), short=True),
        Section("verdicts", "Verdicts", verdicts.blocks(r), short=True),
        Section("levers", "Levers in force", levers.blocks(r), short=True),
        Section("parity", "Output parity", levers.parity_blocks(r), short=True),
        Section("scaling", "Scaling, plateau and mechanism", scaling.blocks(r), short=True),
        Section("kernels", "Where a decode step goes", kernels.blocks(r)),
        Section("activity", "GPU activity over time", activity.blocks(r)),
        Section("latency", "Latency distributions", latency.blocks(r)),
        Section("plan", "Plan and target", plan.blocks(r), short=True),
        Section("launches", "Launches", launches.blocks(r)),
        Section("failures", "Failures", launches.failure_blocks(r), short=True),
        Section("provenance", "Provenance", provenance.blocks(r), short=True),
        Section("notes", "Notes and warnings", _notes(r), short=True),
    ]


def _notes(r: ReportInput) -> list[Block]:
    lines = [f"could not be read: {w}" for w in r.warnings]
    lines += r.cautions
    lines += r.campaign.notes if r.campaign is not None else []
    lines += r.verdict.notes if r.verdict is not None else []
    lines += [f"{d.experiment.config}: {n}" for d in r.experiments for n in d.experiment.server.notes]
    return [Lines(list(dict.fromkeys(lines)))] if lines else [missing("No notes and no warnings.")]
