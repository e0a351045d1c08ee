"""results/index.jsonl: one line an experiment, so that listing a thousand of them opens one file.

A line is appended when an experiment ends; where an id stands twice, its last line counts. The folders are the
truth: the index only saves opening them, and may be torn, stale or gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dsv4bench.records.codec import encode
from dsv4bench.records.experiment import IndexEntry
from dsv4bench.store import files, lines

NAME = "index.jsonl"


def read(root: Path) -> dict[str, IndexEntry]:
    """What the index says, by id; a damaged line is as good as none."""
    return {e.id: e for e in lines.read(root / NAME, IndexEntry, [])}


def written_ns(root: Path) -> int:
    """When the index was last written; 0 when there is none."""
    try:
        return (root / NAME).stat().st_mtime_ns
    except OSError:
        return 0


def append(root: Path, entry: IndexEntry, safe: files.Safe = files.nothing) -> None:
    """Add or replace one experiment's line. Raises StoreError; then only listing is slower."""
    appender = files.Appender(root / NAME)
    try:
        # No tail is cut here: another sweep may be appending. A torn line is ended, and dropped by every reader.
        newline = b"" if appender.ends_a_line() else b"\n"
        appender.append(newline + encode(entry) + b"\n", safe=safe)
    finally:
        appender.close()


def rewrite(root: Path, entries: Iterable[IndexEntry]) -> None:
    """The whole index anew, one line an id."""
    files.write_whole(root / NAME, b"".join(encode(e) + b"\n" for e in entries))
