"""Scaling: what does a step cost at the least, what does each sequence add, and why does throughput stop growing?"""

from __future__ import annotations

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.verdict import ScalingLaw
from dsv4bench.report import foretold
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page.blocks import Block, Lines, Table, missing
from dsv4bench.report.page.words import figure


def blocks(r: ReportInput) -> list[Block]:
    scaling = r.verdict.scaling if r.verdict is not None else None
    if scaling is None or not scaling.laws:
        return [missing("No scaling law: it is fitted by dsv4bench compare, from three levels on.")]
    found: list[Block] = [_law_table(scaling.laws)]
    said = _sentences(scaling.laws)
    if said:
        found.append(Lines(said))
    if scaling.predictions:
        rows = [
            [
                p.config,
                f"C={p.concurrency}",
                f"{figure(p.predicted_tok_s)}",
                "not measured" if p.measured_tok_s is None else figure(p.measured_tok_s),
                DASH if p.measured_tok_s is None else f"{100 * (p.predicted_tok_s / p.measured_tok_s - 1):+.1f} %",
                f"law of {p.base}, {p.verified} tokens verified a step, acceptance length {p.accept_length:.2f}",
            ]
            for p in scaling.predictions
        ]
        words = " or ".join(dict.fromkeys(foretold.against(scaling, p) for p in scaling.predictions))
        head = ["configuration", "level", "predicted, tok/s", f"{words}, tok/s", "off, of the latter", "from"]
        found.append(Table(f"Predicted from the base alone, and {words}", head, rows, text_columns=2, prose=(5,)))
    return found


def name(law: ScalingLaw, several: bool) -> str:
    return f"{law.config}, ISL {law.isl}" if several else law.config


def _sentences(laws: list[ScalingLaw]) -> list[str]:
    """Plateau, mechanism and what was said of the fit; a sentence that holds for several configurations once."""
    said: dict[str, list[str]] = {}
    several = len({x.isl for x in laws}) > 1
    for law in laws:
        for sentence in [*_findings(law), *law.notes]:
            said.setdefault(sentence, []).append(name(law, several))
    return [f"{', '.join(of)}: {sentence}" for sentence, of in said.items()]


def _findings(law: ScalingLaw) -> list[str]:
    found = [law.plateau.text] if law.plateau is not None else []
    if law.mechanism is not None:
        m = law.mechanism
        evidence = "; ".join(m.evidence) or "no evidence was recorded"
        ruled_out = f" Ruled out: {'; '.join(m.excluded)}." if m.excluded else ""
        found.append(f"mechanism: {m.name} ({evidence}).{ruled_out}")
    return found


def _law_table(laws: list[ScalingLaw]) -> Table:
    several = len({x.isl for x in laws}) > 1
    rows = []
    for law in laws:
        worst = max((abs(v) for v in law.residuals_frac.values()), default=None)
        fit = DASH if worst is None else f"{100 * worst:.1f} %"
        rows.append(
            [
                name(law, several),
                {True: "holds", False: "rejected", None: "not fitted"}[law.holds],
                DASH if law.a_s is None else figure(1e3 * law.a_s, 3),
                DASH if law.b_s is None else figure(1e3 * law.b_s, 3),
                _ranged(law.ceiling_tok_s, law.ceiling_ci_tok_s),
                _ranged(law.knee, law.knee_ci),
                fit,
                str(law.n_launches),
            ]
        )
    head = [
        "configuration",
        "law",
        "a, ms",
        "b, ms",
        "ceiling 1/b, tok/s",
        "knee a/b, C",
        "largest residual",
        "launches",
    ]
    return Table("Step time t(C) = a + b·C; 95 % intervals over launches", head, rows, text_columns=2)


def _ranged(value: float | None, ci: tuple[float, float] | None) -> str:
    if value is None:
        return DASH
    return figure(value, 3) if ci is None else f"{figure(value, 3)} [{figure(ci[0], 3)}, {figure(ci[1], 3)}]"
