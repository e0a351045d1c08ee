"""What variables a process and its children were started with, by name: where only a worker has one, it counts.

Linux only. Nothing is read but the variables that are asked for. A process that changed its own environment later
still shows what it was started with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dsv4bench.host.listening import PROC, environment_of
from dsv4bench.host.process import stat_cells


def variables_of(pid: int, names: Sequence[str], proc: Path = PROC) -> dict[str, str | None] | None:
    """The values of those that are set: of the process, else of its nearest descendant that has one.

    None as a value: set nowhere that could be read, and some descendant could not be. None: the process itself
    cannot be read (another user's, gone, or not Linux).
    """
    own = environment_of(proc / str(pid), names)
    if own is None:
        return None
    found: dict[str, str | None] = {**own}
    hidden = False
    if len(found) < len(names):
        for child in _descendants(pid, proc):
            inner = environment_of(proc / str(child), names)
            hidden = hidden or inner is None
            found = {**(inner or {}), **found}
    if hidden:
        found |= {name: None for name in names if name not in found}
    return found


def _descendants(pid: int, proc: Path) -> Iterator[int]:
    """Children before grandchildren."""
    children: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*"):
        if (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    level = sorted(children.get(pid, []))
    while level:
        yield from level
        level = sorted(c for one in level for c in children.get(one, []))


def _parent(folder: Path) -> int | None:
    cells = stat_cells(folder) or []
    return int(cells[1]) if len(cells) > 1 else None
