"""Reading what may be damaged or gone: a warning instead of an error, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from dsv4bench.errors import BenchError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.store import breakdowns

T = TypeVar("T")


def tried(read: Callable[[], T], warnings: list[str]) -> T | None:
    """What `read` gives; None, and its message among the warnings, when it raises a BenchError."""
    try:
        return read()
    except BenchError as e:
        warnings.append(e.message)
        return None


def first_breakdowns(folders: Iterable[Path], warnings: list[str]) -> list[tuple[Path, BreakdownDocument]]:
    """(the experiment's folder, its breakdown), the first of each configuration and level.

    A folder without a breakdown is no reason to warn.
    """
    found: dict[tuple[str | None, int | None, int | None], tuple[Path, BreakdownDocument]] = {}
    for folder in folders:
        path = folder / breakdowns.KERNELS
        if not path.is_file():
            continue
        for b in tried(lambda p=path: breakdowns.read(p), warnings) or []:  # type: ignore[misc]
            found.setdefault((b.config, b.concurrency, b.isl), (folder, b))
    return list(found.values())
