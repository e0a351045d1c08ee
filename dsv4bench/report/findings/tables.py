"""The tables of PROFILE_FINDINGS.md, each from one stored comparison; every row ends in the tag of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dsv4bench.records.goal import PlanReach
from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.shares import KernelShare
from dsv4bench.records.verdict import CellVerdict, LeverVerdict, TableFigure, VerdictDocument
from dsv4bench.report.markdown import DASH, number, percent, share, table, text, times

Place = tuple[int, float, int]  # ISL, rate (−1: closed loop), concurrency (−1: open loop)
MS = {"tpot_p50_s": "TPOT p50, ms", "ttft_p50_s": "TTFT p50, ms"}
HEADLINE = "output_tok_s"
TITLES = {HEADLINE: "output tok/s", "accept_length": "tokens a step (acceptance length)", **MS}


UNSTORED = "unstored"


class Tagged(VerdictDocument, frozen=True, kw_only=True):
    """A comparison whose tag is a longer one, because another's id ends alike."""

    tag: str


def tag(document: VerdictDocument) -> str:
    """`[v:1f3a]`: the last part of the id of the comparison that a number comes from, more of it where `Tagged`."""
    return document.tag if isinstance(document, Tagged) else _tag(document.id or UNSTORED, 1)


def tags_of(ids: Iterable[str]) -> dict[str, str]:
    """The tag of each id: as many of its last parts as tell it from all the others."""
    every = dict.fromkeys(ids)
    found = {}
    for i in every:
        longest = i.count("-") + 1
        alike = (n for n in range(1, longest) if not any(o != i and _tag(o, n) == _tag(i, n) for o in every))
        found[i] = _tag(i, next(alike, longest))
    return found


def tagged(document: VerdictDocument, tags: Mapping[str, str]) -> VerdictDocument:
    """The same comparison, which `tag` gives the tag of `tags`."""
    wanted = tags[document.id or UNSTORED]
    if wanted == tag(document):
        return document
    return Tagged(**{name: getattr(document, name) for name in document.__struct_fields__}, tag=wanted)


def _tag(comparison: str, parts: int) -> str:
    return f"[v:{'-'.join(comparison.split('-')[-parts:])}]"


def places(items: Iterable[TableFigure | CellVerdict]) -> list[Place]:
    return sorted({place(i) for i in items})


def place(item: TableFigure | CellVerdict) -> Place:
    rate = -1.0 if item.rate_req_s is None else item.rate_req_s
    return item.isl, rate, -1 if item.concurrency is None else item.concurrency


def head(at: Place, every: Sequence[Place]) -> str:
    """`C=8`; with the prompt length where there are several."""
    isl, rate, concurrency = at
    load = f"C={concurrency}" if concurrency >= 0 else f"{rate:g} req/s"
    return f"{load}, ISL {isl}" if len({p[0] for p in every}) > 1 else load


def given(f: TableFigure) -> str:
    """A figure in a sentence; `~` before one that was given as "about"."""
    return f"{'~' if f.about else ''}{number(f.value)}"


def how_sure(d: VerdictDocument, of: TableFigure, base: str) -> str:
    """The verdict on this figure's change against the configuration `base`, with its grade."""
    wanted = (of.metric, of.config, base, place(of))
    own = [v for v in d.cells if (v.metric, v.config, v.versus_name, place(v)) == wanted]
    if not own:
        return "not compared, no verdict"
    v = own[0]
    return f"{v.verdict}, {v.grade}" if v.verdict is not None else f"no verdict, {v.grade or 'no data'}"


def config_tables(d: VerdictDocument) -> list[str]:
    """One table a metric: a row a configuration, a column a level."""
    found = []
    for metric, title in TITLES.items():
        figures = [f for f in d.figures if f.metric == metric]
        columns = places(figures)
        if not figures:
            continue
        rows = []
        for name in dict.fromkeys(f.config for f in figures):
            own = {place(f): f for f in figures if f.config == name}
            shown = [_figure(own.get(at), metric) for at in columns]
            rows.append([text(name), *shown, tag(d)])
        found.append(table([title, *(head(at, columns) for at in columns), ""], rows))
    return found


