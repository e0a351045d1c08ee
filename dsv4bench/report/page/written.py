"""One way to write figures on a page, whoever made the sentence: the sign below zero, thousands, and no exponent.

Sentences come from comparisons, profiles and cells, some of them stored long ago. Logs, commands and server arguments
stay as they are: a minus sign is set before a percentage alone, commas before tok/s, GB/s and in a ratio.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dsv4bench.report.markdown import minus, times
from dsv4bench.report.page.blocks import Block, Figure, Fold, Lines, Section, Table

_EXPONENT = re.compile(r"(?<![\w.])(?:(x|k=)(\d(?:\.\d+)?e\+\d\d)|(\d(?:\.\d+)?e\+\d\d)(?= tok/s))(?!\w)")
_COUNT = re.compile(r"(?<![\w.,-])(\d{4,9})(?=(?:\.\d+)?(?: tok/s| GB/s|×))")
_RATIO = re.compile(r"(?<![\w.])(x|k=)(\d{4,9})(?![\w.])")
_RANGE = re.compile(r"(tok/s,? (?:95 % CI )?)\[(\d+), (\d+)\]")


def written(s: Section) -> Section:
    """The section with all its text in one style."""
    return replace(s, blocks=[_block(b) for b in s.blocks])


def typeset(line: str) -> str:
    """`-3.4%` -> `−3.4%`, `2296 tok/s` -> `2,296 tok/s`, `x2.48e+03` -> `x2,480`."""
    line = _EXPONENT.sub(lambda m: f"{m[1] or ''}{float(times(float(m[2] or m[3]))):,.0f}", line)
    line = _RANGE.sub(lambda m: f"{m[1]}[{int(m[2]):,}, {int(m[3]):,}]", line)
    line = _COUNT.sub(lambda m: f"{int(m[1]):,}", line)
    line = _RATIO.sub(lambda m: f"{m[1]}{int(m[2]):,}", line)
    return minus(line)


def _block(b: Block) -> Block:
    if isinstance(b, Lines):
        return replace(b, items=[typeset(x) for x in b.items])
    if isinstance(b, Table):
        return _table(b)
    if isinstance(b, Fold):
        return replace(b, lines=[typeset(x) for x in b.lines], table=None if b.table is None else _table(b.table))
    assert isinstance(b, Figure)
    return replace(b, table=_table(b.table))


def _table(t: Table) -> Table:
    return replace(t, caption=typeset(t.caption), rows=[[typeset(c) for c in row] for row in t.rows])
