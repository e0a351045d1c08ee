"""Was the target met, by whom, in which launches, and by which grade; else the most that was measured.

A figure over the target is an average. It is said whether each launch of its configuration is over the target, too:
one average alone could lie there by chance.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dsv4bench.records.experiment import Status
from dsv4bench.records.goal import GoalReport
from dsv4bench.records.verdict import TableFigure, VerdictDocument
from dsv4bench.report.findings import tables
from dsv4bench.report.findings.data import Compared
from dsv4bench.report.markdown import number, text
from dsv4bench.report.plan import roof_allows
from dsv4bench.report.target import how_reached


def target(c: Compared) -> list[str]:
    """One line; none where no target is set."""
    d, g = c.document, c.document.goal
    if g is None:
        return []
    head = f"Target {number(g.target_tok_s)} tok/s at C={g.concurrency}"
    there = [x for x in d.figures if x.metric == tables.HEADLINE and x.concurrency == g.concurrency]
    if not there:
        return [f"{head}: not measured there; {_plan_bound(g)}."]
    there.sort(key=lambda x: x.value)
    isls = {x.isl for x in there}
    by_how: dict[str, list[TableFigure]] = {}
    for x in there:
        if x.value >= g.target_tok_s:
            by_how.setdefault(_how(c, x, g.target_tok_s), []).append(x)
    if by_how:
        said = "; ".join(f"{how} by {_figures(d, own, isls)}" for how, own in by_how.items())
        return [f"{head}: reached {said}."]
    return [f"{head}: not reached, the most is {_figures(d, there[-1:], isls)}; {_plan_bound(g)}."]


def _how(c: Compared, x: TableFigure, target_tok_s: float) -> str:
    published = any(i.name == x.config and i.source != "dsv4bench" for i in c.document.inputs)
    return "as published" if published else how_reached(_launches(c, x), target_tok_s)


def _launches(c: Compared, x: TableFigure) -> list[float]:
    """Its throughput at this level, launch by launch, from the experiments at hand; none if one of them is not."""
    ids = [i for note in c.document.inputs if note.name == x.config for i in note.ids]
    if set(ids) & set(c.missing):
        return []
    found: dict[tuple[str, str], list[float]] = {}
    for own in c.experiments:
        e = own.experiment
        if e.id not in ids or (c.campaign is not None and e.status is not Status.COMPLETE):
            continue
        for cell in own.cells:
            there = (cell.concurrency, cell.isl) == (x.concurrency, x.isl) and cell.rate_req_s == x.rate_req_s
            if there and cell.invalid is None and cell.output_tok_s is not None:
                found.setdefault((e.id, cell.launch), []).append(cell.output_tok_s)
    return [statistics.fmean(values) for values in found.values()]


def _figures(d: VerdictDocument, shown: Sequence[TableFigure], isls: set[int]) -> str:
    """`both 1640, both+mtp 2131 (vs baseline: GAIN, E2)`: what is true of the figures up to it stands once."""
    found: list[str] = []
    for i, x in enumerate(shown):
        where = f" at ISL {x.isl}" if len(isls) > 1 else ""
        after = _versus_baseline(d, shown[i + 1]) if i + 1 < len(shown) else ""
        sure = _versus_baseline(d, x)
        found.append(f"{text(x.config)} {tables.given(x)}{where}" + ("" if sure == after else sure))
    return ", ".join(found)


def _versus_baseline(d: VerdictDocument, x: TableFigure) -> str:
    if d.baseline is None or x.config == d.baseline:
        return ""
    return f" (vs {text(d.baseline)}: {tables.how_sure(d, x, d.baseline)})"


def _plan_bound(g: GoalReport) -> str:
    """How far the named changes could lead."""
    if g.why or not g.items:
        return text(g.why) or "no plan is stored"
    last = g.items[-1]
    most = "no bound" if last.joint_tok_s is None else f"at most {number(last.joint_tok_s)} tok/s"
    return f"the whole plan, from {text(g.config)}, gives {most}{roof_allows(last.joint_tok_s, g.roofline_tok_s)}"
