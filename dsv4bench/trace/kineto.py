"""torch-profiler (Kineto) JSON and JSON.gz of 2021 to 2026 -> `KernelTrace`, one rank a file.

start = floor(ts) and end = start + floor(dur), in ns of the decimal text. Files are read as far as they can be, in
bounded memory, and what was left out is said in the trace's warnings. A file without work on a device is refused
with its cause. Nothing of the environment that a file may hold is kept.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4bench.errors import UsageError
from dsv4bench.records.trace import KernelTrace, Source
from dsv4bench.trace.blocks import blocks
from dsv4bench.trace.kineto_absence import refuse_if_empty, warn_if_partial
from dsv4bench.trace.kineto_halves import collect, collect_halves
from dsv4bench.trace.kineto_meta import devices, facts, rank_of
from dsv4bench.trace.kineto_scan import Scanner


def read_kineto(path: Path, label: str | None = None) -> KernelTrace:
    """The timeline of one rank. Raises Unanswerable when the file shows no work on a device, with the cause."""
    warnings: list[str] = []
    try:
        with _no_collection():
            found = collect_halves(path, warnings) or collect(Scanner(blocks(path, warnings), warnings))
    except OSError as why:
        raise UsageError(f"{path}: cannot be read ({why.strerror or why})", "give a file that you may read") from why
    collector, meta = found.collector, found.meta
    contents = collector.contents(meta, found.lists, found.damaged)
    warnings += collector.warnings()
    refuse_if_empty(str(path), contents, warnings)
    warnings += warn_if_partial(contents)
    rank, world_size = rank_of(meta, path.name)
    return collector.timeline.build(
        str(path),
        Source.KINETO,
        label,
        devices=devices(meta),
        facts=facts(meta),
        warnings=warnings,
        rank=rank,
        world_size=world_size,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """A batch makes a hundred thousand tuples and no cycle; looking for cycles takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
