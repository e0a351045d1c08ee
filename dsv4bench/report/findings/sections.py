"""PROFILE_FINDINGS.md: its ten sections as generated blocks, from stored comparisons and the prediction ledger.

Pure: the same documents give the same bytes. Every number carries the tag of the comparison it comes from, a
percentage its base, a share its concurrency. What the data cannot say is said to be unsaid; prose is for people, and
stays outside the blocks (`report.markers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dsv4bench.records.goal import GoalReport
from dsv4bench.records.verdict import LeverVerdict, ScalingLaw, Verdict
from dsv4bench.report import foretold
from dsv4bench.report.findings import tables as tables
from dsv4bench.report.findings.bottom_line import bottom_line, heading
from dsv4bench.report.findings.data import Compared, Findings
from dsv4bench.report.findings.kernels import kernels
from dsv4bench.report.findings.predictions import predictions
from dsv4bench.report.findings.setup import setup
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.findings.threats import threats
from dsv4bench.report.markdown import number, paragraph, percent, share, text, wrapped
from dsv4bench.report.markers import Block
from dsv4bench.report.target import cut

TITLE = """# Profile findings

Blocks between `dsv4bench` markers are written by `dsv4bench findings` from stored comparisons; `dsv4bench findings
--check` fails when one was edited or is stale. Text outside them is written by people, and kept. A tag such as
`[v:1f3a]` names the comparison in `results/verdicts/` whose id ends so, `[p0a0b]` the line of that id in
`results/predictions.jsonl`. What the words mean (grades E0 to E2, GAIN, UNRESOLVED, knee, mechanism) stands in
`docs/verdicts.md`.
"""
KEYS_SHOWN = 6
DEAD_ENDS_HINT = "<!-- By hand, below the block: ### YYYY-MM-DD title (negative): tried, why, result, conclusion. -->"


def blocks(f: Findings) -> list[Block]:
    """In the order of the file."""
    shown = [c.document.id or tables.UNSTORED for c in f.compared]
    tags = tables.tags_of([*shown, *(m.verdict for _, m in f.ledger if m is not None)])
    f = msgspec.structs.replace(
        f, compared=[msgspec.structs.replace(c, document=tables.tagged(c.document, tags)) for c in f.compared]
    )
    return [
        _block("bottom-line", "## 1 Bottom line", bottom_line(f, tags)),
        _block("setup", "## 2 Setup", _each(f, setup)),
        _block("configs", "## 3 Configurations", _each(f, _configs)),
        _block("levers", "## 4 Levers", _each(f, _levers)),
        _block("claims", "## 4 Levers", _each(f, _claims)),
        _block("scaling", "## 5 Scaling and ceiling", _each(f, _scaling)),
        _block("kernels", "## 6 Kernels", _each(f, kernels)),
        _block("plan", "## 7 Plan", _each(f, _plan)),
        _block("predictions", "## 8 Predicted and measured", predictions(f.ledger, tags)),
        _block("dead-ends", "## 9 Dead ends", _each(f, _dead_ends)),
        _block("threats", "## 10 Threats to these findings", _each(f, threats)),
    ]


def new_file(found: Sequence[Block]) -> str:
    """The prose that a fresh file begins with; the blocks are merged into it."""
    headings = dict.fromkeys(b.heading for b in found)
    parts = [h + (f"\n\n{DEAD_ENDS_HINT}" if "Dead ends" in h else "") for h in headings]
    return TITLE + "\n" + "\n\n".join(parts) + "\n"


def _block(name: str, heading: str, body: str) -> Block:
    return Block(id=name, heading=heading, body=body)


def _each(f: Findings, render: Callable[[Compared], str]) -> str:
    """Each comparison's text below its name and its GPU."""
    return "\n\n".join(f"{heading(c)}\n\n{render(c)}" for c in f.compared)


# --- 3 and 4 -----------------------------------------------------------------------------------------------


def _configs(c: Compared) -> str:
    d = c.document
    found = tables.config_tables(d)
    return "\n\n".join(found) if found else f"No figures are stored with this comparison. {tag(d)}"


def _levers(c: Compared) -> str:
    d = c.document
    if not d.levers:
        return f"No configuration names a parent and a lever. {tag(d)}"
    notes = wrapped(f"{line} {tag(d)}" for lever in d.levers for line in _lever_lines(lever))
    spec = wrapped(
        f"{text(s.config)} vs {text(s.base)} at C={s.concurrency}: {s.state} ({text(s.reason)}) {tag(d)}"
        for s in d.speculation
    )
    return "\n\n".join(part for part in (tables.lever_table(d), notes, spec) if part)


def _lever_lines(lever: LeverVerdict) -> list[str]:
    """How sure it is that the step is this lever, in one line; several notes each in a line of their own."""
    if len(lever.notes) < 2:
        return [f"{tables.lever_notes(lever)}{_recorded(lever)}"]
    head = tables.lever_notes(msgspec.structs.replace(lever, notes=[]))
    return [f"{head}{_recorded(lever)}", *(f"{text(lever.config)}: {text(note)}" for note in lever.notes)]


