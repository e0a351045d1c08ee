"""The one JSON codec: `--json`, the store and every later reader go through it.

A document begins with `"schema": "<name>/<major>"`. Unknown fields are accepted and a newer major version is
refused by name. Floats are written with six significant digits for clean diffs; from 1e6 on with three decimals, so
that epoch seconds keep their milliseconds. NaN or infinity is our own bug: "no data" is `null`, never a number.
Text that UTF-8 cannot say (a file name's stray byte) is written with backslash escapes.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from dsv4bench.errors import SchemaError

T = TypeVar("T", bound="Document")


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of everything that stands alone in a file or on stdout; a subclass fixes `schema`."""

    schema: str

    @classmethod
    def schema_id(cls) -> str:
        """The `name/major` that this class reads and writes."""
        for field in msgspec.structs.fields(cls):
            if field.name == "schema":
                return str(field.default)
        raise AssertionError("a Document has a schema field")


class _Head(msgspec.Struct):
    schema: str | None = None


def encode(value: object, *, indent: bool = False) -> bytes:
    """JSON bytes of a document or record.

    Raises ValueError on NaN or infinity.
    """
    plain = _clean(msgspec.to_builtins(value))
    raw = msgspec.json.encode(plain)
    return msgspec.json.format(raw, indent=1) if indent else raw


def decode(raw: bytes, kind: type[T], where: str) -> T:
    """A document of `kind` from bytes; `where` names the file in errors.

    Raises SchemaError when it is not JSON, of another schema, or of a newer major version.
    """
    wanted = kind.schema_id()
    try:
        found = msgspec.json.decode(raw, type=_Head).schema
    except (msgspec.MsgspecError, RecursionError) as e:
        raise SchemaError(f"{where}: not a {wanted} document ({e})", "the file may be damaged") from e
    check_schema(found, wanted, where)
    try:  # the first pass skips over values, so this one may still meet broken text
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise SchemaError(f"{where}: {e}", f"expected {wanted}; the file may be damaged") from e


def check_schema(found: str | None, wanted: str, where: str) -> None:
    """Accept `found` when it is `wanted` or an older major of the same name; raise SchemaError otherwise."""
    name, major = _split(wanted)
    try:
        found_name, found_major = _split(found or "")
    except ValueError:
        raise SchemaError(f"{where}: no schema id, expected {wanted}", "is this file ours?") from None
    if found_name != name:
        raise SchemaError(f"{where}: holds {found}, expected {wanted}", "another kind of file was given")
    if found_major > major:
        raise SchemaError(
            f"{where}: written as {found}, this dsv4bench reads {name} up to version {major}",
            "upgrade dsv4bench",
        )


def _split(schema: str) -> tuple[str, int]:
    name, _, major = schema.rpartition("/")
    if not name or not (major.isascii() and major.isdecimal()):
        raise ValueError(schema)
    return name, int(major)


def _clean(value: Any) -> Any:
    """Floats to six significant digits, text to UTF-8; refuse what JSON cannot say."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be written; use None and a reason")
        return float(f"{value:.6g}") if abs(value) < 1e6 else round(value, 3)  # epoch seconds keep theirs
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= {int}:  # long integer columns are left as they are
            return value
        return [_clean(v) for v in value]
    return value
