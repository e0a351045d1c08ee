"""Blocks that a report is made of: plain text, tables, figures and logs, with nothing said of how they are drawn.

Every string here is plain text, foreign or not: whoever renders a block escapes all of it. A figure carries the rows
that it draws, the table that says the same in numbers, and the function that makes its chart; only the HTML page
calls that function, so that Markdown needs no plotting library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]  # what one mark is drawn from; flat, ready for JSON
Draw = Callable[[Mapping[str, Sequence[Row]]], Any]  # rows by name -> an Altair chart


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption. The first `text_columns` columns and those in `prose` are text, the others figures."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    prose: Sequence[int] = ()
    strong: int | None = None  # the column that is read first


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: colour `index` of the palette `kind`, and the words that it stands for."""

    kind: str  # config | part | plain
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart. `rows` by the name of the data set; `see` says what to look for; `height` is in CSS pixels."""

    id: str
    title: str
    see: str
    rows: Mapping[str, Sequence[Row]]
    draw: Draw
    table: Table
    keys: Sequence[Key] = ()
    height: int = 300
    wide: bool = False  # never beside another one


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, one a line. `kind`: list, or note (smaller, for conditions and what is missing)."""

    items: Sequence[str]
    kind: str = "list"


@dataclass(frozen=True, slots=True)
class Fold:
    """What is there on demand: a summary, and lines, a log's text or a table below it."""

    summary: str
    lines: Sequence[str] = ()
    log: str | None = None
    table: Table | None = None
    short: bool = False  # it belongs in the Markdown of a pull request, too


Block = Table | Figure | Lines | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """One question of the report. `short`: it belongs in the Markdown of a pull request, too."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    short: bool = False


def missing(why: str) -> Lines:
    """Where a figure or a table would stand."""
    return Lines([why], "note")
