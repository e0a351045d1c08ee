"""ncu's CSV (`ncu --csv --page details` or `--page raw`) as counters of each profiled launch.

details   a row a metric, its unit beside it; 12, 15 or 20 columns by version; rows of rules have no metric
raw       a row a launch, a column a metric, the units in the row under the header

Between the rows stand ncu's own lines (`==PROF== …`) and whatever the profiled program printed; both are passed over,
ncu's warnings are kept. A launch is one ID of one process, so one kernel at two grids, or launched twice, makes two
rows. Metric names (`sm__….sum`) are keys as they are; display names, which repeat with other units, are keyed
"section: name [base unit]". Values are in base units. A damaged row is dropped and said, never mended.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.trace import CounterRow, KernelCounters
from dsv4bench.trace.ncu_errors import explain
from dsv4bench.trace.ncu_numbers import NOT_AVAILABLE, Locale, base_unit, locale_of, number, rounded_to_zero

_NCU_LINE = re.compile(r"\s*==([A-Z]+)==\s*(.*)")
_COMMON = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_DETAILS = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_JOINED_LINES = 20  # a quoted rule text may run over lines; a lost quote must not swallow the file
_HINT = "export with: ncu --csv --page raw --print-units base --print-fp --log-file x.csv … (and LC_ALL=C)"

Header = dict[str, int]
Cell = tuple[str, str, str, str]  # section, metric, unit, value
Identity = tuple[str, ...]


@dataclass(slots=True)
class _Rows:
    """What was read so far: cells of each launch, in file order."""

    launches: dict[Identity, list[Cell]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    headers: int = 0
    dropped: int = 0


def looks_like_ncu_csv(head: str) -> bool:
    """True when the beginning of a file is ncu's CSV, or only ncu's messages where a CSV was asked for."""
    lines = head.splitlines()
    return any(_header(line) is not None for line in lines) or (bool(lines) and _NCU_LINE.match(lines[0]) is not None)


def read_ncu_csv(path: Path, label: str | None = None) -> KernelCounters:
    """Counters of every launch in the file.

    Raises SchemaError when it is no ncu CSV, Unanswerable when ncu profiled nothing or its numbers cannot be read.
    """
    rows = _collect(_text(path), path.name)
    warnings = list(dict.fromkeys(m for m in rows.messages if not m.startswith("Note:")))
    if rows.headers == 0 and not rows.messages:
        raise SchemaError(f"{path.name}: no ncu CSV: no header with ID and Kernel Name", _HINT)
    if not rows.launches:
        raise explain(path.name, rows.messages)
    if rows.dropped:
        warnings.append(f"{rows.dropped} damaged or cut rows left out")
    locale = locale_of((cell[3] for cells in rows.launches.values() for cell in cells), path.name)
    unread: dict[str, int] = {}
    counters = [_row(identity, cells, locale, unread) for identity, cells in rows.launches.items()]
    if not any(row.metrics for row in counters):
        raise Unanswerable(f"{path.name}: kernels, and not one metric that is a number", _HINT)
    warnings += [f"{count} values left out: {why}" for why, count in sorted(unread.items())]
    return KernelCounters(file=str(path), rows=counters, label=label, warnings=warnings)


def _text(path: Path) -> str:
    """PowerShell's `>` writes UTF-16; everything else is UTF-8, damaged bytes replaced."""
    data = path.read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def _collect(text: str, file: str) -> _Rows:
    rows = _Rows()
    header: Header | None = None
    units: list[str] | None = None
    for line in _records(text, rows):
        found = _header(line)
        if found is not None:
            _check(found, file)
            header, units = found, None
            rows.headers += 1
            continue
        cells = _cells(line)
        if header is None or cells is None:
            rows.dropped += header is not None and line.startswith('"')
            continue
        if "Metric Name" not in header and units is None:
            units = _units(cells, header, file)
        elif cells[0].isdigit() and len(cells) > header["Kernel Name"]:
            _take(cells, header, units, rows)
    return rows


def _records(text: str, rows: _Rows) -> Iterator[str]:
    """Lines that may be CSV; ncu's own are kept as messages. An open quote joins the lines up to its end."""
    lines = text.split("\n")
    if lines[-1] and not lines[-1].rstrip("\r,").endswith('"'):
        rows.dropped += lines.pop().startswith('"')  # cut in the middle of a value, which may have lost digits
    i = 0
    while i < len(lines):
        line = lines[i].rstrip("\r")
        i += 1
        own = _NCU_LINE.match(line)
        if own is not None:
            if own[1] in ("ERROR", "WARNING"):
                rows.messages.append(own[2])
            continue
        joined = 0
        while line.startswith('"') and _cells(line) is None and i < len(lines) and joined < _JOINED_LINES:
            following = lines[i].rstrip("\r")
            if re.match(r'"\d*","', following) or _NCU_LINE.match(following):
                break
            line, i, joined = f"{line}\n{following}", i + 1, joined + 1
        if line.strip():
            yield line


