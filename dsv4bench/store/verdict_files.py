"""results/verdicts/<id>.json: comparisons that were made, kept so that findings can be written from them again.

An id is `<UTC>-<base>-vs-<others>-<4 hex of the content>`. Nothing is overwritten: the same content at the same
second is the same file. Gate documents may lie there, too; they are left to the gate.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from pathlib import Path

import msgspec

from dsv4bench.errors import BenchError, SchemaError, StoreError, UsageError
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.store import files
from dsv4bench.store.naming import iso, slug, utc_now

FOLDER = "verdicts"
MIN_TAG = 4


def write(root: Path | str, document: VerdictDocument, now: datetime | None = None) -> VerdictDocument:
    """Stores it and returns it with its id and time. Raises StoreError."""
    moment = now or utc_now()
    folder = Path(root) / FOLDER
    with files.failing_as("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    bare = _bare(document)
    digest = hashlib.sha256(bare).hexdigest()
    for digits in (MIN_TAG, 12, 64):
        name = f"{_stem(document, moment)}-{digest[:digits]}"
        stored = msgspec.structs.replace(document, id=name, created_utc=iso(moment))
        path = folder / f"{name}.json"
        if not path.exists():
            files.write_whole(path, encode(stored, indent=True) + b"\n")
            return stored
        found = read(root, name)
        if _bare(found) == bare:
            return found
    raise StoreError(f"{folder}: {name} is taken", "was a file there edited by hand?")


def stored_alike(root: Path | str, document: VerdictDocument) -> VerdictDocument | None:
    """The newest stored comparison of these names and experiments, where but for id and time it says the same.

    None: it says something else, or there is none. One that cannot be read is passed over.
    """
    stem = re.compile(rf"\d{{8}}T\d{{6}}Z-{re.escape(_names(document))}-[0-9a-f]{{{MIN_TAG},64}}")
    for name in reversed([i for i in _ids(root) if stem.fullmatch(i)]):
        try:
            found = read(root, name)
        except BenchError:
            continue
        if found.campaign == document.campaign and _experiments(found) == _experiments(document):
            return found if _bare(found) == _bare(document) else None
    return None


def read(root: Path | str, verdict_id: str) -> VerdictDocument:
    """One by its id. Raises StoreError when it is not there, SchemaError when it cannot be read."""
    path = Path(root) / FOLDER / f"{verdict_id}.json"
    if not path.is_file():
        raise StoreError(f"{path}: no such verdict", f"dsv4bench compare stores them in {path.parent}")
    return decode(files.read_bytes(path), VerdictDocument, str(path))


def find(root: Path | str, name: str) -> VerdictDocument:
    """By id, by the id's beginning, or by its last hex digits. Raises UsageError when several fit."""
    ids = _ids(root)
    fitting = [i for i in ids if i == name] or [
        i for i in ids if len(name) >= MIN_TAG and (i.startswith(name) or i.endswith(f"-{name}"))
    ]
    if len(fitting) > 1:
        raise UsageError(f"{name} fits {len(fitting)} verdicts: {', '.join(fitting[:5])}", "give more of the id")
    return read(root, fitting[0] if fitting else name)


def read_all(root: Path | str, warnings: list[str]) -> list[VerdictDocument]:
    """Every comparison, oldest first; a file that cannot be read is left out and added to `warnings`."""
    found = []
    for name in _ids(root):
        path = Path(root) / FOLDER / f"{name}.json"
        try:
            raw = files.read_bytes(path)
            if _schema(raw).startswith("dsv4bench.gate/"):
                continue
            found.append(decode(raw, VerdictDocument, str(path)))
        except BenchError as e:
            warnings.append(f"left out: {e.message}")
    return sorted(found, key=lambda d: (d.created_utc or "", d.id or ""))


def _experiments(document: VerdictDocument) -> list[tuple[str, str, list[str]]]:
    return [(i.name, i.source, i.ids) for i in document.inputs]


def _bare(document: VerdictDocument) -> bytes:
    return encode(msgspec.structs.replace(document, id=None, created_utc=None))


def _stem(document: VerdictDocument, moment: datetime) -> str:
    return f"{moment.strftime('%Y%m%dT%H%M%SZ')}-{_names(document)}"


def _names(document: VerdictDocument) -> str:
    names = [i.name for i in document.inputs]
    base = document.baseline or (names[0] if names else "none")
    others = "-".join(slug(n) for n in names if n != base)[:60].strip("-._") or "none"
    return f"{slug(base)}-vs-{others}"


def _ids(root: Path | str) -> list[str]:
    folder = Path(root) / FOLDER
    with files.failing_as("read", folder):
        return sorted(p.stem for p in folder.glob("*.json") if not p.name.startswith("."))


class _Head(msgspec.Struct):
    schema: str = ""


def _schema(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_Head).schema
    except (msgspec.MsgspecError, RecursionError) as e:
        raise SchemaError(f"not JSON ({e})") from e
