"""Durations as people write them, in a scenario and on the command line: `90`, `90s`, `1.5m`, `50ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsv4bench.errors import UsageError
from dsv4bench.records.workload import Slo

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(value: str | float, where: str) -> float:
    """Raises UsageError naming `where`."""
    if isinstance(value, int | float):
        return float(value)
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", value.lower())
    if found is None or found.group(2) not in _UNITS_S:
        raise UsageError(f"{where} {value}: not a duration", "for instance 60, 90s, 2m, 50ms")
    return float(found.group(1)) * _UNITS_S[found.group(2)]


def slo_of(limits: Mapping[str, str | float | None], where: str) -> Slo:
    """Limits by name (ttft, tpot, e2e). Raises UsageError."""
    known = {"ttft", "tpot", "e2e"}
    for name in limits:
        if name not in known:
            raise UsageError(f"{where} {name}: not a limit", "limits are ttft, tpot and e2e, e.g. ttft=2s,tpot=50ms")
    return Slo(
        **{f"{name}_s": seconds(value, f"{where} {name}") for name, value in limits.items() if value is not None}
    )
