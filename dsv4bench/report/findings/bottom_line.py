"""Section 1 of the findings: of each comparison what was best, whether the target was met, where the baseline stops.

Why it stops stands beside that, and then how the predictions did that this comparison answers, with the misses by
name. No line says what another section does not hold in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dsv4bench.records.claims import ClaimState
from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.verdict import CellVerdict, ScalingLaw, Verdict, VerdictDocument
from dsv4bench.report.findings import tables as tables
from dsv4bench.report.findings.data import Compared, Findings
from dsv4bench.report.findings.gpu import measured_on, side_by_side
from dsv4bench.report.findings.reached import target
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.markdown import number, paragraph, percent, share, text, wrapped

MISSES_NAMED = 4
TOK_S = "output_tok_s"
Judged = tuple[Prediction, Measured]


def heading(c: Compared) -> str:
    """Which comparison, and on which GPU: it stands above what each section says of it."""
    return f"**{text(f'{names(c.document)} on {measured_on(c)}')}** {tag(c.document)}"


def names(d: VerdictDocument) -> str:
    """The campaign, or the configurations of a comparison that is of none."""
    if d.campaign:
        return f"campaign {d.campaign}"
    return ", ".join(i.name for i in d.inputs) or "no configuration"


def bottom_line(f: Findings, tags: Mapping[str, str]) -> str:
    """`tags`: of each comparison by its id."""
    judged = [(p, m) for p, m in f.ledger if m is not None]
    parts = []
    for c in f.compared:
        d = c.document
        own = [(p, m) for p, m in judged if m.verdict == d.id]
        lines = [_best(d), *target(c), *_stops(d), *_verdict_count(d), *_predicted(own), *_claim_count(d)]
        parts.append(f"{heading(c)}\n\n{wrapped(f'{line} {tag(d)}' for line in lines)}")
    shown = {c.document.id for c in f.compared}
    rest = [(p, m) for p, m in judged if m.verdict not in shown]
    parts += [
        paragraph(f"Of comparisons that are not in this file: {line} {_tags(rest, tags)}")
        for line in _predicted(rest)
    ]
    gpus = side_by_side(f.compared)
    return "\n\n".join([*parts, *([paragraph(f"{text(gpus)}.")] if gpus else [])])


def _best(d: VerdictDocument) -> str:
    """At the highest level that every configuration has: what one gives alone at a higher one is no comparison."""
    figures = [x for x in d.figures if x.metric == TOK_S]
    if not figures:
        return "No throughput was compared."
    every = tables.places(figures)
    by_config = {name: [x for x in figures if x.config == name] for name in dict.fromkeys(x.config for x in figures)}
    shared = set(every).intersection(*({tables.place(x) for x in own} for own in by_config.values()))
    if not shared:
        most = [max(own, key=lambda x: x.value) for own in by_config.values()]
        named = [f"{text(x.config)} {tables.given(x)} at {tables.head(tables.place(x), every)}" for x in most]
        return f"No level was measured for every configuration; the most of each, tok/s: {', '.join(named)}."
    last = max(shared, key=lambda at: at[::-1])  # concurrency, rate, ISL
    there = [x for x in figures if tables.place(x) == last]
    best = max(there, key=lambda x: x.value)
    base = next((x for x in there if x.config == d.baseline), None)
    line = f"Best: at {tables.head(last, every)} {text(best.config)} gives the most, {tables.given(best)} tok/s"
    if base is not None and base is not best:
        change = f"{percent(best.value / base.value - 1)} vs {text(base.config)}"
        line += f", {change} ({tables.given(base)}; {tables.how_sure(d, best, base.config)})"
    return f"{line}."


# --- where does the baseline stop ---------------------------------------------------------------------------


def _stops(d: VerdictDocument) -> list[str]:
    """What it gives at most, what its law says, and why it does not give more."""
    laws = [x for x in d.scaling.laws if x.config == d.baseline] if d.scaling is not None else []
    lines = []
    for law in laws:
        where = f" at ISL {law.isl}" if len(laws) > 1 else ""
        own = [x for x in d.figures if (x.metric, x.config, x.isl) == (TOK_S, law.config, law.isl)]
        top = max(own, key=lambda x: x.value, default=None)
        gave = ""
        if top is not None:
            gave = f"at most {tables.given(top)} tok/s measured (C={top.concurrency}); "
        mechanism = law.mechanism.name if law.mechanism is not None else "not determined"
        said = f"{gave}{_flat(law)}{_law(law)}; mechanism: {text(mechanism)}{_growing(law)}"
        lines.append(f"Where {text(law.config)} stops{where}: {said}.")
    return lines


def _flat(law: ScalingLaw) -> str:
    """The plateau, in one clause, where launches carry it; its whole sentence stands in section 5 in any case."""
    p = law.plateau
    if p is None or p.ci_tok_s is None or not p.looks_flat:
        return ""
    between = " [{}, {}]".format(*map(number, p.ci_tok_s))
    state = "proven" if p.proven else "provisional"
    return f"flat from C={p.from_concurrency} at {number(p.output_tok_s)} tok/s{between} ({state}); "


def _law(law: ScalingLaw) -> str:
    if law.holds is None or law.ceiling_tok_s is None:
        return "no law could be fitted"
    if not law.holds:
        worst = max((abs(r) for r in law.residuals_frac.values()), default=None)
        by = "" if worst is None else f" (off by {100 * worst:.1f} % at worst)"
        return f"no ceiling is known, t(C) = a + b·C does not hold{by}"
    interval = law.ceiling_ci_tok_s
    between = "" if interval is None else f" [{number(interval[0])}, {number(interval[1])}]"
    return f"ceiling {number(law.ceiling_tok_s)} tok/s{between}, knee at C={number(law.knee, 2)}"


def _growing(law: ScalingLaw) -> str:
    """Of the fitted step at the highest level, the part b·C."""
    if not law.holds or not law.levels or law.a_s is None or law.b_s is None or law.b_s <= 0:
        return ""
    top = law.levels[-1]
    grown = law.b_s * top
    return f"; {share(round(grown / (max(law.a_s, 0.0) + grown), 2))} of the step at C={top} grows with C"


# --- verdicts, predictions, claims ----------------------------------------------------------------------------


def _verdict_count(d: VerdictDocument) -> list[str]:
    own = [v for v in d.cells if v.versus == "parent" and v.metric == TOK_S]
    if not own:
        return []
    every = tables.places(own)
    counts = Counter(_word(v) for v in own)
    said = ", ".join(f"{n} {word}{_losers(own, word, every)}" for word, n in sorted(counts.items()))
    return [f"Throughput of each configuration vs its parent, level by level: {said}."]


def _word(v: CellVerdict) -> str:
    return str(v.verdict) if v.verdict is not None else f"no verdict ({v.grade or 'no data'})"


def _losers(own: Sequence[CellVerdict], word: str, every: Sequence[tables.Place]) -> str:
    """Losses by name."""
    if word != Verdict.LOSS:
        return ""
    lost: dict[str, list[str]] = {}
    for v in own:
        if v.verdict is Verdict.LOSS:
            lost.setdefault(v.config, []).append(tables.head(tables.place(v), every))
    named = [f"{text(config)} at {', '.join(where)}" for config, where in lost.items()]
    return f" ({'; '.join(named)})"


def _predicted(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return []
    missed = [(p, m) for p, m in judged if not m.hit]
    head = f"{len(judged) - len(missed)} of {len(judged)} measured predictions lie in their interval"
    grades = tables.grades_of([m for _, m in judged]) + tables.beyond_count(judged)
    named = "; ".join(_miss(p, m) for p, m in missed[:MISSES_NAMED])
    more = f"; and {len(missed) - MISSES_NAMED} more in section 8" if len(missed) > MISSES_NAMED else ""
    return [f"{head} ({grades})" + (f". Missed: {named}{more}." if missed else ".")]


def _miss(p: Prediction, m: Measured) -> str:
    where = f"{'' if p.metric == TOK_S else f'{text(p.metric)} '}C={p.concurrency}"
    got = f"{percent(m.ratio - 1)}, predicted {tables.interval(p)}"
    return f"{text(p.config)} vs {text(m.versus)} at {where} ({got})"


def _tags(judged: Sequence[Judged], tags: Mapping[str, str]) -> str:
    return " ".join(dict.fromkeys(tags[m.verdict] for _, m in judged))


def _claim_count(d: VerdictDocument) -> list[str]:
    if not d.claims:
        return []
    counts = Counter(c.state for c in d.claims)
    said = ", ".join(f"{counts[s]} {s}" for s in ClaimState if counts[s])
    return [f"Of {len(d.claims)} claims of the text: {said}."]
