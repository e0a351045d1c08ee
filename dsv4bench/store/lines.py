"""JSON lines: typed reading that loses one damaged line, never the file, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from dsv4bench.store import files

T = TypeVar("T")


def sound_end(data: bytes) -> int:
    """Where the last complete line ends; what follows is torn."""
    return data.rfind(b"\n") + 1


def count(path: Path) -> int:
    """Complete lines of a file; none when it cannot be read."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def read(path: Path, kind: type[T], warnings: list[str]) -> list[T]:
    """The records of a JSONL file, none when there is no such file; what was dropped is added to `warnings`."""
    if not path.exists():
        return []
    return parse(files.read_bytes(path), kind, str(path), warnings)


def parse(data: bytes, kind: type[T], where: str, warnings: list[str]) -> list[T]:
    """The records of `data`. An unterminated last line is dropped even if it parses: more may have followed."""
    end = sound_end(data)
    if end < len(data):
        warnings.append(f"{where}: dropped a torn last line of {len(data) - end} bytes")
    decoder = msgspec.json.Decoder(kind)
    found: list[T] = []
    for number, line in enumerate(data[:end].split(b"\n")[:-1], start=1):
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError) as e:
            warnings.append(f"{where}: dropped damaged line {number} ({e})")
    return found
