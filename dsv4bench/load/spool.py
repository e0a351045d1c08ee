"""Finished captures, in memory up to a bound and in an unnamed temporary file beyond it.

A token costs about half a kilobyte of stream, so an hour at full rate would not fit; writing goes to the page cache
and costs the loop some tens of microseconds a request, only past the bound.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO

from dsv4bench.load.reading import Capture

BOUND_BYTES = 512 << 20


class Spool:
    """Append-only; iterating gives every capture once, in the order they were added."""

    def __init__(self, bound_bytes: int = BOUND_BYTES) -> None:
        self._bound = bound_bytes
        self._memory: list[Capture] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._on_disk = 0

    def __len__(self) -> int:
        return len(self._memory) + self._on_disk

    def add(self, capture: Capture) -> None:
        size = sum(len(read.data) + 120 for read in capture.reads)
        if self._file is None and self._bytes + size <= self._bound:
            self._memory.append(capture)
            self._bytes += size
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the spool
        pickle.dump(capture, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self._on_disk += 1

    def __iter__(self) -> Iterator[Capture]:
        yield from self._memory
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._on_disk):
                yield pickle.load(self._file)
