"""The trace files that a server wrote since a window opened: one a rank, waited for until each is whole.

A file is whole when it has stopped growing and, compressed, ends as gzip says. The front end's own trace (vLLM's
`async_llm`), merged traces and those of another stage are not ranks' traces of the window and are left alone.
"""

from __future__ import annotations

import gzip
import re
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path

SUFFIXES = (".trace.json", ".trace.json.gz")
OTHERS = ("async_llm", "merged-", "cuda_graph_capture")
STAGES = {"decode": ("-EXTEND.", "-prefill."), "prefill": ("-DECODE.", "-decode.")}  # what is not of the stage
POLL_S = 0.2
SAY_S = 10.0
TORN_S = 15.0  # a file that has not grown for so long will not become whole
READ_BYTES = 1 << 20
LOW_BYTES = 64 << 20
_RANK = re.compile(r"(?:TP-|[_.-]rank|_tp)(\d+)")


class Arrivals:
    """Files of one folder that were not there before; it need not exist yet."""

    def __init__(self, folder: Path, stage: str = "decode") -> None:
        self.folder, self._stage = folder, stage
        self._before = self._listed()

    def new(self) -> list[Path]:
        """Trace files that came or changed since, in the order of ranks."""
        now = self._listed()
        return sorted((p for p, seen in now.items() if self._before.get(p) != seen), key=_by_rank)

    def wait(
        self, expected: int | None, timeout_s: float, quiet_s: float, say: Callable[[str], None] = lambda _: None
    ) -> list[Path]:
        """The new files once they are whole: as many as `expected`, or all that there are after `quiet_s` of rest.

        What will not become whole comes too: `is_whole` tells. Empty when nothing came for `quiet_s`.
        """
        started = last_change = last_said = time.monotonic()
        seen: dict[Path, tuple[int, int]] = {}
        while True:
            now = {p: s for p in self.new() if (s := _stat(p)) is not None}
            if now != seen:
                seen, last_change = now, time.monotonic()
            rested = time.monotonic() - last_change
            enough = len(seen) >= expected if expected else bool(seen)
            settled = rested > (2 * POLL_S if expected and enough else quiet_s)
            over = time.monotonic() - started > timeout_s or (bool(seen) and rested > max(TORN_S, quiet_s))
            if over or (settled and (not seen or all(map(is_whole, seen)))):
                return sorted(seen, key=_by_rank)
            if time.monotonic() - last_said > SAY_S:
                last_said = time.monotonic()
                size = sum(size for size, _ in seen.values()) / 1e6
                say(f"the server is writing its trace: {len(seen)} files, {size:.0f} MB, {last_said - started:.0f} s")
            time.sleep(POLL_S)

    def _listed(self) -> dict[Path, tuple[int, int]]:
        try:
            found = [p for p in self.folder.iterdir() if self._is_ours(p.name)]
        except OSError:
            return {}
        return {p: s for p in found if (s := _stat(p)) is not None}

    def _is_ours(self, name: str) -> bool:
        other = (*OTHERS, *STAGES.get(self._stage, ()))
        return name.endswith(SUFFIXES) and not any(part in name for part in other)


def is_whole(path: Path) -> bool:
    """Whether a trace file was written to its end."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                while file.read(READ_BYTES):
                    pass
            return path.stat().st_size > 0
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64))
            return file.read().rstrip()[-1:] in (b"}", b"]")
    except (OSError, EOFError, zlib.error):
        return False


def free_bytes(folder: Path) -> int | None:
    """What is free where the folder is, or would be."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None


def space_left(folder: Path) -> str | None:
    """A sentence when next to nothing is free there."""
    free = free_bytes(folder)
    if free is None or free > LOW_BYTES:
        return None
    return f"{folder} has {free / 1e6:.0f} MB left: no space for a trace"


def rank_of(path: Path) -> int | None:
    """The rank that a file's name tells."""
    found = _RANK.search(path.name)
    return int(found.group(1)) if found else None


def _by_rank(path: Path) -> tuple[int, str]:
    rank = rank_of(path)
    return (1 << 30 if rank is None else rank, path.name)


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
