"""The plan: how far is the target, and how far can what was named lead at most? Upper bounds, no forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv4bench.records.breakdown import BreakdownDocument, CaptureNote, Plan, PlanStep
from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.goal import Goal, GoalReport
from dsv4bench.report.findings.tables import of_what
from dsv4bench.report.markdown import DASH, times
from dsv4bench.report.page import drawing
from dsv4bench.report.page.blocks import Block, Figure, Key, Lines, Row, Table, missing
from dsv4bench.report.page.words import figure, part
from dsv4bench.report.plan import OF, from_measured, own_notes, roof_allows, target_lines
from dsv4bench.report.target import cut

BAR = 36


def blocks(r: ReportInput) -> list[Block]:
    found: list[Block] = []
    goal = r.verdict.goal if r.verdict is not None else None
    if goal is not None:
        found.append(Lines([target_line(goal), *_conditions(goal)]))
        if goal.items:
            found += [*_figure(goal), _table(goal)]
    elif r.campaign is not None and r.campaign.goal is not None:
        found.append(missing(f"{_wanted(r.campaign.goal)}: no comparison is stored that says how far it is."))
    else:
        found.append(missing("No target is set."))
    for b in r.breakdowns:
        for plan in b.plans:
            found += _kernel_plan(b, plan, _roofline(r, b.config, plan))
    return found


def target_line(g: GoalReport) -> str:
    """`1,000 tok/s at C=16 from baseline (…) needs ×3.76: 73.4 % of … must vanish.`, or why that cannot be told."""
    head = f"{figure(g.target_tok_s)} tok/s at C={g.concurrency} from {g.config}"
    if g.measured_tok_s is None:
        return f"{head}: {g.why or 'that level was not measured'}."
    measured = f"{figure(g.measured_tok_s)} tok/s measured"
    if g.needed_ratio is not None and g.needed_ratio <= 1:
        return f"{head}: reached ({measured})."
    needs = f" needs ×{figure(g.needed_ratio, 3)}" if g.needed_ratio is not None else ""
    if g.needed_cut_frac is not None:
        needs += f": {cut(g)} must vanish"
    return f"{head} ({measured}){needs}." + (f" {g.why}." if g.why else "")


def _conditions(g: GoalReport) -> list[str]:
    found = []
    if g.items and g.reached is not None:
        last = g.items[-1]
        most = "without bound" if last.joint_tok_s is None else f"at most {figure(last.joint_tok_s, 3)} tok/s"
        can = "can reach" if g.reached else "cannot reach"
        roof = roof_allows(last.joint_tok_s, g.roofline_tok_s)
        found.append(f"The whole plan leads to {most}: it {can} the target{roof}.")
    if g.unattributed_frac is not None:
        found.append(f"Unattributed at C={g.concurrency}: {part(g.unattributed_frac)} {of_what(g.of)}.")
    if g.roofline_tok_s is not None:
        found.append(f"Roofline at C={g.concurrency}: {figure(g.roofline_tok_s, 3)} tok/s ({g.roofline_note}).")
    elif g.roofline_note:
        found.append(f"No roofline: {g.roofline_note}.")
    return found


def _wanted(g: Goal) -> str:
    return f"Target {figure(g.output_tok_s)} tok/s at C={g.concurrency} from {g.config}"


def _figure(g: GoalReport) -> list[Block]:
    rows: list[Row] = []
    if g.measured_tok_s is not None:
        rows.append(
            {"step": "measured", "tok_s": g.measured_tok_s, "label": figure(g.measured_tok_s, 3), "kind": "measured"}
        )
    for i, item in enumerate(g.items):
        if item.joint_tok_s is not None:
            head = item.name if i == 0 else f"+ {item.name}"
            label = f"at most {figure(item.joint_tok_s, 3)}"
            rows.append({"step": head, "tok_s": item.joint_tok_s, "label": label, "kind": "bound"})
    if len(rows) < 2:
        return []
    target: list[Row] = [{"tok_s": g.target_tok_s, "label": f"target {figure(g.target_tok_s)}"}]
    height = BAR * len(rows) + 74

    def draw(data: Mapping[str, Sequence[Row]]) -> Any:
        return _chart(data, height - 74)

    return [
        Figure(
            id="plan-reach",
            title=f"How far the plan leads at C={g.concurrency}",
            see="The first bar was measured. Each further bar is the most that its change can bring with all above "
            "it; the line is the target. A plan whose last bar ends before the line cannot reach it.",
            rows={"steps": rows, "target": target},
            draw=draw,
            table=Table(
                f"Output tok/s at C={g.concurrency}",
                ["step", "output tok/s", "what it is"],
                [
                    *([str(row["step"]), figure(row["tok_s"]), str(row["kind"])] for row in rows),
                    ["target", figure(g.target_tok_s), "wanted"],
                ],
                prose=(2,),
            ),
            keys=[Key("part", 0, "measured"), Key("part", 8, "upper bound")],
            height=height,
            wide=True,
        )
    ]


def _chart(rows: Mapping[str, Sequence[Row]], height: int) -> Any:
    import altair as alt

    order = [str(row["step"]) for row in rows["steps"]]
    most = max(row["tok_s"] for part_ in rows.values() for row in part_)
    x = alt.X(
        "tok_s:Q",
        title="output tok/s",
        scale=alt.Scale(domain=[0, most * 1.12], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    y = alt.Y("step:N", sort=order, title=None, axis=alt.Axis(labelLimit=130), scale=alt.Scale(paddingInner=0.35))
    pad = [f"no component {i}" for i in range(7)]
    color = alt.Color("kind:N", scale=alt.Scale(domain=["measured", *pad, "bound"], range="ordinal"), legend=None)
    tips = ["step:N", alt.Tooltip("tok_s:Q", format=".4r", title="output tok/s"), "kind:N"]
    steps, target = alt.Chart(drawing.data(rows, "steps")), alt.Chart(drawing.data(rows, "target"))
    chart = alt.layer(
        steps.mark_bar().encode(x=x, y=y, color=color, tooltip=tips),
        steps.mark_text(align="left", dx=6, style="ink").encode(x=x, y=y, text="label:N"),
        target.mark_rule(strokeWidth=2, strokeDash=[6, 3], style="ink").encode(x=x),
        target.mark_text(align="right", dx=-6, dy=-8, baseline="bottom", style="ink").encode(
            x=x, y=alt.value(0), text="label:N"
        ),
    )
    return chart.properties(width="container", height=height)


def _table(g: GoalReport) -> Table:
    rows = [
        [
            i.name,
            ", ".join(i.components) or DASH,
            part(i.share_frac),
            "free (no kernel is)" if i.kernel_speedup is None else f"{times(i.kernel_speedup)}× faster",
            _most(i.alone_tok_s, i.alone_ratio),
            _most(i.joint_tok_s, i.joint_ratio),
            i.effort or DASH,
        ]
        for i in g.items
    ]
    head = ["change", "components", "share", "kernel", "alone at most, tok/s", "with all above, tok/s", "effort"]
    return Table(f"The plan; shares {of_what(g.of)} at C={g.concurrency}", head, rows, text_columns=2)


def _most(tok_s: float | None, ratio: float | None) -> str:
    return "no bound" if tok_s is None or ratio is None else f"{figure(tok_s, 3)} (×{figure(ratio, 3)})"


def _roofline(r: ReportInput, config: str | None, plan: Plan) -> float | None:
    """By the comparison where it knows one, as elsewhere on the page; else by the profile."""
    laws = r.verdict.scaling.laws if r.verdict is not None and r.verdict.scaling is not None else []
    known = [law.roofline_tok_s.get(str(plan.concurrency)) for law in laws if law.config == config]
    return min((x for x in known if x is not None), default=plan.roofline_tok_s)


def _kernel_plan(b: BreakdownDocument, plan: Plan, roofline_tok_s: float | None) -> list[Block]:
    """What a profile alone says would be worth changing, and what it refuses to say."""
    where = f"{b.config or plan.label or 'a profile'}" + (f" at C={plan.concurrency}" if plan.concurrency else "")
    found: list[Block] = []
    if plan.steps:
        rows = [_plan_row(s) for s in plan.steps]
        head = ["component", f"share of {OF.get(plan.of, plan.of)}", "free", "at k", "together, free", "binds", "why"]
        found.append(Table(f"From the profile of {where}: at most, never a forecast", head, rows, prose=(5, 6)))
    return [*found, Lines([f"{where}: {line}" for line in _said(plan, b.captures, roofline_tok_s)], "note")]


def _said(plan: Plan, captures: Sequence[CaptureNote], roofline_tok_s: float | None) -> list[str]:
    """The ceiling, what is unattributed, and why there is no plan where there is none."""
    lines = [f"no plan: {why}" for why in plan.refusals]
    measured = from_measured(plan, captures)
    for what, ratio, tok_s in (
        ("everything that the plan names, free", plan.ceiling_ratio, plan.ceiling_tok_s),
        ("with every known k", plan.at_k_ratio, plan.at_k_tok_s),
    ):
        if ratio is not None:
            roof = roof_allows(tok_s, roofline_tok_s)
            ends = f", {figure(tok_s, 3)} tok/s{measured}{roof}" if tok_s is not None else ""
            measured = ""  # said once
            lines.append(f"{what}: at most ×{figure(ratio, 3)}{ends}")
    if plan.unattributed_frac is not None:
        lines.append(f"unattributed: {part(plan.unattributed_frac)} of {OF.get(plan.of, plan.of)}")
    return [*lines, *target_lines(plan, roofline_tok_s), *own_notes(plan)]


def _plan_row(s: PlanStep) -> list[str]:
    k = DASH if s.speedup is None else times(s.speedup)
    at_k = (
        DASH
        if s.target_ratio is None
        else f"×{figure(s.target_ratio, 3)} (k={k}, {s.speedup_source or 'source not told'})"
    )
    free = "no bound" if s.bound_ratio is None else f"×{figure(s.bound_ratio, 3)}"
    joint = _most(s.joint_tok_s, s.joint_ratio) if s.joint_tok_s is not None else DASH
    return [s.component, part(s.share_of_step_frac), free, at_k, joint, s.binds or "unknown", s.reason or DASH]
