"""A text file that people and a generator share: prose is kept as it is, blocks between markers are the generator's.

    <!-- dsv4bench:begin id=levers sha=0123456789ab -->
    …
    <!-- dsv4bench:end -->

`sha` is of the block's body as it was written, so a hand in it shows; a body that differs from what the data give
now is stale. A block that the file does not have yet goes below the heading of its section, or to the end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from dsv4bench.errors import UsageError

BEGIN = re.compile(r"<!--\s*dsv4bench:begin\s+id=(\S+)\s+sha=([0-9a-f]+)\s*-->")
END = re.compile(r"<!--\s*dsv4bench:end\s*-->")
ANY = re.compile(r"<!--\s*dsv4bench:")
SHA_DIGITS = 12


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One generated block, and the heading it stands under."""

    id: str
    heading: str  # a whole Markdown line, "## 3 Configurations"
    body: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A block in a file: its lines [start, end) markers included, its body and whether a hand was in it."""

    id: str
    start: int
    end: int
    body: str
    edited: bool


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file is not what the data give."""

    id: str
    kind: Literal["edited", "stale", "missing", "unknown"]
    line: int | None

    @property
    def text(self) -> str:
        where = f", line {self.line}" if self.line is not None else ""
        why = {
            "edited": "was edited by hand",
            "stale": "is stale: the data give something else",
            "missing": "is missing",
            "unknown": "is none that the data give",
        }[self.kind]
        return f"block {self.id}{where} {why}"


def sha(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:SHA_DIGITS]


def find(text: str, where: str) -> list[Found]:
    """Every block, in order. Raises UsageError with the line of a marker that is broken, doubled or alone."""
    found: list[Found] = []
    lines, _ = _split(text)
    start, head = 0, None
    for n, line in enumerate(lines):
        begin, end = BEGIN.fullmatch(line.strip()), END.fullmatch(line.strip())
        if begin is not None:
            if head is not None:
                raise _broken(where, n, f"block {begin[1]} begins inside block {head[1]}")
            if any(f.id == begin[1] for f in found):
                raise _broken(where, n, f"block {begin[1]} stands there twice")
            start, head = n, begin
        elif end is not None:
            if head is None:
                raise _broken(where, n, "an end without its begin")
            body = "\n".join(lines[start + 1 : n])
            found.append(Found(id=head[1], start=start, end=n + 1, body=body, edited=sha(body) != head[2]))
            head = None
        elif ANY.search(line):
            raise _broken(where, n, f"a marker that cannot be read: {line.strip()}")
    if head is not None:
        raise _broken(where, start, f"block {head[1]} has no end")
    return found


def problems(text: str, blocks: Sequence[Block], where: str) -> list[Problem]:
    """What keeps the file from being up to date; none: it is."""
    found = {f.id: f for f in find(text, where)}
    wanted = {b.id: b for b in blocks}
    result = []
    for f in found.values():
        line = f.start + 1
        if f.edited:
            result.append(Problem(id=f.id, kind="edited", line=line))
        elif f.id not in wanted:
            result.append(Problem(id=f.id, kind="unknown", line=line))
        elif f.body != wanted[f.id].body:
            result.append(Problem(id=f.id, kind="stale", line=line))
    return result + [Problem(id=b.id, kind="missing", line=None) for b in blocks if b.id not in found]


def merge(text: str, blocks: Sequence[Block], where: str) -> str:
    """The file with every block as the data give it now, and every other byte as it was.

    Raises UsageError when a block was edited by hand; its text would be lost.
    """
    found = find(text, where)
    edited = [f for f in found if f.edited]
    if edited:
        named = ", ".join(f"{f.id} (line {f.start + 1})" for f in edited)
        raise UsageError(
            f"{where}: edited by hand: block {named}",
            "move your text outside the markers and delete the block, markers included; it is then written anew",
        )
    lines, newline = _split(text)
    wanted = {b.id: b for b in blocks}
    for f in reversed(found):
        if f.id in wanted:
            lines[f.start : f.end] = _written(wanted[f.id])
    present = {f.id for f in found}
    for b in blocks:
        if b.id not in present:
            lines = _inserted(lines, b)
    joined = newline.join(lines)
    return joined if joined.endswith(newline) else joined + newline


def _split(text: str) -> tuple[list[str], str]:
    """Lines, and what ends them; only line feeds end a line, whatever else Unicode calls a line break."""
    newline = "\r\n" if "\r\n" in text else "\n"
    return text.split(newline), newline


def _written(b: Block) -> list[str]:
    return [f"<!-- dsv4bench:begin id={b.id} sha={sha(b.body)} -->", *b.body.split("\n"), "<!-- dsv4bench:end -->"]


def _inserted(lines: list[str], b: Block) -> list[str]:
    """Below its heading (after a block of the same section that stands there already), or at the end with it."""
    at = next((n for n, line in enumerate(lines) if line.strip() == b.heading), None)
    if at is None:
        gap = [""] if lines and lines[-1].strip() else []
        return [*lines, *gap, b.heading, "", *_written(b)]
    level = len(b.heading) - len(b.heading.lstrip("#"))
    end = next((n for n in range(at + 1, len(lines)) if _level(lines[n]) in range(1, level + 1)), len(lines))
    last = next((n for n in range(end - 1, at, -1) if END.fullmatch(lines[n].strip())), at)
    return [*lines[: last + 1], "", *_written(b), *_spaced(lines[last + 1 :])]


def _spaced(rest: list[str]) -> list[str]:
    return rest if not rest or not rest[0].strip() else ["", *rest]


def _level(line: str) -> int:
    return len(line) - len(line.lstrip("#")) if re.match(r"#+ ", line) else 0


def _broken(where: str, n: int, what: str) -> UsageError:
    return UsageError(f"{where}:{n + 1}: {what}", "mend the markers: begin id=… sha=…, body, end")
