"""The configuration table, the verdicts, the levers and the laws of one comparison, as terminal text.

One table, a column a concurrency, a row a configuration: absolute figures, and under each the change with its
base named. Then, worst first, what may be said of it. Words carry the verdicts; every percentage names its base.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import (
    CellVerdict,
    LeverVerdict,
    ScalingLaw,
    SpecVerdict,
    Verdict,
    VerdictDocument,
)
from dsv4bench.report import foretold
from dsv4bench.report.target import goal_lines

DASH = "–"
_WORST_FIRST = (
    Verdict.NOT_COMPARABLE,
    Verdict.CONTRADICTION,
    Verdict.LOSS,
    Verdict.UNRESOLVED,
    None,
    Verdict.TRIVIAL,
    Verdict.NO_EFFECT,
    Verdict.GAIN,
)

Place = tuple[int, float, int]  # (concurrency, rate, isl), sortable; -1 where there is none


def configuration_table(arms: Sequence[Arm], document: VerdictDocument, metric: str = "output_tok_s") -> Table:
    """Figures of `metric` (geometric mean of the valid cells), and the change against parent and baseline."""
    places = sorted({_place(c) for arm in arms for c in arm.cells})
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.add_column(f"{metric}")
    for place in places:
        table.add_column(_head(place, places), justify="right", no_wrap=True)
    for arm in arms:
        table.add_row(Text(_arm_name(arm)), *(Text(_value(arm, place, metric)) for place in places))
        for versus in ("parent", "baseline"):
            row = [v for v in document.cells if (v.config, v.versus, v.metric) == (arm.name, versus, metric)]
            if not row or (versus == "baseline" and _same_base(arm, document, metric)):
                continue
            by_place = {_place(v): v for v in row}
            cells = [Text(_change(by_place[p]) if p in by_place else DASH) for p in places]
            table.add_row(Text(f"  Δ vs {row[0].versus_name}"), *cells)
    return table


def comparison_lines(document: VerdictDocument) -> list[str]:
    """Everything under the tables, a heading a part; parts with nothing to say are left out."""
    laws = document.scaling.laws if document.scaling is not None else []
    parts = (
        ("Verdicts, worst first", verdict_lines(document)),
        ("Levers", lever_lines(document.levers)),
        ("Speculative decoding", speculation_lines(document.speculation)),
        ("Scaling", law_lines(laws) + prediction_lines(document)),
        ("Target", goal_lines(document.goal)),
        ("Claims", claim_lines(document)),
        ("Notes", document.notes),
    )
    lines: list[str] = []
    for head, found in parts:
        if found:
            lines += [head, *(f"  {line}" for line in found), ""]
    if document.id is not None:
        lines.append(f"verdict {document.id}")
    return lines


def verdict_lines(document: VerdictDocument, metrics: Iterable[str] | None = None) -> list[str]:
    """Every verdict in words, the worst first; what holds for several levels of one step is said once, under them."""
    wanted = None if metrics is None else set(metrics)
    steps: dict[tuple[str, str, str], dict[Place, CellVerdict]] = {}
    for v in document.cells:
        if wanted is None or v.metric in wanted:
            steps.setdefault((v.config, v.versus_name, v.metric), {}).setdefault(_place(v), v)
    worst = sorted(steps.values(), key=lambda step: min(_rank(v) for v in step.values()))
    lines: list[str] = []
    for step in worst:
        said = [set(_reasons(v)) for v in step.values()]
        common = set.intersection(*said) if len(said) > 1 else set()
        lines += _step_lines(sorted(step.values(), key=lambda v: (_rank(v), _place(v))), common)
        lines += [f"    {reason}" for reason in _reasons(next(iter(step.values()))) if reason in common]
    return lines


def _step_lines(step: Sequence[CellVerdict], said_once: set[str]) -> list[str]:
    """A line a level; levels without a verdict, for the same reason, share one."""
    alike: dict[tuple[str | None, str, str], list[CellVerdict]] = {}
    for v in step:
        plain = v.verdict is None and v.delta_frac is not None and v.ci_frac is None
        own = "; ".join(part for part in _reasons(v) if part not in said_once and part not in _delta(v))
        key = (v.grade, v.bound_note or "", own) if plain else (None, _where(v), str(v.isl))
        alike.setdefault(key, []).append(v)
    several = len({v.isl for v in step}) > 1
    return [
        _line(same[0], said_once) if len(same) == 1 else _shared(same, said_once, several) for same in alike.values()
    ]


def _shared(same: Sequence[CellVerdict], said_once: set[str], several: bool) -> str:
    """`no verdict (E0): B vs A, output_tok_s: C=1 +20.4 %, C=4 +2.7 %`, with the isl where there are several."""
    v = same[0]
    levels = []
    for one in same:
        isl = f" ISL {one.isl}" if several else ""
        sd = f" (sd {100 * one.spread_frac[0]:.1f} and {100 * one.spread_frac[1]:.1f} %)" if one.spread_frac else ""
        levels.append(f"{_where(one).removeprefix('at ')}{isl}{_delta(one)}{sd}")
    head = f"no verdict ({v.grade or 'no data'}): {v.config} vs {v.versus_name}, {v.metric}: {', '.join(levels)}"
    return head + _bound_and_reason(v, said_once)


def _delta(v: CellVerdict) -> str:
    return "" if v.delta_frac is None else f" {_percent(v.delta_frac, 'points' if v.in_points else '%')}"


def _rank(v: CellVerdict) -> int:
    return _WORST_FIRST.index(v.verdict)


def _reasons(v: CellVerdict) -> list[str]:
    return [part for part in v.reason.split("; ") if part]


def lever_lines(levers: Sequence[LeverVerdict]) -> list[str]:
    lines = []
    for lever in levers:
        names = ", ".join(lever.levers) or "not named"
        lines.append(f"{lever.config} vs {lever.parent}: lever {names}: {lever.status}")
        if lever.extra_keys:
            lines.append(f"  other keys differ too: {_differences(lever, lever.extra_keys)}")
        elif lever.differing:
            lines.append(f"  recorded difference: {_differences(lever, list(lever.differing))}")
        lines += [f"  {note}" for note in lever.notes]
    return lines


def speculation_lines(found: Sequence[SpecVerdict]) -> list[str]:
    lines = []
    for s in found:
        ratio = f"throughput x{s.throughput_ratio:.2f}"
        figures = ""
        if ratio not in s.reason:
            steps = DASH if s.step_time_ratio is None else f"x{s.step_time_ratio:.2f}"
            tokens = f"{_number(s.tokens_per_step_base)} -> {_number(s.tokens_per_step)}"
            figures = f"tokens a step {tokens}, step with prefill {steps}, {ratio}: "
        lines.append(f"{s.config} vs {s.base} at C={s.concurrency}: {figures}{s.state} ({s.reason})")
    return lines


def law_lines(laws: Sequence[ScalingLaw]) -> list[str]:
    lines = []
    for law in laws:
        if law.a_s is None or law.b_s is None:
            lines.append(f"{law.config}: no scaling law: {'; '.join(law.notes) or 'too few levels'}")
            continue
        residuals = ", ".join(f"C={c} {100 * r:+.1f} %" for c, r in law.residuals_frac.items())
        ceiling = f"ceiling {law.ceiling_tok_s:.1f} tok/s" if law.ceiling_tok_s else "no ceiling in sight"
        interval = f" [{law.ceiling_ci_tok_s[0]:.1f}, {law.ceiling_ci_tok_s[1]:.1f}]" if law.ceiling_ci_tok_s else ""
        knee = f", knee at C={law.knee:.1f}" if law.knee is not None else ""
        holds = "" if law.holds else "; the law does NOT hold"
        lines.append(
            f"{law.config}: step time {1e3 * law.a_s:.1f} + {1e3 * law.b_s:.2f}·C ms, {ceiling}{interval}{knee} "
            f"({law.n_launches} launch(es); residuals {residuals}{holds})"
        )
        if law.plateau is not None:
            lines.append(f"  {law.plateau.text}")
        if law.mechanism is not None:
            lines.append(f"  mechanism: {law.mechanism.name}: {'; '.join(law.mechanism.evidence) or 'no evidence'}")
        for c, roof in law.roofline_tok_s.items():
            lines.append(f"  roofline at C={c}: {roof:.0f} tok/s")
        lines += [f"  {note}" for note in law.notes]
    return lines


def prediction_lines(document: VerdictDocument) -> list[str]:
    """What the law of the base foretold for speculation, beside what was measured."""
    lines = []
    for p in document.scaling.predictions if document.scaling is not None else []:
        found = p.measured_tok_s
        measured = "not measured" if found is None else foretold.beside(document.scaling, p, f"{found:.1f}")
        lines.append(
            f"{p.config} foretold from {p.base} at C={p.concurrency} (m={p.verified}, AL={p.accept_length:.2f}): "
            f"{p.predicted_tok_s:.1f} tok/s, {measured}"
        )
    return lines


def claim_lines(document: VerdictDocument) -> list[str]:
    """What a text said, and what the data say of it."""
    lines = []
    for c in document.claims:
        lines.append(f'{c.claim}: {str(c.state).upper()}: "{c.said}"')
        lines += [f"  {found}" for found in c.found]
        if c.action:
            lines.append(f"  to settle it: {c.action}")
    return lines


def _line(v: CellVerdict, said_once: set[str]) -> str:
    word = str(v.verdict) if v.verdict is not None else f"no verdict ({v.grade or 'no data'})"
    grade = f" [{v.grade}]" if v.grade is not None and v.verdict is not None else ""
    unit = "points" if v.in_points else "%"
    change = _delta(v)
    ci = v.ci_frac
    interval = f" [{_percent(ci[0], unit)}, {_percent(ci[1], unit)}]" if ci is not None else ""
    spread = v.spread_frac
    sd = (
        f" (sd {100 * spread[0]:.1f} % of the base, {100 * spread[1]:.1f} % of the new)" if spread is not None else ""
    )
    head = f"{v.config} vs {v.versus_name}, {v.metric} {_where(v)}"
    return f"{word}{grade}: {head}{change}{interval}{sd}{_bound_and_reason(v, said_once)}"


def _bound_and_reason(v: CellVerdict, said_once: set[str]) -> str:
    """`; at most …; …`, or `: …` where the reason stands alone. Older documents repeat the change in it."""
    reason = "; ".join(part for part in _reasons(v) if part not in said_once and part not in _delta(v))
    return "".join(
        (f"; {v.bound_note}" if v.bound_note else "", f"{'; ' if v.bound_note else ': '}{reason}" if reason else "")
    )


def _change(v: CellVerdict) -> str:
    if v.delta_frac is None:
        return str(v.verdict) if v.verdict is not None else DASH
    word = str(v.verdict) if v.verdict is not None else str(v.grade or "")
    return f"{_percent(v.delta_frac)} {word}".rstrip()


def _value(arm: Arm, place: Place, metric: str) -> str:
    found = [c for c in arm.cells if _place(c) == place]
    valid = [c for c in found if c.invalid is None] or found
    values = [v for c in valid if (v := getattr(c, metric, None)) is not None]
    if not values:
        return DASH
    about = "~" if any(metric in c.approximate for c in valid) else ""
    invalid = " INVALID" if found and all(c.invalid is not None for c in found) else ""
    mean = statistics.geometric_mean(values) if all(v > 0 for v in values) else statistics.fmean(values)
    if metric.endswith("_s") and not metric.endswith("tok_s"):
        return f"{about}{1e3 * mean:.2f} ms{invalid}"
    return f"{about}{mean:.1f}{invalid}"


def _same_base(arm: Arm, document: VerdictDocument, metric: str) -> bool:
    bases = {v.versus_name for v in document.cells if v.config == arm.name and v.metric == metric}
    return len(bases) == 1 and any(v.versus == "parent" for v in document.cells if v.config == arm.name)


def _place(x: Cell | CellVerdict) -> Place:
    return (
        -1 if x.concurrency is None else x.concurrency,
        -1.0 if x.rate_req_s is None else x.rate_req_s,
        x.isl,
    )


def _head(place: Place, places: Sequence[Place]) -> str:
    c, rate, isl = place
    load = f"C={c}" if c >= 0 else f"{rate:g} req/s"
    return load + (f" ISL {isl}" if len({p[2] for p in places}) > 1 else "")


def _where(v: CellVerdict) -> str:
    return f"at C={v.concurrency}" if v.concurrency is not None else f"at {v.rate_req_s:g} req/s"


def _arm_name(arm: Arm) -> str:
    lever = f" (+ {' + '.join(arm.levers)})" if arm.levers else ""
    return f"{arm.name}{lever}"


def _differences(lever: LeverVerdict, keys: Sequence[str]) -> str:
    parts = []
    for key in keys:
        both = lever.differing.get(key, [None, None])
        parts.append(f"{key} {' -> '.join('not set' if v is None else repr(v) for v in both)}")
    return "; ".join(parts)


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def _percent(frac: float, unit: str = "%") -> str:
    return f"{100 * frac:+.1f} {unit}"
