"""What a profile of many steps may cost: the memory of its events while they are recorded and written, and its file.

torch keeps an event of some 0.5 KB for every operator, thousands a step where no CUDA graph is replayed. When it
stops it makes a tree of them that takes five times as much again; a server without that memory is ended by
the system. A trace that could not be written whole is an error, however quietly torch took it.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path
from typing import Any

from dsv4bench.host.memory import free_bytes, resident_bytes

LOOK_STEPS = 16  # between two looks at the memory
FLUSH_TIMES = 6.0  # of what the events take, on top of it, while they are written: 5.2 was seen
LEAST_BYTES = 64 << 20  # so much is always there
PACKED = 3  # gzip's level: the engine waits, and the level above saves little


class EventMemory:
    """What was recorded since `start`, against what is free."""

    def __init__(self) -> None:
        self._before: int | None = None

    def start(self) -> None:
        self._before = resident_bytes()

    def short(self) -> str:
        """Why the recording has to end now; empty while it may go on."""
        now, free = resident_bytes(), free_bytes()
        if now is None or free is None or self._before is None:
            return ""
        taken = now - self._before
        if taken < LEAST_BYTES or FLUSH_TIMES * taken <= free:
            return ""
        needed = FLUSH_TIMES * taken / 1e9
        return (
            f"its events take {taken / 1e9:.2f} GB and writing them {needed:.2f} GB more; "
            f"{free / 1e9:.2f} GB are free"
        )


def write_trace(profile: Any, path: Path) -> None:
    """A profile that has stopped into `path`, gzipped. Raises OSError when it cannot be written whole."""
    with tempfile.TemporaryDirectory(prefix="dsv4bench-trace-") as folder:
        plain = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(plain))
        if not _whole(plain):
            raise OSError(f"torch wrote no whole file into {tempfile.gettempdir()}: is its disk full?")
        with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=PACKED) as packed:
            shutil.copyfileobj(source, packed, 1 << 20)


def _whole(plain: Path) -> bool:
    try:
        with plain.open("rb") as file:
            file.seek(max(0, plain.stat().st_size - 64))
            return file.read().rstrip().endswith((b"}", b"]"))
    except OSError:
        return False
