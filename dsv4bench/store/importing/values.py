"""Single values out of a foreign record, by what they are rather than by what their key promises.

A number is a JSON number: text under a number's key is a user's `--metadata` pair, not the tool's figure. Zero, where
a quantity cannot be zero, is how tools write "no data". Dates without a zone stay without one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dsv4bench.records.arm import Plain

_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0}
_LARGEST = 1e15  # beyond it no figure of a benchmark is sound, and ratios could overflow
_HUB = re.compile(r"models--([^/]+?)--([^/]+)")


def number(record: Mapping[str, Any], key: str) -> float | None:
    """A JSON number, or None."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return float(value)


def count(record: Mapping[str, Any], key: str) -> int | None:
    value = number(record, key)
    return None if value is None or value < 0 else round(value)


def text(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def inner(record: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path, empty where there is none."""
    at: Any = record
    for key in path:
        at = at.get(key) if isinstance(at, Mapping) else None
    return at if isinstance(at, Mapping) else {}


def seconds(value: float | None, unit: str) -> float | None:
    """`value` in seconds; None for a unit that is no time."""
    factor = _SECONDS.get(unit.lower())
    return None if value is None or factor is None else value * factor


def rate(record: Mapping[str, Any], key: str = "request_rate") -> float | None:
    """Requests a second. None when everything was sent at once, which tools write as "inf", Infinity or null."""
    value = number(record, key)
    spelled = text(record, key)
    if spelled is not None:
        try:
            value = float(spelled)
        except ValueError:
            return None
    return value if value is not None and math.isfinite(value) and value > 0 else None


def per(total: float | None, n: float | None) -> float | None:
    return total / n if total is not None and n else None


def known(**facts: Plain) -> dict[str, Plain]:
    """The facts that were told."""
    return {key: value for key, value in facts.items() if value is not None}


def model_name(path: str | None) -> str | None:
    """owner/name out of a hub cache path, else the text as it is."""
    found = _HUB.search(path or "")
    return f"{found[1]}/{found[2]}" if found else path


def endpoint(word: str | None) -> str | None:
    """Our word for a tool's backend or endpoint; None when it does not say which kind of prompt it sent."""
    if word is None:
        return None
    if "chat" in word:
        return "chat"
    spelled = {"openai", "vllm", "sglang-oai", "lmdeploy", "tensorrt-llm", "openai-completions"}
    return "completions" if word in spelled or "completions" in word else None


def compact_date(value: str | None) -> str | None:
    """vLLM's 20260818-021358, local and without a zone, as ISO text without one."""
    try:
        return datetime.strptime(value or "", "%Y%m%d-%H%M%S").isoformat()
    except ValueError:
        return None


LOCAL = "dates are local time of an unknown zone"


def epoch_date(value: float | None) -> str | None:
    if value is None:
        return None
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
