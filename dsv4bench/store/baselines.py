"""results/baselines.yaml: which experiment a name is pinned to. Edited by hand or by `baseline set`, never by a gate.

baseline: {id: 20261129T231500Z-c16-baseline-7f3a, reason: first tuned launch}
nightly: 20261130T020000Z-c16-baseline-01bc

A file that cannot be read is never written over. `pin` changes the one entry and keeps the rest of the text, comments
and all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.store import files

NAME = "baselines.yaml"
_PIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. What was pinned before is kept, so that a moved baseline can be seen to have moved."""

    id: str
    reason: str | None = None
    set_utc: str | None = None
    before: str | None = None  # the id that it replaced


def read(root: Path) -> dict[str, str]:
    """Name to experiment id; empty when there is no file. Raises StoreError for a file of another shape."""
    return {name: pin.id for name, pin in pins(root).items()}


def pins(root: Path) -> dict[str, Pin]:
    """Every entry, in the file's order. Raises StoreError for a file of another shape."""
    path = root / NAME
    return _parse(files.read_bytes(path).decode("utf-8", "replace"), path) if path.exists() else {}


def pin(root: Path, name: str, experiment_id: str, reason: str, set_utc: str) -> Pin:
    """Point a name at an experiment and say why. Raises UsageError for a name or reason that says nothing."""
    if not _PIN_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a baseline", "a letter, then letters, digits, dot, _ or -")
    if not reason.strip():
        raise UsageError("a baseline needs a reason", 'for instance --reason "first tuned launch"')
    path = root / NAME
    old = pins(root)
    before = old[name].id if name in old else None
    new = Pin(id=experiment_id, reason=" ".join(reason.split()), set_utc=set_utc, before=before)
    text = files.read_bytes(path).decode("utf-8", "replace") if path.exists() else ""
    files.write_whole(path, _edited(text, name, new, {**old, name: new}, path).encode())
    return new


def _edited(text: str, name: str, new: Pin, wanted: dict[str, Pin], path: Path) -> str:
    """The text with this one entry set; written anew where the text's own form does not allow that."""
    head = re.compile(rf"""^(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*:""")
    lines = text.splitlines()
    begins = next((i for i, line in enumerate(lines) if head.match(line)), len(lines))
    ends = begins + 1
    while ends < len(lines) and lines[ends].startswith((" ", "\t")):
        ends += 1
    edited = "\n".join([*lines[:begins], _dump({name: new}).rstrip("\n"), *lines[ends:]]) + "\n"
    try:
        if _parse(edited, path) == wanted:
            return edited
    except StoreError:
        pass
    return _dump(wanted)


def _dump(entries: dict[str, Pin]) -> str:
    import yaml

    plain = {n: {k: v for k, v in msgspec.structs.asdict(p).items() if v is not None} for n, p in entries.items()}
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000))


def _parse(text: str, path: Path) -> dict[str, Pin]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise StoreError(f"{path}: not YAML ({e})".replace("\n", " "), "mend it by hand") from e
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise StoreError(f"{path}: expected names, each with an id", "mend it by hand")
    return {str(name): _pin_of(path, name, entry) for name, entry in found.items()}


def _pin_of(path: Path, name: object, entry: object) -> Pin:
    fields: dict[Any, Any] = entry if isinstance(entry, dict) else {"id": entry}
    if not isinstance(fields.get("id"), str):
        raise StoreError(f"{path}: {name} names no experiment id", "dsv4bench baseline set NAME ID --reason …")
    known = {k: str(fields[k]) for k in Pin.__struct_fields__ if fields.get(k) is not None}
    return Pin(**known)
