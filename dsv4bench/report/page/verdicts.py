"""Verdicts: what did each configuration buy against its parent and the baseline, and how sure is that?"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.verdict import CellVerdict, Grade, Verdict, VerdictDocument
from dsv4bench.report.compare import verdict_lines
from dsv4bench.report.markdown import DASH, percent
from dsv4bench.report.page.blocks import Block, Fold, Lines, Table, missing
from dsv4bench.report.page.words import change, interval, joined, level, metric_title, metric_value

GRADES = {
    Grade.E0: "E0: fewer than five repeats of one launch; a change and its spread, no verdict",
    Grade.E1: "E1: one launch each, five repeats or more; the variance between launches is added",
    Grade.E2U: "E2u: four unpaired launches each or more (Welch)",
    Grade.E2: "E2: four paired launches or more",
    Grade.P: "P: a bound from a profile",
}
ONE_EXPERIMENT = (
    "One experiment: nothing was compared, so there is no verdict. dsv4bench compare baseline configB makes one."
)


def blocks(r: ReportInput) -> list[Block]:
    d = r.verdict
    if d is None or (not d.cells and d.error is None):
        why = "No comparison is stored for this campaign, so there is no verdict." if r.campaign else ONE_EXPERIMENT
        return [missing(why)]
    found: list[Block] = []
    if d.error is not None:
        found.append(Lines([f"The comparison ended with an error: {d.error.message}", d.error.hint]))
    own = distinct(d)
    for metric in dict.fromkeys(v.metric for v in own):
        found.append(_table([v for v in own if v.metric == metric], metric))
    used = [text for grade, text in GRADES.items() if any(v.grade is grade for v in own)]
    if used:
        found.append(Lines([f"Grades: {'; '.join(used)}.", *_noise(d)], "note"))
    found.append(Fold("Why each verdict is what it is, worst first", lines=joined(verdict_lines(d)), short=True))
    return found


def distinct(d: VerdictDocument) -> list[CellVerdict]:
    """Each step once: where parent and baseline are one, the verdict against the parent knows the bound."""
    found: dict[tuple[str, str, str, int | None, float | None, int], CellVerdict] = {}
    for v in d.cells:
        key = (v.metric, v.config, v.versus_name, v.concurrency, v.rate_req_s, v.isl)
        if key not in found or v.versus == "parent":
            found[key] = v
    return list(found.values())


def word(v: CellVerdict) -> str:
    return str(v.verdict) if v.verdict is not None else "no verdict"


def _table(own: Sequence[CellVerdict], metric: str) -> Table:
    several = len({v.isl for v in own}) > 1
    rows = [
        [
            word(v),
            v.config,
            level(v.concurrency, v.rate_req_s, v.isl if several else None),
            f"{metric_value(metric, v.base)} → {metric_value(metric, v.new)}",
            change(v),
            _interval(v),
            _grade(v),
            bound(v),
        ]
        for v in own
    ]
    head = [
        "verdict",
        "configuration",
        "level",
        "base → new",
        "Δ",
        "95 % interval of Δ",
        "grade (n)",
        "bound, or what could be seen",
    ]
    return Table(f"{metric_title(metric)}: every change with its base", head, rows, 3, prose=(7,), strong=0)


def _interval(v: CellVerdict) -> str:
    if v.ci_frac is not None:
        return interval(v.ci_frac, v.in_points)
    if v.spread_frac is not None:
        return f"sd {100 * v.spread_frac[0]:.1f} % base, {100 * v.spread_frac[1]:.1f} % new"
    return DASH


def _grade(v: CellVerdict) -> str:
    return f"{v.grade or 'no data'} ({v.n_base} and {v.n_new})"


def bound(v: CellVerdict) -> str:
    """At most, from a profile or the tokens a step; else what could have been seen at all."""
    said = []
    if v.bound_frac is not None:
        by = " (tokens a step)" if v.bound_source == "speculation" else ""
        said.append(f"at most {percent(v.bound_frac)}{by}")
    if v.mde_frac is not None and v.verdict in (Verdict.UNRESOLVED, Verdict.NO_EFFECT, Verdict.TRIVIAL):
        said.append(f"could see {100 * v.mde_frac:.1f} %")
    if v.pairs_needed is not None and v.verdict is Verdict.UNRESOLVED:
        said.append(f"needs {v.pairs_needed} pairs")
    return ", ".join(said) or v.bound_note or DASH


def _noise(d: VerdictDocument) -> list[str]:
    if d.sigma_launch_frac is None or not any(v.grade is Grade.E1 for v in d.cells):
        return []
    source = d.sigma_source or "source not told"
    return [f"Noise between launches is taken as {100 * d.sigma_launch_frac:.2g} % ({source})."]