def _cells(line: str) -> list[str] | None:
    try:
        rows = list(csv.reader(io.StringIO(line, newline=""), strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 and rows[0] else None


def _header(line: str) -> Header | None:
    if "Kernel Name" not in line or "ID" not in line:
        return None
    cells = _cells(line)
    if cells is None or cells[0] != "ID" or "Kernel Name" not in cells:
        return None
    header: Header = {}
    for i, name in enumerate(cells):
        header.setdefault(name, i)
    return header


def _check(header: Header, file: str) -> None:
    """A header with some of the details page's columns is a damaged details page, not a raw page."""
    lacking = [name for name in _DETAILS if name not in header]
    if 0 < len(lacking) < len(_DETAILS):
        raise SchemaError(f"{file}: the header lacks the column {lacking[0]!r}", _HINT)
    if lacking and not any("__" in name for name in header):
        raise SchemaError(f"{file}: the header names no metric", _HINT)


def _units(cells: list[str], header: Header, file: str) -> list[str]:
    if cells[0] != "" or len(cells) <= header["Kernel Name"]:
        raise SchemaError(f"{file}: no row of units under the header of a raw page", _HINT)
    return cells


def _take(cells: list[str], header: Header, units: list[str] | None, rows: _Rows) -> None:
    identity = (str(rows.headers), *(_at(cells, header, name) for name in _COMMON))
    kept = rows.launches.setdefault(identity, [])
    if "Metric Name" in header:
        if len(cells) <= header["Metric Value"]:
            rows.dropped += 1
        elif cells[header["Metric Name"]]:
            section, metric, unit, value = (cells[header[name]] for name in _DETAILS)
            kept.append((section, metric, unit, value))
        return
    rows.dropped += len(cells) < len(header)
    for name, i in header.items():
        if name not in _COMMON and i < len(cells) and units is not None and i < len(units):
            kept.append(("", name, units[i], cells[i]))


def _at(cells: list[str], header: Header, name: str) -> str:
    i = header.get(name)
    return cells[i] if i is not None and i < len(cells) else ""


def _row(identity: Identity, cells: list[Cell], locale: Locale, unread: dict[str, int]) -> CounterRow:
    of = dict(zip(_COMMON, identity[1:], strict=True))
    metrics: dict[str, float] = {}
    unavailable, rounded = [], []
    for section, metric, unit, text in cells:
        base = base_unit(unit)
        if text.strip().lower() in NOT_AVAILABLE:
            unavailable.append(metric)
            continue
        value = number(text, locale, base[0] if base is not None else 1.0)
        if base is None or value is None:
            if base is None or unit:  # a word without a unit (a device's name) is no damage
                why = f"unit {unit!r} is unknown" if base is None else "no number where one was due"
                unread[why] = unread.get(why, 0) + 1
            continue
        key = metric if "__" in metric else f"{section}: {metric} [{base[1]}]"
        if metrics.setdefault(key, value) != value:
            unread["a metric given twice with different values"] = (
                unread.get("a metric given twice with different values", 0) + 1
            )
        if value == 0 and rounded_to_zero(text, base[0], count=metric.endswith(".sum")):
            rounded.append(key)
    compute = [int(n) for n in re.findall(r"\d+", of["CC"])]
    return CounterRow(
        name=of["Kernel Name"],
        grid=_three(of["Grid Size"]),
        block=_three(of["Block Size"]),
        compute=(compute[0], compute[1]) if len(compute) == 2 else None,
        device=int(of["Device"]) if of["Device"].isascii() and of["Device"].isdigit() else None,
        metrics=metrics,
        unavailable=list(dict.fromkeys(unavailable)),
        rounded=rounded,
    )


def _three(text: str) -> tuple[int, int, int]:
    """`(16, 4, 1)`; zeros where the file has none (the 12 columns of old versions)."""
    found = [int(n) for n in re.findall(r"\d{1,10}", text)][:3]
    x, y, z = [*found, 1, 1][:3] if found else (0, 0, 0)
    return x, y, z
