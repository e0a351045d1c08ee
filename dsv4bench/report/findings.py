"""PROFILE_FINDINGS.md: its ten sections as generated blocks, from stored comparisons and the prediction ledger.

Pure: the same documents give the same bytes. Every number carries the tag of the comparison it comes from, a
percentage its base, a share its concurrency. What the data cannot say is said to be unsaid; prose is for people, and
stays outside the blocks (`report.markers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from dsv4bench.records.claims import ClaimState
from dsv4bench.records.goal import GoalReport
from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.verdict import Grade, LeverStatus, TableFigure, Verdict, VerdictDocument
from dsv4bench.report import findings_tables as tables
from dsv4bench.report.findings_tables import tag
from dsv4bench.report.markdown import bullets, number, percent, share, text
from dsv4bench.report.markers import Block

TITLE = """# Profile findings

Blocks between `dsv4bench` markers are written by `dsv4bench findings` from stored comparisons; `dsv4bench findings
--check` fails when one was edited or is stale. Text outside them is written by people, and kept. A tag such as
`[v:1f3a]` names the comparison in `results/verdicts/` whose id ends so.
"""
DEAD_ENDS_HINT = "<!-- By hand, below the block: ### YYYY-MM-DD title (negative): tried, why, result, conclusion. -->"


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is rendered. The first document is the newest; `setups` are lines on stored experiments by document id."""

    documents: list[VerdictDocument]
    ledger: list[tuple[Prediction, Measured | None]] = msgspec.field(default_factory=list)
    setups: dict[str, list[str]] = msgspec.field(default_factory=dict)


def blocks(f: Findings) -> list[Block]:
    """In the order of the file."""
    return [
        _block("bottom-line", "## 1 Bottom line", _bottom_line(f)),
        _block("setup", "## 2 Setup", _each(f, lambda d: _setup(f, d))),
        _block("configs", "## 3 Configurations", _each(f, _configs)),
        _block("levers", "## 4 Levers", _each(f, _levers)),
        _block("claims", "## 4 Levers", _each(f, _claims)),
        _block("scaling", "## 5 Scaling and ceiling", _each(f, _scaling)),
        _block("kernels", "## 6 Kernels", _each(f, _kernels)),
        _block("plan", "## 7 Plan", _each(f, _plan)),
        _block("predictions", "## 8 Predicted and measured", _predictions(f)),
        _block("dead-ends", "## 9 Dead ends", _each(f, _dead_ends)),
        _block("threats", "## 10 Threats to these findings", _each(f, _threats)),
    ]


def new_file(found: Sequence[Block]) -> str:
    """The prose that a fresh file begins with; the blocks are merged into it."""
    headings = dict.fromkeys(b.heading for b in found)
    parts = [h + (f"\n\n{DEAD_ENDS_HINT}" if "Dead ends" in h else "") for h in headings]
    return TITLE + "\n" + "\n\n".join(parts) + "\n"


def _block(name: str, heading: str, body: str) -> Block:
    return Block(id=name, heading=heading, body=body)


def _each(f: Findings, render: Callable[[VerdictDocument], str]) -> str:
    """One document's text as it is; several each under the names that were compared."""
    if len(f.documents) == 1:
        return render(f.documents[0])
    return "\n\n".join(f"**{text(_names(d))}** {tag(d)}\n\n{render(d)}" for d in f.documents)


def _names(d: VerdictDocument) -> str:
    return ", ".join(i.name for i in d.inputs) or "no configuration"


# --- 1 -----------------------------------------------------------------------------------------------------


def _bottom_line(f: Findings) -> str:
    """At most five lines."""
    lines: list[str] = []
    for d in f.documents:
        lines += _best(d) + _verdict_count(d) + _goal_line(d) + _claim_count(d)
    judged = [m for _, m in f.ledger if m is not None]
    if judged:
        hits = sum(m.hit for m in judged)
        said = f"{hits} of {len(judged)} measured predictions lie in their interval ({tables.grades_of(judged)})."
        lines.insert(min(4, len(lines)), said)
    return bullets(lines[:5])


def _best(d: VerdictDocument) -> list[str]:
    figures = [x for x in d.figures if x.metric == "output_tok_s"]
    if not figures:
        return [f"No throughput was compared. {tag(d)}"]
    last = max(tables.place(x) for x in figures)
    there = [x for x in figures if tables.place(x) == last]
    best = max(there, key=lambda x: x.value)
    base = next((x for x in there if x.config == d.baseline), None)
    where = tables.head(last, tables.places(figures))
    line = f"At {where} {text(best.config)} gives the most, {number(best.value)} tok/s"
    if base is not None and base is not best:
        change = f"{percent(best.value / base.value - 1)} vs {text(base.config)}"
        line += f", {change} ({number(base.value)}; {_how_sure(d, best, base.config)})"
    return [f"{line}. {tag(d)}"]


