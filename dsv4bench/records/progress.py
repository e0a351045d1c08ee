"""Live progress: what a running sweep tells whoever listens. It is display only and enters no result."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """State of the current level. `chunk_s` is network chunks a second, near tok/s on most servers."""

    level: str
    level_index: int
    level_count: int
    in_flight: int
    done: int
    failed: int
    total: int | None
    chunk_s: float
    elapsed_s: float
    left_s: float | None = None


ProgressCallback = Callable[[Progress], None]
MessageCallback = Callable[[str], None]
