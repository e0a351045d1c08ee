"""Numbers as Nsight Compute prints them: thousands separators, a locale's decimal sign, a unit for each value.

    1,275,068,416        17.57 Mbyte = 17,570,000 byte        175.10 us = 175,100 ns        1.20 Ghz = 1.2e9 hz

ncu scales by powers of 1000 (a DRAM count of 86.528000 Kbyte = 2704 × 32 byte shows it) and follows the locale of its
shell. `Locale` is chosen for a whole file from the values that can be read in one way only; a file that speaks both
ways, or that has only values of two meanings, is refused: a wrong factor of 1000 is worse than no answer.

Base units are ncu's own (`--print-units base`): byte, ns, hz, byte/s, cycle, inst, %. A percentage stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from dsv4bench.errors import Unanswerable

NOT_AVAILABLE = frozenset({"", "n/a", "nan", "-nan", "inf", "-inf", "(!) n/a", "(!) nan", "no data"})

_SPACES = str.maketrans("", "", " '’\u00a0\u2009\u202f")  # grouping in French, Swiss and SI style
_COMMON = re.compile(r"-?\d+(?:\.(?:\d{1,2}|\d{4,}))?")  # most cells of a C locale: can be read in one way only
_ENGLISH = re.compile(r"-?(?:\d{1,3}(?:,\d{3}){1,90}|\d{1,300})(?:\.\d+)?")
_NUMBER = re.compile(r"[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?")
_INSTANCES = re.compile(r"\s*[({].*", re.DOTALL)  # "12 (4; 8)": --print-metric-instances

_SI = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_TIMES_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_TIMES_NS |= {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "sec": 1e9, "µs": 1e3}
_SCALED = re.compile(
    r"([KMGTPkmgtp]?)(byte|bytes|b|hz|inst|cycle|cycles|flop|flops|sector|request|warp)", re.IGNORECASE
)
_SPELLINGS = {"bytes": "byte", "b": "byte", "cycles": "cycle", "flops": "flop"}
_PLAIN = re.compile(
    r"%|sm|block|cluster|thread|register|warp|inst|cycle|pass|sector|request|byte|hz|bit|transaction|instance|tile|quad"
    r"|pixel|op|node|edge|launch|unit|count|gpc|tpc|cta|barrier|bank|lane|element|subunit|wave|flop|cacheline",
    re.IGNORECASE,
)

Sign = Literal[".", ","]


@dataclass(frozen=True, slots=True)
class Locale:
    """How a file writes a fraction."""

    decimal: Sign

    @property
    def grouping(self) -> Sign:
        return "," if self.decimal == "." else "."


def locale_of(texts: Iterable[str], file: str) -> Locale:
    """The decimal sign that every value of the file agrees with.

    Raises Unanswerable when two values contradict each other, or when the only signs are dots before three digits
    (`1.234`: a thousand and more, or one and a bit).
    """
    seen: dict[Sign, str] = {}
    grouped_by_dot = ""
    for text in texts:
        if _COMMON.fullmatch(text) is not None:
            if "." in text:
                seen.setdefault(".", text)
            continue
        bare = text.translate(_SPACES)
        if not ("," in bare or "." in bare) or _NUMBER.fullmatch(bare) is None:
            continue
        sign = _certain(bare)
        if sign is not None:
            seen.setdefault(sign, text)
        elif "." in bare:
            grouped_by_dot = grouped_by_dot or text
    if len(seen) == 2:
        raise Unanswerable(
            f"{file}: {seen['.']!r} and {seen[',']!r} cannot both be numbers of one locale",
            "export again with LC_ALL=C and --print-fp --print-units base",
        )
    if seen:
        return Locale(next(iter(seen)))
    if grouped_by_dot:
        raise Unanswerable(
            f"{file}: {grouped_by_dot!r} may be a fraction or a thousand, and no value tells which",
            "export again with LC_ALL=C and --print-fp --print-units base",
        )
    return Locale(".")


def _certain(bare: str) -> Sign | None:
    """The decimal sign that this text proves. None: it can be read both ways (one sign, three digits after it)."""
    mantissa = re.split("[eE]", bare)[0]
    signs = [c for c in mantissa if c in ".,"]
    kinds = set(signs)
    if len(kinds) == 2:
        return "." if signs[-1] == "." else ","
    sign: Sign = "." if signs[0] == "." else ","
    other: Sign = "," if sign == "." else "."
    if len(signs) > 1:
        return other
    whole, _, fraction = mantissa.partition(sign)
    whole = whole.lstrip("+-")
    if len(fraction) == 3 and 1 <= len(whole) <= 3 and whole != "0":
        return None
    return sign


def number(text: str, locale: Locale, factor: float = 1.0) -> float | None:
    """A cell in its base unit; None when it is no number of this locale (`n/a`, a word, a broken grouping)."""
    if factor == 1.0 and locale.decimal == "." and _ENGLISH.fullmatch(text) is not None:
        return float(text.replace(",", ""))
    bare = _INSTANCES.sub("", text.strip()).translate(_SPACES)
    if _NUMBER.fullmatch(bare) is None:
        return None
    mantissa, exponent = [*re.split("[eE]", bare), ""][:2]
    whole, _, fraction = mantissa.partition(locale.decimal)
    groups = whole.lstrip("+-").split(locale.grouping)
    if len(groups) > 1 and not (1 <= len(groups[0]) <= 3 and all(len(g) == 3 for g in groups[1:])):
        return None
    if locale.grouping in fraction or locale.decimal in fraction:
        return None
    sign = "-" if whole.startswith("-") else ""
    exact = Decimal(f"{sign}{''.join(groups) or '0'}.{fraction or '0'}e{exponent or '0'}") * Decimal(repr(factor))
    value = float(exact)  # scaled before it is binary: 8.251136 Mbyte are 8,251,136 bytes
    return value if abs(value) < float("inf") else None


def rounded_to_zero(text: str, factor: float, count: bool) -> bool:
    """Whether a printed zero may hide a small value: `0.00` does, `0` does not, nor a `count` of less than one."""
    decimals = re.fullmatch(r"[+-]?0*[.,](0+)", text.strip())
    return decimals is not None and not (count and factor * 10.0 ** -len(decimals[1]) < 1)


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> tuple[float, str] | None:
    """Factor to the base unit, and its name: ("Gbyte/s") → (1e9, "byte/s"). None for a unit nobody knows."""
    top, slash, bottom = unit.strip().partition("/")
    numerator = _numerator(top)
    if numerator is None:
        return None
    if not slash:
        return numerator
    factor, name = numerator
    if bottom.lower() in _TIMES_NS:  # per microsecond → per second
        return factor * 1e9 / _TIMES_NS[bottom.lower()], f"{name}/s"
    below = _numerator(bottom)
    return None if below is None else (factor / below[0], f"{name}/{below[1]}")


def _numerator(unit: str) -> tuple[float, str] | None:
    if unit == "":
        return 1.0, ""
    if unit.lower() in _TIMES_NS:
        return _TIMES_NS[unit.lower()], "ns"
    scaled = _SCALED.fullmatch(unit)
    if scaled is not None:
        name = scaled[2].lower()
        return _SI[scaled[1].lower()], _SPELLINGS.get(name, name)
    return (1.0, unit) if _PLAIN.fullmatch(unit) else None