def _how_sure(d: VerdictDocument, of: TableFigure, base: str) -> str:
    """The verdict on this change, with its grade."""
    wanted = (of.metric, of.config, base, tables.place(of))
    own = [v for v in d.cells if (v.metric, v.config, v.versus_name, tables.place(v)) == wanted]
    if not own:
        return "not compared, no verdict"
    v = own[0]
    return f"{v.verdict}, {v.grade}" if v.verdict is not None else f"no verdict, {v.grade or 'no data'}"


def _verdict_count(d: VerdictDocument) -> list[str]:
    own = [v for v in d.cells if v.versus == "parent" and v.metric == "output_tok_s"]
    counts = Counter(str(v.verdict) if v.verdict is not None else f"no verdict ({v.grade or 'no data'})" for v in own)
    if not counts:
        return []
    said = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    return [f"Throughput of each configuration vs its parent, level by level: {said}. {tag(d)}"]


def _goal_line(d: VerdictDocument) -> list[str]:
    g = d.goal
    if g is None or not g.items or g.why:
        return []
    last = g.items[-1]
    most = "no bound" if last.joint_tok_s is None else f"at most {number(last.joint_tok_s)} tok/s"
    return [f"The whole plan gives {most} at C={g.concurrency}; the target is {number(g.target_tok_s)}. {tag(d)}"]


def _claim_count(d: VerdictDocument) -> list[str]:
    if not d.claims:
        return []
    counts = Counter(c.state for c in d.claims)
    said = ", ".join(f"{counts[s]} {s}" for s in ClaimState if counts[s])
    return [f"Of {len(d.claims)} claims of the text: {said}. {tag(d)}"]


# --- 2 to 4 ------------------------------------------------------------------------------------------------


def _setup(f: Findings, d: VerdictDocument) -> str:
    lines = [text(line) for line in [*d.setup, *f.setups.get(d.id or "", [])]]
    for i in d.inputs:
        ids = ", ".join(f"`{x}`" for x in i.ids) or "no id"
        lines.append(f"{text(i.name)}: {text(i.source)}, {ids}, cells sha256 `{i.cells_sha256[:12]}`")
    return bullets([f"{line} {tag(d)}" for line in lines])


def _configs(d: VerdictDocument) -> str:
    found = tables.config_tables(d)
    return "\n\n".join(found) if found else f"No figures are stored with this comparison. {tag(d)}"


def _levers(d: VerdictDocument) -> str:
    if not d.levers:
        return f"No configuration names a parent and a lever. {tag(d)}"
    notes = bullets(f"{tables.lever_notes(lever)} {tag(d)}" for lever in d.levers)
    spec = bullets(
        f"{text(s.config)} vs {text(s.base)} at C={s.concurrency}: {s.state} ({text(s.reason)}) {tag(d)}"
        for s in d.speculation
    )
    return "\n\n".join(part for part in (tables.lever_table(d), notes, spec) if part)


def _claims(d: VerdictDocument) -> str:
    if not d.claims:
        return f"No claims of a text are stored with this comparison. {tag(d)}"
    parts = []
    for c in d.claims:
        lines = [f"**{text(c.claim)}: {c.state}**: {text(c.said)} {tag(d)}", *(f"  - {text(x)}" for x in c.found)]
        lines += [f"  - to do: {text(c.action)}"] if c.action else []
        parts.append("- " + "\n".join(lines))
    return "\n".join(parts)


# --- 5 to 7 ------------------------------------------------------------------------------------------------


def _scaling(d: VerdictDocument) -> str:
    laws = d.scaling.laws if d.scaling is not None else []
    if not laws:
        return f"No scaling law was fitted. {tag(d)}"
    lines = [f"{text(x.config)}: {text(x.plateau.text)} {tag(d)}" for x in laws if x.plateau is not None]
    lines += [f"{text(x.config)}: {text(n)} {tag(d)}" for x in laws for n in x.notes]
    for p in d.scaling.predictions if d.scaling is not None else []:
        measured = f", measured {number(p.measured_tok_s)}" if p.measured_tok_s is not None else ""
        law = f"the law of {text(p.base)}, {p.verified} tokens verified a step, {number(p.accept_length)} accepted"
        predicted = f"{text(p.config)} at C={p.concurrency}: {number(p.predicted_tok_s)} tok/s"
        lines.append(f"{predicted} by {law}{measured} {tag(d)}")
    law = "Step time t(C) = a + b·C."
    return "\n\n".join(part for part in (law, tables.law_table(d), bullets(lines)) if part)


