"""Kernel sums that torch's profiler left as text or CSV -> `KernelTable`: shares of the kernel sum, nothing else.

Read are `key_averages().table()` as printed (fixed columns, also `profiler_out_*.txt` of vLLM), Markdown tables and
CSV with a name, a count and a total. In the printed table an operator's row repeats the time of its kernels, so
only rows without host time count, and of these none whose name is a host row too (the projection of an annotation).
Copies and memsets stay rows of their own. There is no timeline here: no idle time, no steps.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.trace import KernelTable, Source, TableRow
from dsv4bench.trace.blocks import blocks

LARGEST_BYTES = 64 << 20
_NAMES = ("kernel", "name", "key", "kernel name")
_PERCENTS = ("time %", "time pct", "time (%)")
_COUNTS = ("instances", "count", "calls", "# of calls")
_TOTALS = {
    "total ms": 10**6,
    "total us": 10**3,
    "total ns": 1,
    "total time (ns)": 1,
    "self cuda time total": 10**3,
    "self device time total": 10**3,
}
_RULE = re.compile(r"-{4,}(?:  -{4,})+\s*")
_SELF_DEVICE = re.compile(r"self (?:cuda|device|xpu|hip)")
_TIME = re.compile(r"(-?[\d.]+)(ns|us|ms|s)")
_UNIT_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_TOTAL_LINE = re.compile(r"Self (?:CUDA|DEVICE|Device|XPU|HIP) time total: ([\d.]+(?:ns|us|ms|s))")
_TRUNCATED = ("...",)
Line = tuple[str, int, int]  # name, count, ns


@dataclass(frozen=True, slots=True)
class _Header:
    name: int
    count: int
    total: int
    unit_ns: int
    percent: int | None


def is_torch_table(text: str) -> bool:
    """Does the beginning of a file look like one of the tables?"""
    lines = text.splitlines()[:400]
    return any(_RULE.fullmatch(line) for line in lines) or any(_header(_cells(line)) for line in lines)


def read_torch_table(path: Path, label: str | None = None) -> KernelTable:
    """The kernels of one table. Raises Unanswerable when it shows no kernel, SchemaError when it is no such table."""
    warnings: list[str] = []
    if path.stat().st_size > LARGEST_BYTES:
        raise SchemaError(f"{path}: too large for a kernel table", "give the trace itself")
    text = b"".join(blocks(path, warnings)).decode("utf-8", "replace")
    lines = text.splitlines()
    if any(_RULE.fullmatch(line) for line in lines):
        found = _printed(str(path), lines, warnings)
    else:
        found = _separated(str(path), lines, warnings)
    rows = _summed(found)
    if not rows:
        raise Unanswerable(
            f"{path}: the table shows no kernel: it is of a host-only profile",
            "profile with ProfilerActivity.CUDA, or give the trace file",
        )
    if any(row.name.endswith(_TRUNCATED) for row in rows):
        warnings.append("kernel names are cut off in this table: some may be classified wrongly, or joined")
    return KernelTable(file=str(path), source=Source.TORCH_TABLE, rows=rows, label=label, warnings=warnings)


def _printed(file: str, lines: list[str], warnings: list[str]) -> list[Line]:
    """Rows of `key_averages().table()`: three rules of dashes give the columns."""
    rules = [i for i, line in enumerate(lines) if _RULE.fullmatch(line)]
    spans = [m.span() for m in re.finditer(r"-+", lines[rules[0]])]
    title = lines[rules[0] + 1] if rules[0] + 1 < len(lines) else ""
    titles = re.split(r" {2,}", title.strip().lower())  # a title may be wider than its column
    time = next((i for i, t in enumerate(titles) if _SELF_DEVICE.fullmatch(t)), None)
    host = [i for i, t in enumerate(titles) if t in ("self cpu", "cpu total")]
    calls = titles.index("# of calls") if "# of calls" in titles else None
    if len(titles) != len(spans) or titles[0] != "name" or calls is None or not host:
        raise SchemaError(f"{file}: a table of dashes that is no key_averages() table", "give the trace itself")
    if time is None:
        return []
    body = lines[rules[1] + 1 : rules[2] if len(rules) > 2 else len(lines)] if len(rules) > 1 else []
    cells = [_cut(line, spans) for line in body if line.strip() and not line.startswith(("Self ", "="))]
    on_host = {cell[0] for cell in cells if any(_ns(cell[i]) for i in host)}
    found: list[Line] = []
    left_out = 0
    for cell in cells:
        ns, count = _ns(cell[time]), _count(cell[calls])
        if ns is None or count is None:
            left_out += 1
        elif ns and cell[0] not in on_host and all(_ns(cell[i]) == 0 for i in host):
            found.append((cell[0], count, ns))
    if left_out:
        warnings.append(f"{left_out} rows of the table cannot be read and are left out")
    _compare_total(lines, found, warnings)
    return found


def _compare_total(lines: list[str], found: list[Line], warnings: list[str]) -> None:
    said = next((m for line in lines if (m := _TOTAL_LINE.search(line))), None)
    total = _ns(said.group(1)) if said else None
    have = sum(ns for _, _, ns in found)
    if total and abs(have - total) > total / 100:
        warnings.append(
            f"the rows add up to {100 * have / total:.0f} % of the table's own device total: "
            "it was cut (row_limit) or counts annotations"
        )


def _separated(file: str, lines: list[str], warnings: list[str]) -> list[Line]:
    """Rows of a CSV or Markdown table."""
    header, found, left_out, covered = None, [], 0, Decimal(0)
    for cells in _rows(lines):
        if header is None:
            header = _header(cells)
            continue
        if set("".join(cells)) <= set("-: "):
            continue
        try:
            ns = int(Decimal(cells[header.total].replace(",", "")) * header.unit_ns)
            count = int(cells[header.count].replace(",", ""))
            name = cells[header.name].strip("` ")
        except (IndexError, InvalidOperation, ValueError, OverflowError):
            left_out += 1
            continue
        covered += _percent(cells, header)
        if 0 <= ns < 2**62 and 0 < count < 2**62:
            found.append((name, count, ns))
        else:
            left_out += 1
    if header is None:
        raise SchemaError(
            f"{file}: no table of kernels: columns for the name, the count and the total are missing",
            "give the trace itself, or a CSV with kernel, instances and total_ms",
        )
    if left_out:
        warnings.append(f"{left_out} rows of the table cannot be read and are left out")
    if header.percent is not None and covered < 99:
        warnings.append(f"the rows cover {covered:.0f} % of the kernel time by the table's own count; it was cut")
    return found


def _rows(lines: list[str]) -> Iterator[list[str]]:
    markdown = [line for line in lines if line.lstrip().startswith("|")]
    if markdown and any(_header(_cells(line)) for line in markdown):
        yield from map(_cells, markdown)
        return
    try:
        yield from csv.reader(lines)
    except csv.Error:
        return


def _cells(line: str) -> list[str]:
    if line.lstrip().startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _header(cells: list[str]) -> _Header | None:
    titles = [cell.strip().strip('"').lower().replace("_", " ") for cell in cells]
    name = next((titles.index(n) for n in _NAMES if n in titles), None)
    count = next((titles.index(n) for n in _COUNTS if n in titles), None)
    total = next((n for n in _TOTALS if n in titles), None)
    if name is None or count is None or total is None:
        return None
    percent = next((titles.index(p) for p in _PERCENTS if p in titles), None)
    return _Header(name, count, titles.index(total), _TOTALS[total], percent)


def _percent(cells: list[str], header: _Header) -> Decimal:
    try:
        percent = Decimal(cells[header.percent]) if header.percent is not None else Decimal(0)
    except (IndexError, InvalidOperation):
        return Decimal(0)
    return percent if percent.is_finite() else Decimal(0)


def _cut(line: str, spans: list[tuple[int, int]]) -> list[str]:
    return [line[start:end].strip() for start, end in spans]


def _ns(cell: str) -> int | None:
    found = _TIME.fullmatch(cell)
    try:
        return int(Decimal(found.group(1)) * _UNIT_NS[found.group(2)]) if found else None
    except (InvalidOperation, OverflowError):
        return None


def _count(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdecimal() and len(cell) < 18 else None


def _summed(lines: list[Line]) -> list[TableRow]:
    sums: dict[str, tuple[int, int]] = {}
    for name, count, ns in lines:
        have = sums.get(name, (0, 0))
        sums[name] = have[0] + count, have[1] + ns
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    return [TableRow(name=name, count=count, time_ns=ns) for name, (count, ns) in ordered]
