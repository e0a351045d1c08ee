"""A gate's verdict for GitHub Actions: annotations on the log, a step summary in Markdown.

GitHub shows ten errors a step: the nine worst cells get one each, the tenth rolls up the rest. Workflow commands are
one line each, so %, CR and LF are escaped, and in a property : and , as well; a summary may hold one MiB.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.records.gate import GateCell, GateDocument, Outcome
from dsv4bench.report.gate import basis, change, headline, label, value, worst_first

MAX_ANNOTATIONS = 9
MAX_SUMMARY_BYTES = 1 << 20
MAX_ROWS = 200
MAX_NOTES = 30
MAX_NOTE_CHARS = 500


def workflow_commands(d: GateDocument) -> list[str]:
    """Workflow commands: at most nine and one roll-up; a PASS gets one notice."""
    if d.outcome is Outcome.PASS:
        return [_command("notice", "gate PASS", f"{headline(d)}; {basis(d)}")]
    found = [("NOT COMPARABLE", text) for text in d.integrity]
    found += [
        (f"{c.outcome} {label(c)}", f"{change(c)} vs {d.baseline}: {c.reason}")
        for c in worst_first(d.cells)
        if c.outcome is not Outcome.PASS
    ]
    rest = len(found) - MAX_ANNOTATIONS
    roll_up = f"{headline(d)}; {basis(d)}" + (f"; {rest} more are in the summary" if rest > 0 else "")
    shown = [_command("error", f"gate {title}", text) for title, text in found[:MAX_ANNOTATIONS]]
    return [*shown, _command("error", f"gate {d.outcome or 'ERROR'}", roll_up)]


def summary(d: GateDocument) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY."""
    lines = [f"### gate {d.outcome or 'ERROR'}", "", _cell(headline(d)), "", _cell(basis(d)), ""]
    if d.error is not None and d.error.hint:
        lines += [_cell(d.error.hint), ""]
    lines += _bullets(d.integrity)
    if d.cells:
        lines += ["| level and metric | baseline | candidate | change | limit | could see | outcome | reason |"]
        lines += ["|---|--:|--:|--:|--:|--:|---|---|"]
        lines += [_row(c) for c in worst_first(d.cells)[:MAX_ROWS]]
        lines += [f"\n… and {len(d.cells) - MAX_ROWS} cells more"] if len(d.cells) > MAX_ROWS else []
        lines += [""]
    lines += _bullets([*(f"override: {o}" for o in d.overrides), *d.notes])
    text = "\n".join(lines) + "\n"
    return text.encode()[:MAX_SUMMARY_BYTES].decode(errors="ignore")


def _bullets(texts: Sequence[str]) -> list[str]:
    shown = [f"- {_cell(t)}" for t in texts[:MAX_NOTES]]
    more = [f"- … and {len(texts) - MAX_NOTES} more"] if len(texts) > MAX_NOTES else []
    return [*shown, *more, ""] if texts else []


def _row(c: GateCell) -> str:
    seen = "–" if c.could_see_frac is None else f"{c.could_see_frac:.1%}"
    figures = (value(c.metric, c.base), value(c.metric, c.new), change(c), f"{c.limit_frac:.0%}", seen)
    outcome = str(c.outcome) if c.outcome is Outcome.PASS else f"**{c.outcome}**"
    return "| " + " | ".join(map(_cell, (label(c), *figures))) + f" | {outcome} | {_cell(c.reason)} |"


def _cell(text: str) -> str:
    """One line of text that Markdown shows as it is."""
    plain = " ".join(text.split())
    for mark in "\\`*_|[]<>#":
        plain = plain.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, "\\" + mark))
    return plain if len(plain) <= MAX_NOTE_CHARS else plain[:MAX_NOTE_CHARS].rstrip("\\") + "…"


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
