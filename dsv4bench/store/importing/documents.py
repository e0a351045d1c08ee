"""JSON as other tools write it: one document, a document a line, or documents one after the other.

The file's name does not decide (`.json` files hold lines, too). Python's `Infinity` and `NaN`, which are outside of
JSON and which SGLang writes, become "inf" and no data, so that every number behind this door is finite. A torn last
document is dropped and said to be.
"""

from __future__ import annotations

import json
import math
from typing import Any

from dsv4bench.errors import SchemaError

Record = dict[str, Any]
_CONSTANTS = {"Infinity": "inf", "-Infinity": "-inf", "NaN": None}
_DIGITS = 18


def documents(data: bytes, where: str, expected: str) -> tuple[list[Any], list[str]]:
    """Every document of a file and notes on what was dropped. Raises SchemaError when there is none."""
    text = data.decode("utf-8-sig", "replace")
    decoder = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__, parse_float=_float, parse_int=_int)
    found: list[Any] = []
    at = _skip(text, 0)
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as e:
            if not found or not isinstance(found[-1], dict):
                raise SchemaError(f"{where}: neither JSON nor JSON lines ({e})", f"expected {expected}") from e
            return found, [f"dropped a torn or damaged part after {len(found)} records"]
        found.append(document)
        at = _skip(text, at)
    if not found:
        raise SchemaError(f"{where}: the file is empty", f"expected {expected}")
    return found, []


def _float(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else "inf"


def _int(digits: str) -> int | float | str:
    return int(digits) if len(digits) <= _DIGITS else _float(digits)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
