"""Values as people type them: lists, durations, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsv4bench.records.workload import Slo


def integers(text: str | None, option: str, example: str = "1,8,16") -> list[int] | None:
    """`1,8,16`. Raises UsageError, with the example."""
    from dsv4bench.errors import UsageError

    if text is None:
        return None
    try:
        return [int(part.replace("_", "")) for part in text.replace(" ", "").split(",") if part]
    except ValueError:
        raise UsageError(
            f"{option} {text}: not a list of whole numbers", f"for instance {option} {example}"
        ) from None


def numbers(text: str | None, option: str) -> list[float] | None:
    """`0.5,2`. Raises UsageError."""
    from dsv4bench.errors import UsageError

    if text is None:
        return None
    try:
        return [float(part) for part in text.replace(" ", "").split(",") if part]
    except ValueError:
        raise UsageError(f"{option} {text}: not a list of numbers", f"for instance {option} 0.5,2") from None


def seconds(text: str | float | None, option: str) -> float | None:
    """`90`, `90s`, `1.5m`, `50ms`: seconds. Raises UsageError."""
    from dsv4bench.scenario import durations

    return None if text is None else durations.seconds(text, option)


def slo(text: str | None) -> Slo | None:
    """`ttft=2s,tpot=50ms,e2e=30s`. Raises UsageError."""
    from dsv4bench.errors import UsageError

    if text is None:
        return None
    pairs = [_pair(part) for part in text.split(",") if part.strip()]
    limits = dict(pairs)
    if len(limits) < len(pairs):
        raise UsageError(f"--slo {text}: a limit stands twice", "for instance --slo ttft=2s,tpot=50ms")
    if not limits:
        raise UsageError(f"--slo {text!r}: names no limit", "for instance --slo ttft=2s,tpot=50ms")
    return slo_from(limits)


def slo_from(limits: Mapping[str, str | float | None], where: str = "--slo") -> Slo:
    """Limits by name. Raises UsageError."""
    from dsv4bench.scenario import durations

    return durations.slo_of(limits, where)


def _pair(part: str) -> tuple[str, str]:
    from dsv4bench.errors import UsageError

    name, equals, value = part.partition("=")
    if not equals:
        raise UsageError(f"--slo {part}: not a limit", "for instance --slo ttft=2s,tpot=50ms")
    return name.strip().lower(), value.strip()


def words(text: str | None) -> list[str] | None:
    """`a,b`."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def components(text: str | None) -> list[str] | None:
    """`moe,attention`. Raises UsageError for a word that is no component."""
    from dsv4bench.errors import UsageError
    from dsv4bench.records.rules import COMPONENTS

    found = words(text)
    for name in found or []:
        if name not in COMPONENTS:
            raise UsageError(f"--touches {name}: not a component", f"components: {', '.join(COMPONENTS)}")
    return found
