"""The CSV that `nsys stats --report cuda_gpu_kern_sum --format csv` prints, as a `KernelTable`: sums, no timeline.

Read are its headers from 2020 on (`Time(%)`, `Average`; `Time (%)`, `Avg (ns)`), any --timeunit, the grid-and-block
and the kernels-and-copies variants, and numbers as a locale writes them. A preamble ("Processing […]") and other
reports in the same output are passed over. Its `Time (%)` is of the sum over all devices and streams; shares are
computed anew from the times, and a table with less time than its own percents speak of is said to be cut.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path

from dsv4bench.errors import SchemaError, Unanswerable, UsageError
from dsv4bench.records.trace import KernelTable, Source, TableRow
from dsv4bench.trace.nsys_table_header import Header, header_of, locale_number

_MAX_BYTES = 64 << 20
_HEAD_BYTES = 65536
_CUT_BELOW = Decimal("0.99")
_PERCENT_ROUNDING = Decimal("0.05")
_ALLOWED_OFF = Decimal("0.02")  # of a row's time, beside the rounding of its average
_REPORT = "nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep"


def is_nsys_stats(path: Path) -> bool:
    """Does the file hold a kernel summary of `nsys stats`, or nsys' word that there is none?"""
    try:
        with path.open("rb") as file:
            text = _text(file.read(_HEAD_BYTES))
    except OSError:
        return False
    return _says_nothing(text) or any(header_of(line) for line in text.splitlines())


def read_nsys_stats(path: Path, label: str | None = None) -> KernelTable:
    """The first kernel summary in the file.

    Raises Unanswerable where nsys says that there were no kernels, SchemaError where the file is of another kind.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SchemaError(f"{path} is too large for a table of `nsys stats`", f"make it with {_REPORT}")
        text = _text(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    lines = text.splitlines()
    tables = [(number, found) for number, line in enumerate(lines) if (found := header_of(line))]
    if not tables:
        if _says_nothing(text):
            raise Unanswerable(
                f"{path}: nsys found no kernel in this capture",
                "record with -t cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true",
            )
        raise SchemaError(f"{path} holds no kernel summary of `nsys stats`", f"make it with {_REPORT}")
    first, header = tables[0]
    table = _Table(path, header)
    for row in _rows(path, lines[first + 1 :], header.separator):
        table.add(row)
    if not table.times:
        raise Unanswerable(f"{path}: the kernel summary has no row", f"record again, then {_REPORT}")
    warnings = table.warnings()
    if len(tables) > 1:
        warnings.append(f"{len(tables)} kernel summaries in one file: the first is read, the others are not")
    return KernelTable(str(path), Source.NSYS_STATS, table.rows(), label, warnings)


class _Table:
    """Rows of one name summed: grids of one kernel are one kernel here."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path, self._header = path, header
        self.times: dict[str, tuple[int, int]] = {}
        self._largest = (Decimal(0), Decimal(0))  # time and percent of one row
        self._odd = 0

    def add(self, row: list[str]) -> None:
        header = self._header
        if len(row) != header.width:
            raise SchemaError(
                f"{self._path}: a row has {len(row)} columns, the header {header.width}: {','.join(row)[:80]!r}",
                f"the table is cut off, or its decimals are commas: make it again with LC_ALL=C {_REPORT}",
            )
        if header.category is not None and row[header.category].strip() != "CUDA_KERNEL":
            return
        time = self._number(row[header.time], whole=header.unit_ns == 1) * header.unit_ns
        count = self._number(row[header.count], whole=True)
        average = None
        if header.average is not None:
            average = self._number(row[header.average], whole=False) * (header.average_unit_ns or header.unit_ns)
        if header.percent is not None:
            self._largest = max(self._largest, (time, self._number(row[header.percent], whole=False)))
        if average is not None and abs(average * count - time) > time * _ALLOWED_OFF + count * header.unit_ns:
            self._odd += 1
        name = row[header.name].strip()
        had_count, had_time = self.times.get(name, (0, 0))
        whole_ns = int(time.to_integral_value(ROUND_HALF_EVEN))
        self.times[name] = (had_count + int(count), had_time + whole_ns)

    def rows(self) -> list[TableRow]:
        found = [TableRow(name, count, time) for name, (count, time) in self.times.items()]
        return sorted(found, key=lambda row: (-row.time_ns, row.name))

    def warnings(self) -> list[str]:
        found = []
        there = self._share_there()
        if there is not None and there < _CUT_BELOW:
            found.append(f"the table is cut: its rows are {100 * there:.0f} % of the time its percents speak of")
        if self._odd:
            found.append(f"{self._odd} rows where count times average is not the total: numbers may be misread")
        return found

    def _share_there(self) -> Decimal | None:
        """The rows' time as a share of what the largest row's percent implies, rounding given away."""
        time, percent = self._largest
        if not time or not percent or self._header.category is not None:
            return None
        implied = time * 100 / (percent + _PERCENT_ROUNDING)
        return sum((total for _, total in self.times.values()), Decimal(0)) / implied

    def _number(self, text: str, whole: bool) -> Decimal:
        try:
            number = locale_number(text, whole)
        except InvalidOperation:
            number = Decimal(-1)
        if not 0 <= number < Decimal(2**62):
            raise SchemaError(
                f"{self._path}: {text[:40]!r} is no number of a kernel summary",
                f"make the table again with LC_ALL=C {_REPORT}",
            )
        return number


def _rows(path: Path, lines: list[str], separator: str) -> Iterator[list[str]]:
    """Rows up to the blank line that ends a report."""
    try:
        for row in csv.reader(lines, delimiter=separator, strict=True):
            if not any(cell.strip() for cell in row):
                return
            yield row
    except csv.Error as error:
        raise SchemaError(f"{path}: the table is damaged ({error})", f"make it again with {_REPORT}") from error


def _says_nothing(text: str) -> bool:
    return "does not contain CUDA kernel data" in text


def _text(raw: bytes) -> str:
    """UTF-8, or the UTF-16 of a PowerShell redirection."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")
