"""Parity on one screen: a line a kernel, then every case that failed, with how far off it is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.kernels import ParityDocument, ParityRow
from dsv4bench.report import markdown
from dsv4bench.report.kernels_device import facts, title

DASH = "–"
MAX_FAILED = 20
HEADS = ("kernel", "parity", "passed", "failed", "skipped", "relative error", "limit", "worst element", "text")


def print_parity(d: ParityDocument, console: Console) -> None:
    _say(console, f"parity on {title(d.device)}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(HEADS):
        table.add_column(head, no_wrap=True, justify="left" if i in (0, 1) else "right")
    for row in _summary(d):
        table.add_row(*map(Text, row))
    console.print(table)
    for line in (*_failures(d.rows, MAX_FAILED), *_unchecked(d), *d.notes):
        _say(console, line)


def parity_markdown(d: ParityDocument) -> str:
    """The summary, and every case of every kernel."""
    parts = [
        f"# Kernel parity: {title(d.device)}",
        f"{d.created_utc}, dsv4bench {d.tool}. {facts(d.device)}.",
        markdown.table(HEADS, [[markdown.text(c) for c in row] for row in _summary(d)]),
        *(
            markdown.bullets(map(markdown.text, lines))
            for lines in (_failures(d.rows, len(d.rows)), d.notes)
            if lines
        ),
    ]
    for kernel in d.code:
        rows = [r for r in d.rows if r.kernel == kernel]
        cells = [(markdown.text(r.case), r.outcome, *_figures(r), markdown.text(r.why or "")) for r in rows]
        head = ("case", "outcome", "relative error", "limit", "worst element", "worst lse", "why")
        parts += [f"## {kernel}", markdown.table(head, cells)]
    return "\n\n".join(parts) + "\n"


def verdict(d: ParityDocument, kernel: str) -> str:
    """green, RED, or why it is neither."""
    if kernel in d.green:
        return "green"
    return "RED" if kernel in d.red else "nothing checked"


def _summary(d: ParityDocument) -> list[list[str]]:
    lines = []
    for kernel, code in d.code.items():
        rows = [r for r in d.rows if r.kernel == kernel]
        count = {outcome: sum(r.outcome == outcome for r in rows) for outcome in ("pass", "fail", "skipped")}
        known = [r for r in rows if r.rel_fro is not None]
        top = max(known, key=lambda r: (r.rel_fro or 0.0) / (r.rel_fro_limit or 1.0), default=None)
        worst = max((r.worst for r in rows if r.worst is not None), default=None)
        lines.append(
            [
                kernel,
                verdict(d, kernel),
                *(str(count[outcome]) for outcome in ("pass", "fail", "skipped")),
                _small(None if top is None else top.rel_fro),
                _small(None if top is None else top.rel_fro_limit),
                DASH if worst is None else f"{worst:.2f}",
                code,
            ]
        )
    return lines


def _failures(rows: Sequence[ParityRow], most: int) -> list[str]:
    bad = [r for r in rows if r.outcome == "fail"]
    lines = [f"RED {r.kernel}, {r.case}: {r.why or 'beyond its limit'}" for r in bad[:most]]
    return [*lines, *([f"… and {len(bad) - most} more"] if len(bad) > most else [])]


def _unchecked(d: ParityDocument) -> list[str]:
    """Kernels of which every case was skipped, with the first reason."""
    lines = []
    for kernel in d.code:
        rows = [r for r in d.rows if r.kernel == kernel]
        if rows and all(r.outcome == "skipped" for r in rows):
            lines.append(f"{kernel}: not checked: {rows[0].why or 'no reason told'}")
    return lines


def _figures(r: ParityRow) -> list[str]:
    worst = [DASH if v is None else f"{v:.3f}" for v in (r.worst, r.lse_worst)]
    return [_small(r.rel_fro), _small(r.rel_fro_limit), *worst]


def _small(value: float | None) -> str:
    return DASH if value is None else f"{value:.1e}"


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
