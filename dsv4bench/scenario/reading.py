"""YAML into a typed value, or one error that names file, line, key and what was expected there.

The type does the checking (`forbid_unknown_fields`, limits in `Meta`); this module finds the line, and knows no
scenario.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from dsv4bench.errors import UsageError

T = TypeVar("T")


def read_text(path: Path, hint: str) -> str:
    """A file's text. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", hint) from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})", hint) from e


def read_yaml(path: Path, kind: type[T], hint: str) -> T:
    """The file as a `kind`. Raises UsageError."""
    import yaml

    text = read_text(path, hint)
    try:
        plain = yaml.load(text, _loader())
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(e, "problem", e)).split())
        raise UsageError(f"{path}{line}: not YAML: {problem}", hint) from e
    plain = {} if plain is None else plain
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as e:
        keys = _keys(str(e))
        raise UsageError(f"{path}:{line_of(text, keys)}: {e}{_meant(str(e), kind, keys)}", hint) from e


def line_of(text: str, keys: list[str | int]) -> int:
    """The line of the deepest of `keys` that the YAML text holds; 1 when it holds none."""
    import yaml

    node: Any = yaml.compose(text, _loader())
    line = 1
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        else:
            break
    return line


def fields_at(kind: Any, keys: Sequence[str | int]) -> list[str]:
    """The keys that a file may have at a place of `kind`; none where that is not told."""
    at = [inspect.type_info(kind)]
    for key in keys:
        at = [inner for one in at for inner in _inside(one, key)]
    return [f.encode_name for one in at for f in (one.fields if isinstance(one, inspect.StructType) else ())]


def _inside(one: inspect.Type, key: str | int) -> list[inspect.Type]:
    """What a type holds under a key; a union, which may be None, holds what its members do."""
    found: list[inspect.Type] = []
    if isinstance(one, inspect.StructType):
        found = [f.type for f in one.fields if f.encode_name == key]
    elif isinstance(one, inspect.ListType):
        found = [one.item_type]
    elif isinstance(one, inspect.DictType):
        found = [one.value_type]
    return [m for t in found for m in (t.types if isinstance(t, inspect.UnionType) else (t,))]


def _meant(message: str, kind: Any, keys: Sequence[str | int]) -> str:
    """`; did you mean launch?` for an unknown key that is nearly a known one."""
    if "unknown field" not in message:
        return ""
    near = difflib.get_close_matches(str(keys[-1]), fields_at(kind, keys[:-1]), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _loader() -> Any:
    """The safe loader, of C where PyYAML was built with it: ten times as fast, with the same lines."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _keys(message: str) -> list[str | int]:
    """The path that a validation message points at: `$.levels.repeat`, `$.configs[1]`, an unknown field.

    A key of a free mapping is written `[...]`; the path ends before it.
    """
    path = re.search(r"`\$([^`]*)`", message)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    known, _, _ = (path.group(1) if path else "").partition("[...]")
    keys: list[str | int] = [int(k) if k.isdecimal() else k for k in re.findall(r"[^.\[\]]+", known)]
    return [*keys, unknown.group(1)] if unknown else keys
