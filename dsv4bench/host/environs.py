"""What variables a process and its children were started with, by name: where only a worker has one, it counts.

Linux only. Nothing is read but the variables that are asked for. A process that changed its own environment later
still shows what it was started with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dsv4bench.host.listening import PROC


def variables_of(pid: int, names: Sequence[str], proc: Path = PROC) -> dict[str, str | None] | None:
    """The values of those that are set: of the process, else of its nearest descendant that has one.

    None as a value: set nowhere that could be read, and some descendant could not be. None: the process itself
    cannot be read (another user's, gone, or not Linux).
    """
    own = _environment(proc / str(pid), names)
    if own is None:
        return None
    found: dict[str, str | None] = {**own}
    hidden = False
    if len(found) < len(names):
        for child in _descendants(pid, proc):
            inner = _environment(proc / str(child), names)
            hidden = hidden or inner is None
            found = {**(inner or {}), **found}
    if hidden:
        found |= {name: None for name in names if name not in found}
    return found


def _environment(folder: Path, names: Sequence[str]) -> dict[str, str] | None:
    try:
        raw = (folder / "environ").read_bytes()
    except OSError:
        return None
    pairs = (part.decode(errors="replace").partition("=") for part in raw.split(b"\0") if b"=" in part)
    return {name: value for name, _, value in pairs if name in names}


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
    try:  # "pid (name, with any characters) state ppid …"
        return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
