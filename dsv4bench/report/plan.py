"""The plan, published shares, and labels side by side, as tables.

A plan's row says what one change can bring at most and what stands in its way; no figure is a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.breakdown import CaptureNote, Plan, Shift
from dsv4bench.records.shares import SharesDocument
from dsv4bench.report.breakdown_values import DASH, frac, ms, percent, ratio, text_table
from dsv4bench.report.markdown import number, times

OF = {"span": "the step", "busy": "busy time", "sum": "the kernel sum", "unknown": "a time that is not told"}


def plan_table(plan: Plan) -> Table:
    """Targets by what they can gain here; `together` holds all rows above it, free."""
    table = text_table(
        f"Plan{_where(plan)}: at most, never a forecast",
        ["component"],
        [f"of {OF.get(plan.of, plan.of)}", "free", "k", "at k", "together", "tok/s", "together at k"],
        ["binds"],
    )
    for s in plan.steps:
        table.add_row(
            Text(s.component),
            Text(frac(s.share_of_step_frac)),
            Text(ratio(s.bound_ratio)),
            Text(DASH if s.speedup is None else times(s.speedup)),
            Text(DASH if s.target_ratio is None else ratio(s.target_ratio)),
            Text(ratio(s.joint_ratio)),
            Text(DASH if s.joint_tok_s is None else f"{s.joint_tok_s:.1f}"),
            Text(DASH if s.joint_at_k_ratio is None else ratio(s.joint_at_k_ratio)),
            Text(s.binds or "unknown"),
        )
    return table


def plan_lines(plan: Plan, captures: Sequence[CaptureNote] = ()) -> list[str]:
    """The ceiling, the reasons, the residual, and why there is no plan where there is none.

    `captures`: how the labels of a live profile were captured; they tell what the measured figure is.
    """
    lines = [f"no plan{_where(plan)}: {why}" for why in plan.refusals]
    for s in plan.steps:
        source = f"; k: {s.speedup_source}" if s.speedup_source else ""
        lines.append(f"{s.component}: {s.reason or 'nothing tells what binds'}{source}")
    if plan.steps:
        ends = f", {plan.ceiling_tok_s:.0f} tok/s" if plan.ceiling_tok_s is not None else ""
        ends += from_measured(plan, captures) + roof_allows(plan.ceiling_tok_s, plan.roofline_tok_s)
        lines.append(f"ceiling of the whole plan{_where(plan)}: {ratio(plan.ceiling_ratio)}{ends}")
    if plan.at_k_ratio is not None:
        ends = f", {plan.at_k_tok_s:.0f} tok/s" if plan.at_k_tok_s is not None else ""
        ends += roof_allows(plan.at_k_tok_s, plan.roofline_tok_s)
        lines.append(f"with every known k: {ratio(plan.at_k_ratio)}{ends}")
    lines += [*target_lines(plan, plan.roofline_tok_s), *own_notes(plan)]
    if plan.unattributed_frac is not None:
        lines.append(f"unattributed{_where(plan)}: {percent(plan.unattributed_frac)} of {OF.get(plan.of, plan.of)}")
    return lines


def from_measured(plan: Plan, captures: Sequence[CaptureNote] = ()) -> str:
    """` from 4301 tok/s, which is C ÷ the decode step (no prefill in it)` for a capture's own figure.

    Any other figure was measured, and is said to be.
    """
    if plan.measured_tok_s is None:
        return ""
    head = f" from {number(plan.measured_tok_s, 4)} tok/s"
    own = next((c for c in captures if c.label == plan.label and c.output_tok_s == plan.measured_tok_s), None)
    if own is None:
        return f"{head} measured"
    several = own.tokens_a_step is not None and abs(own.tokens_a_step - 1) > 0.005
    tokens = f"C · {own.tokens_a_step:.2f} tokens" if several else "C"
    return f"{head}, which is {tokens} ÷ the decode step (no prefill in it)"


def roof_allows(tok_s: float | None, roofline_tok_s: float | None) -> str:
    """`; the roofline allows 7020 tok/s` where a ceiling lies above what the GPU allows; else nothing."""
    if tok_s is None or roofline_tok_s is None or tok_s <= roofline_tok_s:
        return ""
    return f"; the roofline allows {number(roofline_tok_s)} tok/s"


def target_lines(plan: Plan, roofline_tok_s: float | None) -> list[str]:
    """What the target asks of the step and whether the plan can lead there; none without a target or a figure."""
    if plan.target_tok_s is None or plan.needed_frac is None:
        return []
    head = f"the target of {number(plan.target_tok_s)} tok/s"
    if plan.needed_frac <= 0:
        return [f"{head} is reached at this step time"]
    line = f"{head} needs {100 * plan.needed_frac:.1f} % of the step to vanish"
    if plan.ceiling_tok_s is not None:
        reach = "reaches" if plan.ceiling_tok_s >= plan.target_tok_s else "cannot reach it: it ends at"
        line += f"; the whole plan {reach} {number(plan.ceiling_tok_s)} tok/s at most"
    return [line + roof_allows(plan.ceiling_tok_s or math.inf, roofline_tok_s)]


def own_notes(plan: Plan) -> list[str]:
    """A plan's notes. Files of before 2026-12 also hold the sentence of `target_lines` there."""
    return [n for n in plan.notes if not n.startswith("the target of ")]


