"""report.md: a report's short sections as Markdown for a pull request; tables and sentences, no HTML, no charts."""

from __future__ import annotations

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.markdown import bullets, text
from dsv4bench.report.page import sections
from dsv4bench.report.page.blocks import Block, Fold, Lines, Table

FENCE = "~" * 8  # longer than any run that is left in a log


def markdown(r: ReportInput) -> str:
    """The whole file."""
    parts = [f"# {text(sections.title(r))}", "\n".join(f"{text(line)}  " for line in sections.subtitle(r)).rstrip()]
    for s in sections.sections(r):
        if s.short:
            shown = [found for b in s.blocks if (found := _block(b))]
            parts.append("\n\n".join([f"## {s.title}", *shown]))
    return "\n\n".join(parts) + "\n"


def _block(b: Block) -> str:
    """Empty for a figure, and for what the page shows on demand only."""
    if isinstance(b, Lines):
        return bullets(text(item) for item in b.items if item)
    if isinstance(b, Table):
        return _table(b)
    if isinstance(b, Fold) and b.short:
        return _fold(b)
    return ""


def _table(t: Table) -> str:
    """Text to the left, figures to the right."""
    sides = ["---" if i < t.text_columns or i in t.prose else "---:" for i in range(len(t.head))]
    rows = [[text(h) for h in t.head], sides, *([text(c) for c in row] for row in t.rows)]
    return "\n".join([text(t.caption), "", *(f"| {' | '.join(row)} |" for row in rows)])


def _fold(f: Fold) -> str:
    parts = [f"**{text(f.summary)}**"]
    if f.lines:
        parts.append(bullets(text(line) for line in f.lines))
    if f.log is not None:
        parts.append(f"{FENCE}\n{f.log.replace('~~~', '~ ~ ~')}\n{FENCE}")
    if f.table is not None:
        parts.append(_table(f.table))
    return "\n\n".join(parts)
