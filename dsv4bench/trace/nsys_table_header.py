"""The header line of an `nsys stats` kernel summary, and numbers as a locale writes them.

A header is known by its columns, not by its place: a total time, Instances, and a Name (or Operation and Category).
Summaries of API calls, copies and NVTX ranges lack one of these. Times are in nanoseconds unless the header says
otherwise.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

_UNITS_NS = {
    "ns": 1,
    "nsec": 1,
    "us": 1000,
    "usec": 1000,
    "µs": 1000,
    "ms": 10**6,
    "msec": 10**6,
    "s": 10**9,
    "sec": 10**9,
}
_TITLE = re.compile(r"(?P<title>.*?)\s*(?:\((?P<unit>[^()]*)\))?")
_DIGITS = re.compile(r"[0-9][0-9.,]{0,40}")
_SPACES = re.compile(r"[\s'’]")
_MAX_HEADER = 2000


@dataclass(frozen=True, slots=True)
class Header:
    """Positions of the columns, and the nanoseconds of one unit of time."""

    separator: str
    width: int
    time: int
    count: int
    name: int
    unit_ns: int
    average: int | None
    average_unit_ns: int | None
    percent: int | None
    category: int | None


def header_of(line: str) -> Header | None:
    """The header that this line is, or None."""
    if "Instances" not in line or len(line) > _MAX_HEADER:
        return None
    for separator in (",", ";", "\t"):
        header = _header(line, separator)
        if header is not None:
            return header
    return None


def _header(line: str, separator: str) -> Header | None:
    try:
        cells = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return None
    places: dict[str, int] = {}
    units: dict[str, str] = {}
    for place, cell in enumerate(cells):
        found = _TITLE.fullmatch(cell.strip())
        if found:
            title = found.group("title").lower()
            places.setdefault(title, place)
            units.setdefault(title, (found.group("unit") or "ns").lower())
    by_category = "category" in places and "operation" in places
    name = places.get("operation" if by_category else "name")
    time, count = places.get("total time"), places.get("instances")
    if time is None or count is None or name is None or "style" in places:  # NVTX summaries have a style
        return None
    if units["total time"] not in _UNITS_NS:
        return None
    average = next((title for title in ("avg", "average") if title in places), None)
    return Header(
        separator=separator,
        width=len(cells),
        time=time,
        count=count,
        name=name,
        unit_ns=_UNITS_NS[units["total time"]],
        average=places[average] if average else None,
        average_unit_ns=_UNITS_NS.get(units[average]) if average else None,
        percent=places.get("time"),
        category=places["category"] if by_category else None,
    )


def locale_number(text: str, whole: bool) -> Decimal:
    """A number with any grouping: `61,602,133`, `61.602.133`, `61 602 133`, `34,4`; `whole`: it has no fraction.

    Raises decimal.InvalidOperation for anything else.
    """
    plain = _SPACES.sub("", text)
    if not _DIGITS.fullmatch(plain):
        raise InvalidOperation(text)
    marks = [mark for mark in plain if mark in ".,"]
    if not marks:
        return Decimal(plain)
    last = marks[-1]
    grouped = re.fullmatch(rf"\d{{1,3}}(?:\{last}\d{{3}})+", plain) is not None
    if len(set(marks)) == 1 and grouped and (whole or len(marks) > 1):
        return Decimal(plain.replace(last, ""))
    other = "," if last == "." else "."
    return Decimal(plain.replace(other, "").replace(last, "."))
