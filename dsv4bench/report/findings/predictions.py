"""Section 8 of the findings: what was predicted beside what was measured, and the reasoning written down before.

The reasoning of a miss is what a reader learns from, so it stands first, with both figures; the others follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.report.findings import tables as tables
from dsv4bench.report.markdown import percent, share, text, wrapped

Ledger = Sequence[tuple[Prediction, Measured | None]]


def predictions(ledger: Ledger, tags: Mapping[str, str]) -> str:
    """`tags`: of each comparison by its id."""
    if not ledger:
        return "No prediction was written before a lever was run (`dsv4bench predict`)."
    judged = [(p, m) for p, m in ledger if m is not None]
    grades = f" ({tables.grades_of([m for _, m in judged])}{tables.beyond_count(judged)})" if judged else ""
    rate = f"{sum(m.hit for _, m in judged)} of {len(judged)} hit{grades}; {len(ledger) - len(judged)} open."
    missed = [(p, m) for p, m in ledger if m is not None and not m.hit]
    others = [(p, m) for p, m in ledger if (m is None or m.hit) and _why(p)]
    parts = [tables.prediction_table(ledger, tags), rate]
    if missed:
        parts.append(
            "Missed, with the reasoning that was written before:\n\n" + wrapped(_miss(p, m, tags) for p, m in missed)
        )
    if others:
        parts.append(
            "The reasoning of the others:\n\n" + wrapped(f"{_what(p)}: {_why(p)} [{p.id}]" for p, _ in others)
        )
    return "\n\n".join(parts)


def _miss(p: Prediction, m: Measured, tags: Mapping[str, str]) -> str:
    interval = "" if m.ci_ratio is None else f" [{percent(m.ci_ratio[0] - 1)}, {percent(m.ci_ratio[1] - 1)}]"
    why = _why(p) or "no reasoning was written"
    source = f"[{p.id}] {tags[m.verdict]}"
    measured = f"measured {percent(m.ratio - 1)}{interval}"
    return f"{_what(p)}: {tables.interval(p)} was predicted (“{why}”), {measured} {source}"


def _what(p: Prediction) -> str:
    """`both+mtp vs both at C=16`."""
    metric = "" if p.metric == tables.HEADLINE else f"{text(p.metric)} of "
    return f"{metric}{text(p.config)} vs {text(p.parent or 'its parent')} at C={p.concurrency}"


def _why(p: Prediction) -> str:
    """As it was written; of one from kernel shares, the shares."""
    if p.note:
        return text(p.note)
    if p.share_frac is None or p.kernel_speedup is None:
        return ""
    whole = f"{share(p.share_frac)} ({tables.of_what(p.share_of)})"
    return f"{text(p.component)} is {whole} and gets {p.kernel_speedup:g}× faster"