def _figure(f: TableFigure | None, metric: str) -> str:
    if f is None:
        return DASH
    scale = 1e3 if metric in MS else 1.0
    half = f" ± {scale * f.half:g}" if f.half else ""
    return f"{'~' if f.about else ''}{number(scale * f.value)}{half}"


def lever_table(d: VerdictDocument) -> str:
    """Each step from its parent, and its cumulated change against the baseline, level by level; throughput only."""
    cells = [v for v in d.cells if v.metric == HEADLINE]
    every = places(cells)
    rows = []
    for lever in d.levers:
        name = text(" + ".join(lever.levers) or "not named")
        name += "" if lever.levers == [lever.config] else f" ({text(lever.config)})"
        for versus in dict.fromkeys([lever.parent, *([d.baseline] if d.baseline else [])]):
            matching = [v for v in cells if (v.config, v.versus_name) == (lever.config, versus)]
            own = {place(v): v for v in sorted(matching, key=lambda v: v.versus == "parent")}  # it knows the bound
            for at in every:
                if at in own:
                    rows.append([name, text(versus), head(at, every), *_verdict(own[at]), tag(d)])
    return table(["lever", "vs", "at", "change [95 %]", "verdict, grade", "at most", ""], rows)


def _verdict(v: CellVerdict) -> tuple[str, str, str]:
    """The change with its interval, what it was judged to be, and the bound."""
    interval = f" [{percent(v.ci_frac[0])}, {percent(v.ci_frac[1])}]" if v.ci_frac is not None else ""
    word = (
        f"{v.verdict} {v.grade or ''}".rstrip() if v.verdict is not None else f"no verdict ({v.grade or 'no data'})"
    )
    return f"{percent(v.delta_frac)}{interval}", word, percent(v.bound_frac)


def lever_notes(lever: LeverVerdict) -> str:
    """Whether the server's own record confirms the step."""
    apart = "its levers were also measured alone" if lever.bundle else "not separable"
    bundled = f"; bundled, {apart}" if lever.bundled else ""
    extra = f"; other keys differ too: {', '.join(map(text, lever.extra_keys))}" if lever.extra_keys else ""
    notes = "".join(f"; {text(n)}" for n in lever.notes)
    return f"{text(lever.config)} vs {text(lever.parent)}: lever {lever.status}{bundled}{extra}{notes}"


def law_table(d: VerdictDocument) -> str:
    laws = d.scaling.laws if d.scaling is not None else []
    rows = []
    for law in laws:
        worst = max((abs(r) for r in law.residuals_frac.values()), default=None)
        a, b = (None if x is None else 1e3 * x for x in (law.a_s, law.b_s))
        fit = DASH if worst is None else f"{100 * worst:.1f} %{'' if law.holds else ' (law rejected)'}"
        mechanism = law.mechanism.name if law.mechanism is not None else "not determined"
        name = text(law.config) if len({x.isl for x in laws}) < 2 else f"{text(law.config)}, ISL {law.isl}"
        ceiling = number(law.ceiling_tok_s)
        if law.ceiling_ci_tok_s is not None:
            ceiling += f" [{number(law.ceiling_ci_tok_s[0])}, {number(law.ceiling_ci_tok_s[1])}]"
        rows.append([name, number(a), number(b), ceiling, number(law.knee, 2), fit, text(mechanism), tag(d)])
    columns = ["config", "a, ms", "b, ms", "ceiling 1/b, tok/s", "knee a/b", "largest residual", "mechanism", ""]
    return table(columns, rows)


def kernel_table(shares: Sequence[KernelShare], d: VerdictDocument) -> str:
    """One profile: kernels by share, and what no kernel explains."""
    rows = []
    for s in sorted(shares, key=lambda s: -s.share_frac):
        runs_on = text(s.runs_on or "unknown") + (f" ({text(s.evidence)})" if s.evidence else "")
        rows.append([text(s.kernel), text(s.component), share(s.share_frac, s.at_most), runs_on, tag(d)])
    left = max(0.0, 1 - sum(s.share_frac for s in shares))
    rows.append(["unattributed", "", share(left), "", tag(d)])
    return table(["kernel", "component", f"share ({of_what(shares[0].of)})", "runs on (evidence)", ""], rows)


