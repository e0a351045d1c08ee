"""The decode steps of a breakdown as terminal text: one step by component, and what else is known of them."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from dsv4bench.records.breakdown import Steps
from dsv4bench.report.breakdown_values import frac, ms, number, text_table

OVERLAP = "overlap of components"


def steps_table(steps: Steps) -> Table:
    """One decode step: the median of each component; `alone` is what the plan rests on."""
    where = f" of {steps.label}" if steps.label else ""
    table = text_table(
        f"Decode step{where}, median of {steps.count} (found by {steps.method})",
        ["component"],
        ["alone ms", "of step", "kernels ms", "launches"],
        [],
    )
    for c in steps.components:
        table.add_row(
            Text(c.component),
            Text(ms(c.exclusive_median_ns)),
            Text(frac(c.share_of_step_frac)),
            Text(ms(c.median_ns)),
            Text(number(c.launches)),
        )
    for name, ns in (
        (OVERLAP, steps.overlap_median_ns),
        ("copies alone", steps.copy_only_median_ns),
        ("idle", steps.idle_median_ns),
        ("step", steps.median_ns),
    ):
        share = ns / steps.median_ns if ns is not None and steps.median_ns else None
        table.add_row(
            Text(name), Text(ms(ns)), Text(frac(share)), "", Text(number(steps.launches)) if name == "step" else ""
        )
    return table


def steps_lines(steps: Steps) -> list[str]:
    """What else is known of the steps."""
    where = f"{steps.label}: " if steps.label else ""
    if not steps.count:
        return [f"{where}no decode step was found; shares are of the whole file"]
    if steps.median_ns is None:
        return [f"{where}{steps.count} decode steps are too few for a median; shares are of the whole file"]
    parts = [f"step {ms(steps.median_ns)} ms"]
    if steps.iqr_ns is not None:
        parts.append(f"middle half {ms(steps.iqr_ns[0])} to {ms(steps.iqr_ns[1])} ms")
    for value, what in (
        (steps.batch, "sequences a step"),
        (steps.layers, "layers"),
        (steps.launches, "kernels"),
        (steps.graph_launches, "graph launches"),
    ):
        if value is not None:
            parts.append(f"{number(value)} {what}")
    apart = [f"{n} {what}" for n, what in ((steps.prefill_steps, "prefill"), (steps.mixed_steps, "mixed")) if n]
    if apart:
        parts.append(f"set apart: {' and '.join(apart)} steps")
    return [f"{where}{', '.join(parts)}"]
