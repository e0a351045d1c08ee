"""Which process of this host listens on a port, and what it was started with: where a server writes its files.

Linux only, and only what this user may read. A server in a container has another root folder; where ours may look
into it, `path` leads there. Of the environment only the variables that are asked for by name are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Listening:
    """A process. `command` and `environment` are empty where this user may not read them."""

    pid: int
    command: list[str] = field(default_factory=list, repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None  # its working folder
    own_root: bool = True  # it sees the same files as we do

    def path(self, text: str) -> Path:
        """A path as the process means it, as ours."""
        absolute = Path(self.folder or "/") / text
        return absolute if self.own_root else PROC / str(self.pid) / "root" / str(absolute).lstrip("/")


def listening(port: int, variables: Sequence[str] = (), proc: Path = PROC) -> Listening | None:
    """The process that listens on a TCP port, or None: nobody, another user's, or not Linux."""
    inodes = set(_inodes(port, proc))
    if not inodes:
        return None
    for folder in sorted(proc.glob("[0-9]*"), key=lambda f: int(f.name)):
        if inodes & set(_sockets(folder)):
            return _process(folder, variables)
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            cells = line.split()
            if len(cells) > 9 and cells[3] == _LISTEN and int(cells[1].rpartition(":")[2], 16) == port:
                yield cells[9]


def _sockets(folder: Path) -> Iterator[str]:
    try:
        links = list((folder / "fd").iterdir())
    except OSError:  # another user's, or gone
        return
    for link in links:
        target = _link(link) or ""
        if target.startswith("socket:["):
            yield target[8:-1]


def _process(folder: Path, variables: Sequence[str]) -> Listening:
    return Listening(
        pid=int(folder.name),
        command=_words(folder / "cmdline") or [],
        environment=environment_of(folder, variables) or {},
        folder=_link(folder / "cwd"),
        own_root=_link(folder / "ns" / "mnt") in (None, _link(folder.parent / "self" / "ns" / "mnt")),
    )


def environment_of(folder: Path, names: Sequence[str]) -> dict[str, str] | None:
    """Those of the variables that `/proc/<pid>` was started with; None where its environment cannot be read."""
    words = _words(folder / "environ")
    if words is None:
        return None
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    return {name: pairs[name] for name in names if name in pairs}


def _words(path: Path) -> list[str] | None:
    """None where it cannot be read."""
    try:
        return [part.decode(errors="replace") for part in path.read_bytes().split(b"\0") if part]
    except OSError:
        return None


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
