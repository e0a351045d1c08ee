"""Markdown as findings need it: tables, figures with base and unit, and text that cannot break out of either."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

DASH = "–"
WIDTH = 118
# No line begins with what Markdown takes for a list or a heading; a tag and a percent sign stay with their number.
_KEPT_BACK = re.compile(r" (?=(?:[-+*>#=]+|\d+[.)])(?: |$)|\[[vp][:0-9a-f]|%)")
_BELOW_ZERO = re.compile(r"(?<![\w.,-])-(?=\d[\d.,]*(?:…-\d[\d.]*)? ?(?:%|points))|(?<=\d…)-(?=\d[\d.]* ?%)")
_GLUE = "\0"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A pipe table; the first column is text, the others are figures. Cells are taken as Markdown already."""
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    return "\n".join([*lines, *(_row(r) for r in rows)])


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def wrapped(lines: Iterable[str], indent: str = "") -> str:
    """As `bullets`, each cut at spaces to lines of at most `WIDTH` characters; a longer word stays whole."""
    return "\n".join(_wrapped(line, f"{indent}- ", f"{indent}  ") for line in lines)


def paragraph(line: str) -> str:
    """One line of text, cut as in `wrapped`."""
    return _wrapped(line, "", "")


def _wrapped(line: str, first: str, further: str) -> str:
    glued = _KEPT_BACK.sub(_GLUE, " ".join(minus(line).split()))
    cut = textwrap.fill(
        glued,
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return cut.replace(_GLUE, " ")


def text(value: object) -> str:
    """Foreign text inside a line or a cell: one line, no table bar, no tag and no comment."""
    plain = " ".join(str(value).split())
    for mark, shown in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "\\`"), ("*", "\\*")):
        plain = plain.replace(mark, shown)
    return plain


def percent(frac: float | None) -> str:
    """`+46.7 %`, `−5.8 %`; of what must stand beside it."""
    if frac is None:
        return DASH
    shown = f"{100 * frac:.1f}"
    if float(shown) == 0:
        return "0.0 %"
    return f"{'−' if frac < 0 else '+'}{shown.lstrip('-')} %"


def share(frac: float, at_most: bool = False) -> str:
    """`38 %`, `&lt;1 %`."""
    return f"{'&lt;' if at_most else ''}{100 * frac:.3g} %"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits, never an exponent."""
    if value is None:
        return DASH
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def times(value: float) -> str:
    """`2.57`, `26.0`, `2480`: a ratio in three significant digits, never an exponent; whole ones as given."""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:.3g}" if value == int(value) else f"{value:#.3g}".rstrip(".")


def minus(line: str) -> str:
    """A percentage below zero with the sign that `percent` writes; `--port -1` and names stay as they are."""
    return _BELOW_ZERO.sub("−", line)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
