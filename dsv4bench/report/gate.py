"""A gate's verdict on one screen: the outcome and its mode first, then the cells, the worst first, then the notes.

Changes are of the baseline. `could see` is the smallest loss that this gate would have failed four times in five: a
PASS of a gate that could see nothing says so by itself. Words carry the outcome; seconds become milliseconds here.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.metrics import BY_NAME
from dsv4bench.records.gate import GateCell, GateDocument, Outcome, SelfTestDocument

DASH = "–"
HEADS = ("level", "metric", "baseline", "candidate", "change", "interval", "limit", "could see", "n", "outcome")
MAX_ROWS = 24
MAX_LINES = 12
WORST_FIRST = (Outcome.NOT_COMPARABLE, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)


def worst_first(cells: Sequence[GateCell]) -> list[GateCell]:
    """By outcome, then by how much worse in the metric's own direction."""
    return sorted(cells, key=lambda c: (WORST_FIRST.index(c.outcome), _goodness(c)))


def headline(d: GateDocument) -> str:
    """The outcome, what was held against what, and what it rests on."""
    outcome = d.outcome or "no verdict"
    return f"{outcome}: {d.candidate} vs baseline {d.baseline}" + (f" ({d.baseline_id})" if d.baseline_id else "")


def basis(d: GateDocument) -> str:
    """How it was judged, and how much of what should have been compared was."""
    if d.error is not None:
        return f"nothing was judged: {d.error.message}"
    if d.mode is None:
        return f"compared 0 of {d.n_expected} cells: integrity failed, no statistics were made"
    compared = f"compared {d.n_compared} of {d.n_expected} cells"
    alpha = f"α {d.alpha or 0:.3g}" + (f" (0.05 over {d.looks} looks)" if (d.looks or 1) > 1 else "")
    if d.mode == "paired":
        pairs = min((c.n for c in d.cells), default=0)
        return f"{compared}; paired mode: {pairs} pairs of launches, {alpha}"
    noise = f"σ launch {d.sigma_launch_frac or 0:.1%} ({d.sigma_source}), σ day {d.sigma_day_frac or 0:.1%}"
    return f"{compared}; stored mode: single launches, {noise}, {alpha}; paired launches would see smaller changes"


def gate_table(cells: Sequence[GateCell]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in HEADS:
        table.add_column(head, no_wrap=True, justify="left" if head in ("level", "metric", "outcome") else "right")
    for c in worst_first(cells)[:MAX_ROWS]:
        table.add_row(*map(Text, _row(c)))
    return table


def print_gate(d: GateDocument, console: Console) -> None:
    lines = [headline(d), basis(d), *shortened(d.integrity)]
    for line in lines:
        _say(console, line)
    if d.cells:
        console.print(gate_table(d.cells))
        if len(d.cells) > MAX_ROWS:
            _say(console, f"… and {len(d.cells) - MAX_ROWS} cells more, none worse than these")
    failing = [c for c in worst_first(d.cells) if c.outcome is not Outcome.PASS]
    for line in shortened([f"{c.outcome} {label(c)}: {c.reason}" for c in failing]):
        _say(console, line)
    for note in [*(f"override: {o}" for o in d.overrides), *d.notes]:
        _say(console, f"note: {note}")


def print_self_test(d: SelfTestDocument, console: Console) -> None:
    _say(console, f"gate self-test on {d.source}: {sum(c.seen for c in d.cases)} of {len(d.cases)} seen")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("", "put in", "must say", "said", "reason"):
        table.add_column(head, no_wrap=True)
    for c in d.cases:
        said = str(c.outcome) if c.outcome else "an error"
        table.add_row(*map(Text, ("seen" if c.seen else "MISSED", c.name, str(c.expected), said, c.reason)))
    console.print(table)
    for note in d.notes:
        _say(console, f"note: {note}")


def label(c: GateCell) -> str:
    """`output_tok_s C=16 ISL 1024`."""
    load = f"C={c.concurrency}" if c.concurrency is not None else f"{c.rate_req_s or 0:g} req/s"
    return f"{c.metric} {load} ISL {c.isl}"


def change(c: GateCell) -> str:
    return DASH if c.delta_frac is None else f"{c.delta_frac:+.1%}"


def shortened(lines: Sequence[str]) -> list[str]:
    """A screenful, and how many were left out."""
    return [*lines[:MAX_LINES], *([f"… and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else [])]


def _row(c: GateCell) -> list[str]:
    interval = DASH if c.ci_frac is None else f"[{c.ci_frac[0]:+.1%}, {c.ci_frac[1]:+.1%}]"
    level = label(c).removeprefix(f"{c.metric} ")
    seen = DASH if c.could_see_frac is None else f"{c.could_see_frac:.1%}"
    figures = (value(c.metric, c.base), value(c.metric, c.new), change(c), interval, f"{c.limit_frac:.0%}", seen)
    return [level, c.metric, *figures, str(c.n), str(c.outcome)]


def value(metric: str, x: float | None) -> str:
    """In display units."""
    if x is None:
        return DASH
    return f"{1e3 * x:.4g} ms" if BY_NAME[metric].unit == "s" else f"{x:.4g} {BY_NAME[metric].unit}"


def _goodness(c: GateCell) -> float:
    sign = 1 if BY_NAME[c.metric].direction == "higher" else -1
    return sign * (c.delta_frac or 0.0)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