def share_tables(document: SharesDocument) -> list[Table]:
    """Shares without a trace, by coordinate, and what they leave unattributed."""
    tables = []
    for config, c in dict.fromkeys((s.config, s.concurrency) for s in document.shares):
        here = [s for s in document.shares if (s.config, s.concurrency) == (config, c)]
        of = " and ".join(dict.fromkeys(s.of for s in here))
        table = text_table(
            f"{config} at C={c}, {'published' if document.published else 'stored'} shares of "
            f"{'a time that is not told' if of == 'unknown' else of}",
            ["kernel", "component"],
            ["share"],
            ["runs on (evidence)"],
        )
        for s in sorted(here, key=lambda s: -s.share_frac):
            evidence = "" if s.evidence is None else f" ({s.evidence})"
            share = ("<" if s.at_most else "") + frac(s.share_frac)
            table.add_row(Text(s.kernel), Text(s.component), Text(share), Text(f"{s.runs_on or 'unknown'}{evidence}"))
        left = 1 - sum(s.share_frac for s in here)
        table.add_row(Text("unattributed"), "", Text(frac(max(0.0, left))), "")
        tables.append(table)
    return tables


def shift_tables(shifts: Sequence[Shift]) -> list[Table]:
    """Time a step under two labels, one table a pair."""
    tables = []
    for base, new in dict.fromkeys((s.base_label, s.new_label) for s in shifts):
        names = (base or "base", new or "new")
        table = text_table(
            f"One decode step, {names[1]} against {names[0]}",
            ["component"],
            [f"{names[0]} ms", f"{names[1]} ms", "change ms", "ratio", f"{names[0]} share", f"{names[1]} share"],
            [],
        )
        for s in shifts:
            if (s.base_label, s.new_label) == (base, new):
                table.add_row(
                    Text(s.component),
                    Text(ms(s.base_ns)),
                    Text(ms(s.new_ns)),
                    Text(DASH if s.delta_ns is None else f"{s.delta_ns / 1e6:+.3f}"),
                    Text(DASH if s.ratio is None else ratio(s.ratio)),
                    Text(frac(s.base_share_frac)),
                    Text(frac(s.new_share_frac)),
                )
        tables.append(table)
    return tables


def _where(plan: Plan) -> str:
    label = f" of {plan.label}" if plan.label else ""
    return label + (f" at C={plan.concurrency}" if plan.concurrency is not None else "")