def of_what(denominator: str | None) -> str:
    """What a share is a part of."""
    known = {"sum": "of kernel time", "busy": "of busy time", "span": "of the step"}
    return known.get(denominator or "", "of what, is not told")


def plan_table(items: Sequence[PlanReach], d: VerdictDocument) -> str:
    rows = []
    for i in items:
        speedup = "free (∞)" if i.kernel_speedup is None else f"{times(i.kernel_speedup)}×"
        alone, joint = _ceiling(i.alone_tok_s, i.alone_ratio), _ceiling(i.joint_tok_s, i.joint_ratio)
        named = text(", ".join(i.components))
        rows.append([text(i.name), named, share(i.share_frac), speedup, alone, joint, text(i.effort or DASH), tag(d)])
    columns = ["change", "components", "share", "kernel", "alone at most, tok/s", "with all above", "effort", ""]
    return table(columns, rows)


def _ceiling(tok_s: float | None, ratio: float | None) -> str:
    return "no bound" if tok_s is None or ratio is None else f"{number(tok_s)} (×{number(ratio)})"


def prediction_table(ledger: Sequence[tuple[Prediction, Measured | None]], tags: Mapping[str, str]) -> str:
    """A row a prediction. `tags`: of each comparison by its id."""
    rows = []
    for p, m in ledger:
        measured, source = "not yet", ""
        if m is not None:
            other = "" if m.versus == p.parent else f" vs {text(m.versus)}"
            measured = f"{percent(m.ratio - 1)}{other}"
            source = f" {tags[m.verdict]}"
        lever = "" if p.lever == p.config else f" ({text(p.lever)})"
        metric = "" if p.metric == HEADLINE else f"{text(p.metric)} "
        where = f"{metric}C={p.concurrency}"
        base = text(p.parent or "its parent")
        rows.append(
            [f"{text(p.config)}{lever}", base, where, interval(p), measured, text(outcome(p, m)), f"[{p.id}]{source}"]
        )
    return table(["configuration (lever)", "vs", "at", "predicted", "measured", "", ""], rows)


def interval(p: Prediction) -> str:
    """`+20.0 % to +45.0 %`; of what must stand beside it."""
    return f"{percent(p.low_ratio - 1)} to {percent(p.high_ratio - 1)}"


def outcome(p: Prediction, m: Measured | None) -> str:
    """`open`, `hit (E2)`, `hit, its interval reaches beyond (E2)`, `miss (E0, no interval)`; then its note."""
    if m is None:
        return "open"
    word = f"hit{', its interval reaches beyond' if beyond(p, m) else ''}" if m.hit else "miss"
    grade = f"{m.grade or 'no grade'}{', no interval' if m.ci_ratio is None else ''}"
    return f"{word} ({grade})" + (f"; {m.note}" if m.note else "")


def beyond(p: Prediction, m: Measured) -> bool:
    """A hit whose measured 95 % interval sticks out of the predicted one: the truth may lie outside."""
    return m.hit and m.ci_ratio is not None and (m.ci_ratio[0] < p.low_ratio or m.ci_ratio[1] > p.high_ratio)


def beyond_count(judged: Iterable[tuple[Prediction, Measured]]) -> str:
    """`; of 3 hits the measured 95 % interval reaches beyond the predicted one`; empty for none."""
    n = sum(beyond(p, m) for p, m in judged)
    return (
        f"; of {n} hit{'s' if n > 1 else ''} the measured 95 % interval reaches beyond the predicted one" if n else ""
    )


def grades_of(judged: Sequence[Measured]) -> str:
    """What a count of hits rests on: `grade E0: single launches, no interval`."""
    counts = Counter(m.grade or "not told" for m in judged)
    many = ", ".join(f"{n} {grade}" for grade, n in sorted(counts.items()))
    said = many if len(counts) > 1 else f"grade {next(iter(counts), 'not told')}"
    if "E0" not in counts:
        return said
    return f"{said}{'; E0' if len(counts) > 1 else ''}: single launches, no interval"