def _kernels(d: VerdictDocument) -> str:
    if d.shares is None or not d.shares.shares:
        return f"No kernel breakdown at these coordinates. {tag(d)}"
    parts = []
    coordinates = {(s.config, s.concurrency) for s in d.shares.shares}
    for config, level in sorted(coordinates, key=lambda k: (k[0], -k[1])):
        own = [s for s in d.shares.shares if (s.config, s.concurrency) == (config, level)]
        parts.append(f"{text(config)} at C={level}:\n\n{tables.kernel_table(own, d)}")
    source = "published" if d.shares.published else "breakdown"
    notes = [f"source: {source}, {text(d.shares.source)}", *map(text, d.shares.notes)]
    return "\n\n".join([*parts, bullets(f"{n} {tag(d)}" for n in notes)])


def _plan(d: VerdictDocument) -> str:
    g = d.goal
    if g is None:
        return f"No target is set. {tag(d)}"
    lines = []
    if g.measured_tok_s is not None and g.needed_cut_frac is not None:
        lines.append(
            f"{text(g.config)} at C={g.concurrency} gives {number(g.measured_tok_s)} tok/s; the target of "
            f"{number(g.target_tok_s)} needs {100 * g.needed_cut_frac:.1f} % of the step to vanish {tag(d)}"
        )
    if g.unattributed_frac is not None:
        lines.append(
            f"unattributed at C={g.concurrency}: {share(g.unattributed_frac)} ({tables.of_what(g.of)}) {tag(d)}"
        )
    if g.roofline_tok_s is not None:
        lines.append(f"{_roofline(g)} {tag(d)}")
    elif g.roofline_note:
        lines.append(f"no roofline at C={g.concurrency}: {text(g.roofline_note)} {tag(d)}")
    lines += [f"{text(g.why)} {tag(d)}"] if g.why else []
    if g.reached is False:
        lines.append(f"the plan cannot reach the target {tag(d)}")
    return "\n\n".join(part for part in (tables.plan_table(g.items, d) if g.items else "", bullets(lines)) if part)


def _roofline(g: GoalReport) -> str:
    """What the GPU would allow, and what is missing between the plan and the target."""
    assert g.roofline_tok_s is not None
    allows = "allows the target" if g.roofline_tok_s >= g.target_tok_s else "does NOT allow the target"
    of = f" ({text(g.roofline_note)})" if g.roofline_note else ""
    measured = "" if g.measured_tok_s is None else f"; measured is {share(g.measured_tok_s / g.roofline_tok_s)} of it"
    return f"the roofline at C={g.concurrency} is {number(g.roofline_tok_s)} tok/s{of}: it {allows}{measured}"


# --- 8 to 10 -----------------------------------------------------------------------------------------------


def _predictions(f: Findings) -> str:
    if not f.ledger:
        return "No prediction was written before a lever was run (`dsv4bench predict`)."
    judged = [m for _, m in f.ledger if m is not None]
    grades = f" ({tables.grades_of(judged)})" if judged else ""
    rate = f"{sum(m.hit for m in judged)} of {len(judged)} hit{grades}; {len(f.ledger) - len(judged)} open."
    return f"{tables.prediction_table(f.ledger)}\n\n{rate}"


def _dead_ends(d: VerdictDocument) -> str:
    """Levers that were proven to buy nothing, or to cost, at every level."""
    lines = []
    for lever in d.levers:
        own = [v for v in d.cells if v.config == lever.config and v.versus == "parent"]
        own = [v for v in own if v.metric == "output_tok_s"]
        useless = {Verdict.NO_EFFECT, Verdict.TRIVIAL, Verdict.LOSS}
        if own and all(v.verdict in useless for v in own):
            said = ", ".join(f"{percent(v.delta_frac)} {v.verdict} at C={v.concurrency}" for v in own)
            name = text(" + ".join(lever.levers) or lever.config)
            lines.append(f"{name} (negative): vs {text(lever.parent)} {said} {tag(d)}")
    return bullets(lines) if lines else f"No lever is proven to buy nothing at every level. {tag(d)}"


def _threats(d: VerdictDocument) -> str:
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
    about = [f for f in d.figures if f.about]
    for x in about:
        lines.append(f"{text(x.config)} at C={x.concurrency} is an about-value (~{number(x.value)} ± {x.half:g})")
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
    lines += [text(n) for n in d.notes]
    return bullets(f"{line} {tag(d)}" for line in lines) if lines else f"None recorded. {tag(d)}"
