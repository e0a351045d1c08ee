"""How far a plan can lead, beside the target and the roofline, in lines. Every figure is an upper bound."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.records.goal import GoalReport
from dsv4bench.report.markdown import times


def goal_lines(goal: GoalReport | None) -> list[str]:
    """What the plan reaches, item by item, beside the target."""
    if goal is None:
        return []
    measured = "not measured" if goal.measured_tok_s is None else f"{goal.measured_tok_s:.1f} tok/s measured"
    head = f"{goal.target_tok_s:.0f} tok/s at C={goal.concurrency} from {goal.config} ({measured})"
    needs = "" if goal.needed_cut_frac is None else f"needs {cut(goal)} to vanish"
    lines = [": ".join([head, "; ".join(filter(None, [needs, goal.why]))]) if needs or goal.why else head]
    for item in goal.items:
        speed = "free" if item.kernel_speedup is None else f"{times(item.kernel_speedup)}x faster"
        joint = "without bound" if item.joint_tok_s is None else f"at most {item.joint_tok_s:.0f} tok/s"
        alone = "without bound" if item.alone_tok_s is None else f"{item.alone_tok_s:.0f} tok/s"
        head = f"{item.name} {speed} ({100 * item.share_frac:.0f} % of the step)"
        lines.append(f"{head}: alone {alone}, with all before it {joint}")
    return lines + _limits(goal)


def cut(goal: GoalReport) -> str:
    """`73.4 % of the 60.1 ms that a token of each of the 16 takes, prefill in it,`: C over the output throughput.

    It is longer than a decode step: in a closed loop the prefill of other requests lies in it.
    """
    frac = max(0.0, goal.needed_cut_frac or 0.0)
    time = "time" if goal.step_s is None else f"{1e3 * goal.step_s:.1f} ms"
    whose = "a token" if goal.concurrency == 1 else f"a token of each of the {goal.concurrency}"
    return f"{100 * frac:.1f} % of the {time} that {whose} takes, prefill in it,"


def how_reached(launches: Sequence[float], target_tok_s: float) -> str:
    """In which launches a configuration is at or over the target, where its average is. `launches`: tok/s of each."""
    if not launches:
        return "on the average (its launches are not at hand)"
    if len(launches) == 1:
        return "in one launch"
    n = sum(x >= target_tok_s for x in launches)
    if n == len(launches):
        return f"in each of {n} launches"
    return f"on the average, not in every launch ({n} of {len(launches)}),"


def _limits(goal: GoalReport) -> list[str]:
    """What the plan ends at, what the GPU would allow, and what is missing between them and the target."""
    lines = []
    if goal.items:
        last = goal.items[-1].joint_tok_s
        if last is None:
            lines.append("the whole plan makes everything free: it bounds nothing")
        elif last >= goal.target_tok_s:
            lines.append(f"the whole plan: at most {last:.0f} tok/s, which allows the target")
        else:
            missing = f"x{goal.target_tok_s / last:.3g} is missing beyond it"
            lines.append(f"the whole plan: at most {last:.0f} tok/s; {missing}")
    if goal.roofline_tok_s is not None:
        roof = goal.roofline_tok_s
        word = "allows" if roof >= goal.target_tok_s else "does NOT allow"
        now = "" if goal.measured_tok_s is None else f"; measured is {100 * goal.measured_tok_s / roof:.2g} % of it"
        of = f" ({goal.roofline_note})" if goal.roofline_note else ""
        lines.append(f"roofline there: {roof:.0f} tok/s{of}: the GPU {word} the target{now}")
    elif goal.roofline_note:
        lines.append(f"no roofline there: {goal.roofline_note}")
    return lines