def _recorded(lever: LeverVerdict) -> str:
    """What the servers recorded of it: `; kernels: fallback → optimized`."""
    if not lever.differing:
        return ""
    changed = [
        f"{key}: {' → '.join('not set' if v is None else str(v) for v in both)}"
        for key, both in lever.differing.items()
    ]
    more = f", and {len(changed) - KEYS_SHOWN} more" if len(changed) > KEYS_SHOWN else ""
    return f"; {text(', '.join(changed[:KEYS_SHOWN]))}{more}"


def _claims(c: Compared) -> str:
    d = c.document
    if not d.claims:
        return f"No claims of a text are stored with this comparison. {tag(d)}"
    parts = []
    for claim in d.claims:
        parts.append(wrapped([f"**{text(claim.claim)}: {claim.state}**: {text(claim.said)} {tag(d)}"]))
        found = [text(x) for x in claim.found] + ([f"to do: {text(claim.action)}"] if claim.action else [])
        parts += [wrapped(found, indent="  ")] if found else []
    return "\n".join(parts)


# --- 5 and 7 -----------------------------------------------------------------------------------------------


def _scaling(c: Compared) -> str:
    d = c.document
    laws = d.scaling.laws if d.scaling is not None else []
    if not laws:
        return f"No scaling law was fitted. {tag(d)}"
    lines = [f"{text(x.config)}: {text(x.plateau.text)} {tag(d)}" for x in laws if x.plateau is not None]
    lines += [
        f"{_said_of(laws, note)}: {text(note)} {tag(d)}" for note in dict.fromkeys(n for x in laws for n in x.notes)
    ]
    for p in d.scaling.predictions if d.scaling is not None else []:
        measured = ""
        if p.measured_tok_s is not None:
            measured = f", {foretold.beside(d.scaling, p, number(p.measured_tok_s))}"
        law = f"the law of {text(p.base)}, {p.verified} tokens verified a step, {number(p.accept_length)} accepted"
        predicted = f"{text(p.config)} at C={p.concurrency}: {number(p.predicted_tok_s)} tok/s"
        lines.append(f"{predicted} by {law}{measured} {tag(d)}")
    law = (
        "Step time t(C) = a + b·C, from TPOT where nothing else is said: without a request's own prefill, but with "
        "others' prefills that interrupt it."
    )
    return "\n\n".join(part for part in (paragraph(law), tables.law_table(d), wrapped(lines)) if part)


def _said_of(laws: Sequence[ScalingLaw], note: str) -> str:
    """Whose law a note is on; what is said of several stands once."""
    own = dict.fromkeys(x.config for x in laws if note in x.notes)
    every = dict.fromkeys(x.config for x in laws)
    return "all" if len(own) == len(every) > 1 else ", ".join(map(text, own))


def _plan(c: Compared) -> str:
    d = c.document
    g = d.goal
    if g is None:
        return f"No target is set. {tag(d)}"
    lines = []
    if g.measured_tok_s is not None and g.needed_cut_frac is not None and g.needed_cut_frac > 0:
        lines.append(
            f"{text(g.config)} at C={g.concurrency} gives {number(g.measured_tok_s)} tok/s; the target of "
            f"{number(g.target_tok_s)} needs {cut(g)} to vanish {tag(d)}"
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
    return "\n\n".join(part for part in (tables.plan_table(g.items, d) if g.items else "", wrapped(lines)) if part)


def _roofline(g: GoalReport) -> str:
    """What the GPU would allow, and what is missing between the plan and the target."""
    assert g.roofline_tok_s is not None
    allows = "allows the target" if g.roofline_tok_s >= g.target_tok_s else "does NOT allow the target"
    of = f" ({text(g.roofline_note)})" if g.roofline_note else ""
    measured = "" if g.measured_tok_s is None else f"; measured is {share(g.measured_tok_s / g.roofline_tok_s)} of it"
    return f"the roofline at C={g.concurrency} is {number(g.roofline_tok_s)} tok/s{of}: it {allows}{measured}"


# --- 9 -----------------------------------------------------------------------------------------------------


def _dead_ends(c: Compared) -> str:
    """Levers that were proven to buy nothing, or to cost, at every level."""
    d = c.document
    lines = []
    for lever in d.levers:
        own = [v for v in d.cells if v.config == lever.config and v.versus == "parent"]
        own = [v for v in own if v.metric == "output_tok_s"]
        useless = {Verdict.NO_EFFECT, Verdict.TRIVIAL, Verdict.LOSS}
        if own and all(v.verdict in useless for v in own):
            said = ", ".join(f"{percent(v.delta_frac)} {v.verdict} at C={v.concurrency}" for v in own)
            name = text(" + ".join(lever.levers) or lever.config)
            lines.append(f"{name} (negative): vs {text(lever.parent)} {said} {tag(d)}")
    return wrapped(lines) if lines else f"No lever is proven to buy nothing at every level. {tag(d)}"
