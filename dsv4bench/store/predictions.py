"""results/predictions.jsonl: the append-only ledger of what levers were expected to buy, and what they bought.

A line is never changed: a measurement is a further line that names its prediction. A torn last line is dropped and
reported; where a prediction was measured twice, the later line counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from dsv4bench.records.codec import encode
from dsv4bench.records.prediction import LedgerLine, Measured, Prediction
from dsv4bench.store import files, lines

NAME = "predictions.jsonl"


def append(root: Path | str, line: LedgerLine) -> None:
    """One line, durable when this returns. Raises StoreError and leaves the ledger as it was."""
    folder = Path(root)
    with files.failing_as("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    appender = files.Appender(folder / NAME)
    try:
        newline = b"" if appender.ends_a_line() else b"\n"  # a torn line is ended, and dropped by every reader
        appender.append(newline + encode(line) + b"\n")
    finally:
        appender.close()


def read(root: Path | str, warnings: list[str]) -> list[LedgerLine]:
    """Every line in the order written; none when there is no ledger."""
    kind = cast(type[Any], LedgerLine)  # a union of tagged structs is a type to msgspec
    return lines.read(Path(root) / NAME, kind, warnings)


def ledger(root: Path | str, warnings: list[str]) -> list[tuple[Prediction, Measured | None]]:
    """Every prediction beside its newest measurement, oldest first."""
    every = read(root, warnings)
    measured = {m.prediction: m for m in every if isinstance(m, Measured)}
    return [(p, measured.get(p.id)) for p in every if isinstance(p, Prediction)]
