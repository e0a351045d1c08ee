"""A big plain Kineto file read by two processes: this one takes the first half, a second one the rest.

The cut is where one event seems to end and the next begins. What stands for the rest in the first half is a last
event of a category of our own: when the strict scanner meets it as the last event of the only list, the cut lies
between two events, and the rest goes on in that list; then both halves together are what one pass would have found,
in its order. In every other case (text that is not as typed, a cut inside an argument, a process that dies) there is
no result, and the caller reads the file in one pass. The columns come through a pipe, so both processes stay small.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from dsv4bench.trace.blocks import GZIP_MAGIC, span
from dsv4bench.trace.kineto_collect import Collector, Counts
from dsv4bench.trace.kineto_events import Event
from dsv4bench.trace.kineto_scan import BOUNDARY, NotAsTyped, Scanner

SMALLEST = 64 << 20  # below it a second process costs more than it saves
_HEAD_START = 12 << 20  # bytes read here while the other process starts
_WINDOW = 4 << 20
_MARK = "dsv4bench: the other half"
_END = b',{"ph":"X","cat":"' + _MARK.encode() + b'"}]'
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*([\[{])")
_CODE = "import sys; sys.path[:] = sys.argv[3:]; from dsv4bench.trace.kineto_halves import send; send(*sys.argv[1:3])"


class Found(NamedTuple):
    """What a scanner and its collector say of a file, or of a part of it."""

    collector: Collector
    meta: dict[str, object]
    lists: int
    damaged: bool


class _Sent(NamedTuple):
    """What goes ahead of the columns in the pipe."""

    counts: Counts
    names: tuple[list[str], list[str]]
    lengths: list[int]
    meta: dict[str, object]
    lists: int
    damaged: bool
    warnings: list[str]


class _Cut(NamedTuple):
    end: int  # of the last event of the first half
    start: int  # of the first event of the rest
    is_list: bool  # at the top level


def collect(scanner: Scanner) -> Found:
    """One pass. Raises OSError, and NotAsTyped when the scanner is strict."""
    collector = Collector()
    for batch in scanner.batches():
        collector.take(batch)
    return Found(collector, scanner.meta, scanner.lists, scanner.cut_off or scanner.left_out > 0)


def collect_halves(path: Path, warnings: list[str]) -> Found | None:
    """The same as `collect` of the file, sooner; None when the file or this machine is not made for it."""
    if not sys.executable or _cores() < 2 or path.stat().st_size < SMALLEST or (cut := _cut(path)) is None:
        return None
    command = [sys.executable, "-c", _CODE, str(path), f"{cut.start},{int(cut.is_list)}", *sys.path]
    try:
        other = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1 << 20
        )
    except OSError:
        return None
    with other:
        try:
            first = _first_half(path, cut.end)
            assert other.stdout is not None
            return _joined(first, other.stdout, warnings) if first is not None else None
        except (NotAsTyped, EOFError, pickle.UnpicklingError):
            return None
        finally:
            other.kill()


def send(path: str, cut: str) -> None:
    """What the second process does: reads the rest, and writes it to its output. It dies of what is not as typed."""
    import gc

    gc.disable()
    start, is_list = (int(number) for number in cut.split(","))
    opening = b"[" if is_list else b'{"traceEvents":['
    warnings: list[str] = []
    found = collect(Scanner(chain([opening], span(Path(path), start, None)), warnings, strict=True))
    timeline = found.collector.timeline
    columns = timeline.columns()
    lengths = [len(column) for column in columns]
    sent = _Sent(found.collector.counts, timeline.names(), lengths, found.meta, found.lists, found.damaged, warnings)
    pickle.dump(sent, sys.stdout.buffer, 5)
    for column in columns:
        sys.stdout.buffer.write(memoryview(column))
    sys.stdout.buffer.flush()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cut(path: Path) -> _Cut | None:
    with path.open("rb") as file:
        opening = _OPENING.match(file.read(1024))
        middle = path.stat().st_size // 2 + min(_HEAD_START, SMALLEST // 8)
        file.seek(middle)
        text = file.read(_WINDOW)
    if opening is None or opening.group().startswith(GZIP_MAGIC):
        return None
    found = next((m for m in BOUNDARY.finditer(text) if b'"ph"' in m.group()), None) or BOUNDARY.search(text)
    if found is None:
        return None
    return _Cut(middle + found.start() + 1, middle + found.end(1), opening.group(1) == b"[")


def _first_half(path: Path, end: int) -> Found | None:
    """The events before the cut; None when it is no cut between two events of the only list."""
    warnings: list[str] = []
    scanner = Scanner(chain(_without_mark(span(path, 0, end)), [_END]), warnings, strict=True)
    collector, last = Collector(), None
    for batch in scanner.batches():
        last = batch[-1]
        collector.take(batch[:-1] if _is_end(last) else batch)
    good = last is not None and _is_end(last) and scanner.lists == 1 and not scanner.left_out
    return Found(collector, scanner.meta, 1, False) if good and len(warnings) == scanner.cut_off else None


def _is_end(event: Event) -> bool:
    return event.cat == _MARK


def _without_mark(raw: Iterator[bytes]) -> Iterator[bytes]:
    yield next(raw, b"").removeprefix(b"\xef\xbb\xbf")
    yield from raw


def _joined(first: Found, pipe: IO[bytes], warnings: list[str]) -> Found:
    """Both halves. Raises EOFError when the second one has not come whole."""
    sent: _Sent = pickle.load(pipe)
    first.collector.append(sent.counts, sent.names, _received(pipe, sent.lengths, first.collector))
    warnings += sent.warnings
    return Found(first.collector, {**first.meta, **sent.meta}, sent.lists, sent.damaged)


def _received(pipe: IO[bytes], lengths: list[int], collector: Collector) -> Iterator[array[int]]:
    for like, length in zip(collector.timeline.columns(), lengths, strict=True):
        column = array(like.typecode)
        text = pipe.read(length * column.itemsize)
        if len(text) < length * column.itemsize:
            raise EOFError
        column.frombytes(text)
        yield column
