"""results/kernels/<gpu>/: what was found of each kernel on one kind of GPU.

    parity.json, .md             the newest result of every kernel, joined; it speaks of the hash beside its name
    times-<UTC>.json, .md        one run of `kernels bench` and its table
    ab-<UTC>-<name>.json, .md    one `kernels ab`

A kernel that is checked again replaces its own rows and no other's. Whether it is green is a question of this text
of it and this GPU: `not_green` answers it, with the reason.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from dsv4bench.errors import StoreError
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.kernels import AbDocument, BenchDocument, ParityDocument
from dsv4bench.store import files
from dsv4bench.store.lock import Lock
from dsv4bench.store.naming import slug

FOLDER, PARITY = "kernels", "parity.json"


def folder_of(root: Path | str, device: str) -> Path:
    """`device` as the GPU calls itself: results/kernels/NVIDIA-H200."""
    return Path(root) / FOLDER / slug(device)


def read_parity(root: Path | str, device: str) -> ParityDocument | None:
    """None where nothing was checked. Raises SchemaError for a file of another kind."""
    path = folder_of(root, device) / PARITY
    return decode(files.read_bytes(path), ParityDocument, str(path)) if path.is_file() else None


def ready(root: Path | str, device: str) -> None:
    """Ask before a long run whether it can be stored. Raises StoreError, or SchemaError for a damaged parity file."""
    folder = _made(root, device)
    if not os.access(folder, os.W_OK):
        raise StoreError(f"cannot write to {folder}", files.HINTS[errno.EACCES])
    read_parity(root, device)


def not_green(parity: ParityDocument | None, kernel: str, code: str) -> str | None:
    """None when `kernel`, as hashed, passed every case on that device; else why that is not known."""
    if parity is None or kernel not in parity.code:
        return "its parity was never checked on this GPU"
    if parity.code[kernel] != code:
        return f"its text changed since its parity was checked ({parity.code[kernel]}, now {code})"
    if kernel in parity.green:
        return None
    bad = [r for r in parity.rows if r.kernel == kernel and r.outcome == "fail"]
    return f"its parity is red: {bad[0].case}" if bad else "its parity is not green"


def merged(old: ParityDocument | None, new: ParityDocument) -> ParityDocument:
    """The newest result of every kernel: those of `new` take the place of their own older ones."""
    if old is None:
        return new
    kept = set(old.code) - set(new.code)
    return msgspec.structs.replace(
        new,
        code=dict(sorted({**old.code, **new.code}.items())),
        green=sorted({*new.green, *(k for k in old.green if k in kept)}),
        red=sorted({*new.red, *(k for k in old.red if k in kept)}),
        rows=[*(r for r in old.rows if r.kernel in kept), *new.rows],
    )


def write_parity(root: Path | str, document: ParityDocument, table: Callable[[ParityDocument], str]) -> Path:
    """Join it with what is stored of that device, and write the whole as a table beside it. Raises StoreError."""
    folder = _made(root, document.device.name)
    lock = Lock(folder)  # two checks at once would lose each other's kernels
    try:
        stored = merged(read_parity(root, document.device.name), msgspec.structs.replace(document, error=None))
        path = folder / PARITY
        files.write_whole(path, encode(stored, indent=True) + b"\n")
        files.write_whole(path.with_suffix(".md"), table(stored).encode())
    finally:
        lock.release()
    return path


def write_times(root: Path | str, document: BenchDocument, table: str) -> Path:
    """The run, and its table as Markdown beside it; the JSON's path. Raises StoreError."""
    return _write(root, document, "times", table)


def write_ab(root: Path | str, document: AbDocument, table: str) -> Path:
    """As `write_times`."""
    return _write(root, document, "ab", table, f"-{slug(document.new)}")


def read_times(path: Path | str) -> BenchDocument:
    """Raises StoreError or SchemaError."""
    return decode(files.read_bytes(Path(path)), BenchDocument, str(path))


def times(root: Path | str, device: str) -> list[Path]:
    """The stored runs of `bench` on that GPU, oldest first."""
    return sorted(folder_of(root, device).glob("times-*.json"))


def _write(root: Path | str, document: BenchDocument | AbDocument, kind: str, table: str, tail: str = "") -> Path:
    folder = _made(root, document.device.name)
    stamp = datetime.fromisoformat(document.created_utc).strftime("%Y%m%dT%H%M%SZ")
    path = folder / f"{kind}-{stamp}{tail}.json"
    if path.exists():
        raise StoreError(f"{path} is there already", "two runs began in one second: run it again")
    files.write_whole(path, encode(document, indent=True) + b"\n")
    files.write_whole(path.with_suffix(".md"), table.encode())
    return path


def _made(root: Path | str, device: str) -> Path:
    folder = folder_of(root, device)
    with files.failing_as("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder
