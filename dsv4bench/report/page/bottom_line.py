"""The bottom line: what was found, in at most a handful of sentences, the worst news among them."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.records.campaign import CampaignStatus, ReportInput
from dsv4bench.records.goal import GoalReport
from dsv4bench.records.verdict import CellVerdict, Grade
from dsv4bench.report.markdown import percent
from dsv4bench.report.page import levels
from dsv4bench.report.page.blocks import Block, Lines
from dsv4bench.report.page.launches import BAD, count_line
from dsv4bench.report.page.levers import not_live
from dsv4bench.report.page.plan import target_line
from dsv4bench.report.page.verdicts import distinct
from dsv4bench.report.page.words import figure, listed
from dsv4bench.report.target import how_reached


def blocks(r: ReportInput) -> list[Block]:
    return [Lines(sentences(r))]


def sentences(r: ReportInput) -> list[str]:
    return [
        *_best(r),
        *_verdicts(r),
        *_ceiling(r),
        *_mechanism(r),
        *_target(r),
        *not_live(r),
        *_parity(r),
        *_unmeasured(r),
        *_ended(r),
    ]


def _best(r: ReportInput) -> list[str]:
    """At the highest level that every configuration reached."""
    found = levels.by_level(levels.measured(r))
    configs = [c for c in levels.configs(r) if any(c == of for of, _ in found)]
    common = [p for p in {p for _, p in found} if all((c, p) in found for c in configs)]
    if not common:
        return ["No valid level was measured for every configuration: there is no common figure."]
    place = max(common)
    means = {c: x for c in configs if (x := levels.mean(found[c, place], "output_tok_s")) is not None}
    if not means:
        return [f"No throughput is known at C={place[0]}."]
    best = max(means, key=lambda c: means[c])
    base = configs[0]
    said = f"At C={place[0]} (ISL {place[1]}) {best} gives {figure(means[best])} output tok/s"
    if len(means) > 1:
        said += ", the most of " + str(len(means)) + " configurations"
    if base in means and base != best:
        change = f"{percent(means[best] / means[base] - 1)} vs {base}"
        said += f": {change} ({figure(means[base])}; {_how_sure(r, best, base, place)})"
    elif base == best and len(means) > 1:
        said += ": no configuration gives more than the baseline"
    return [f"{said}."]


def _how_sure(r: ReportInput, config: str, base: str, place: levels.Place) -> str:
    """The verdict on this change in throughput, with its grade."""
    wanted = ("output_tok_s", config, base, *place)
    found = distinct(r.verdict) if r.verdict is not None else []
    own = [v for v in found if (v.metric, v.config, v.versus_name, v.concurrency, v.isl) == wanted]
    return _word(own[0]) if own else "not compared, no verdict"


def _verdicts(r: ReportInput) -> list[str]:
    """Throughput verdicts of each configuration against its parent, by word."""
    own = [v for v in (distinct(r.verdict) if r.verdict is not None else []) if v.metric == "output_tok_s"]
    own = [v for v in own if v.versus == "parent"]
    if not own:
        return []
    found = []
    for config, versus in dict.fromkeys((v.config, v.versus_name) for v in own):
        step = [v for v in own if (v.config, v.versus_name) == (config, versus)]
        found.append(f"{config} vs {versus}, throughput: {'; '.join(_said(step))}.")
    return found


def _said(step: list[CellVerdict]) -> list[str]:
    """Levels of one word together: `GAIN at C=1 (+46.7 %)`."""
    words = dict.fromkeys(_word(v) for v in step)
    said = []
    for word in words:
        at = [f"C={v.concurrency} ({percent(v.delta_frac)})" for v in step if _word(v) == word]
        said.append(f"{word} at {', '.join(at)}")
    return said


def _word(v: CellVerdict) -> str:
    if v.verdict is not None:
        return f"{v.verdict} [{v.grade}]"
    return f"no verdict [{v.grade}]" if v.grade is Grade.E0 else "no verdict"


def _ceiling(r: ReportInput) -> list[str]:
    """Plateaus, proven and provisional, with their mechanism; what is not shown to be flat stands further down."""
    scaling = r.verdict.scaling if r.verdict is not None else None
    plateaus = [(law.config, law.plateau) for law in (scaling.laws if scaling is not None else [])]
    return [f"{config}: {p.text.rstrip('.')}." for config, p in plateaus if p is not None and p.looks_flat]


def _mechanism(r: ReportInput) -> list[str]:
    """Why a configuration stops growing, with the first observation that tells it, where no plateau says it."""
    scaling = r.verdict.scaling if r.verdict is not None else None
    return [
        f"{law.config} stops growing: {m.name} ({m.evidence[0]})."
        for law in (scaling.laws if scaling is not None else [])
        if law.plateau is None and (m := law.mechanism) is not None and m.evidence and m.name != "not determined"
    ]


def _target(r: ReportInput) -> list[str]:
    goal = r.verdict.goal if r.verdict is not None else None
    return [target_line(goal), *_reached(r, goal)] if goal is not None else []


def _reached(r: ReportInput, goal: GoalReport) -> list[str]:
    """Which configurations gave the target in this campaign, and in which of their launches; prompt lengths apart."""
    there = [m for m in levels.measured(r) if m.why_not is None and m.cell.concurrency == goal.concurrency]
    by_place: dict[tuple[str, int], list[levels.Measured]] = {}
    for m in there:
        by_place.setdefault((m.config, m.cell.isl), []).append(m)
    given = {k: x for k, own in by_place.items() if (x := _tok_s(own)) is not None}
    if not given:
        return []
    several = len({isl for _, isl in given}) > 1
    shown = {k: f"{k[0]}{f' at ISL {k[1]}' if several else ''} ({figure(x)})" for k, x in given.items()}
    by_how: dict[str, list[str]] = {}
    for k, x in given.items():
        if x >= goal.target_tok_s:
            by_how.setdefault(how_reached(_by_launch(by_place[k]), goal.target_tok_s), []).append(shown[k])
    if by_how:
        return [f"Reached {'; '.join(f'{how} by {listed(named)}' for how, named in by_how.items())}."]
    most = max(given, key=lambda k: given[k])
    where = f" at ISL {most[1]}" if several else ""
    return [f"No configuration reaches it; {most[0]} gives the most there{where}, {figure(given[most])} tok/s."]


def _by_launch(own: Sequence[levels.Measured]) -> list[float]:
    by_launch: dict[str, list[levels.Measured]] = {}
    for m in own:
        by_launch.setdefault(m.launch, []).append(m)
    return [x for cells in by_launch.values() if (x := _tok_s(cells)) is not None]


def _tok_s(own: Sequence[levels.Measured]) -> float | None:
    return levels.mean([m.cell for m in own], "output_tok_s")


def _parity(r: ReportInput) -> list[str]:
    """Of the configurations that are to write the baseline's text."""
    parity = [p for p in (r.campaign.parity if r.campaign is not None else []) if p.outcome != "not compared"]
    bad = [p.config for p in parity if p.same is False]
    if bad:
        return [f"Greedy output differs from the baseline: {', '.join(bad)}."]
    untold = [p.config for p in parity if p.same is None]
    if untold:
        return [f"Whether greedy output is still the baseline's cannot be told: {', '.join(untold)}."]
    return []


def _unmeasured(r: ReportInput) -> list[str]:
    """Configurations that were planned and have no figure."""
    found = {config for config, _ in levels.by_level(levels.measured(r))}
    lost = [c for c in (r.campaign.configs if r.campaign is not None else []) if c not in found]
    return [f"Without a valid level: {listed(lost)}."] if lost and found else []


def _ended(r: ReportInput) -> list[str]:
    c = r.campaign
    if c is None:
        unfinished = [d.experiment for d in r.experiments if d.experiment.status != "complete"]
        return [f"{e.config} is {e.status}: {e.reason or 'no reason was recorded'}." for e in unfinished]
    if c.status is CampaignStatus.COMPLETE and not any(n.status in BAD for n in c.launches):
        return []
    why = f" ({c.reason})" if c.reason else ""
    return [f"The campaign is {c.status}{why}. {count_line(c)}"]
