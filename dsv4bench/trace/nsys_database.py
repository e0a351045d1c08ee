"""A SQLite export of Nsight Systems, opened so that it cannot be changed, read by column into integers.

Exports of 2022 to 2026 differ in tables and columns, so both are asked for, never assumed. `blocks` is strict: a text
or a real where an integer belongs is an error with the table's name, never a zero. A damaged file costs at most a
bounded number of steps: SQLite's own counter stops a query that takes more of them than the file has room for. No
index is added, no journal is read, and the file's bytes stay as they are.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from types import TracebackType

import numpy as np

from dsv4bench.errors import SchemaError, UsageError
from dsv4bench.records.trace import Ints
from dsv4bench.trace.nsys_pages import Damaged, TablePages, Unfit

MAGIC = b"SQLite format 3\0"
_BLOCK_ROWS = 32_768
_STEPS = 1_000_000  # virtual-machine steps between two looks at the budget
_STEPS_A_BYTE = 50  # reading a row takes about one step a column, and a column has at least one byte
_EXPORT_AGAIN = (
    "export it again: nsys export --type sqlite --force-overwrite true --output NEW.sqlite REPORT.nsys-rep"
)


Wanted = tuple[str, int]  # a column, and the integer that stands for NULL


class NsysDatabase:
    """Tables, columns and rows of one export. Every failure of the file is a SchemaError that names it."""

    def __init__(self, path: Path, shown: str | None = None) -> None:
        self.path = path
        self.shown = shown or str(path)
        self.warnings: list[str] = []
        self._size = self._checked_size()
        self._budget = 0
        self._columns: dict[str, tuple[str, ...]] = {}
        with self._damage("it cannot be opened"):
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        try:
            self._prepare()
        except SchemaError:
            self._connection.close()
            raise

    def __enter__(self) -> NsysDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def has(self, table: str) -> bool:
        return table in self._columns

    def columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table; none where the file lacks the table."""
        return self._columns.get(table, ())

    def rows(self, query: str, parameters: Sequence[int | str] = ()) -> list[tuple[object, ...]]:
        """All rows of a small query."""
        self._budget = 0
        with self._damage(f"`{query.split(' WHERE ')[0]}` fails"):
            return self._connection.execute(query, parameters).fetchall()

    def any_rows(self, table: str) -> bool:
        return self.has(table) and bool(self.rows(f'SELECT 1 FROM "{table}" LIMIT 1'))

    def number(self, query: str) -> int:
        """The one integer a query gives, 0 for NULL."""
        value = self.rows(query)[0][0]
        return value if isinstance(value, int) else 0

    def texts(self, query: str) -> Iterator[object]:
        """The first column of every row, in the file's order."""
        self._budget = 0
        with self._damage(f"`{query.split(' WHERE ')[0]}` fails"):
            for row in self._connection.execute(query):
                yield row[0]

    def blocks(self, table: str, columns: Sequence[Wanted], where: str = "") -> Iterator[Ints]:
        """Arrays (rows, columns) of int64, in the file's order; a column that is not there is its value for NULL."""
        done = 0
        if not where:
            try:
                for block in self._pages(table, columns):
                    done += len(block)
                    yield block
                return
            except Unfit:
                pass  # SQLite reads on from here, and says what is wrong if something is
            except Damaged as error:
                raise SchemaError(f"{self.shown} is damaged: {table}: {error}", _EXPORT_AGAIN) from error
        present = self.columns(table)
        shown = ", ".join(f'ifnull("{name}", {null})' if name in present else str(null) for name, null in columns)
        # NOT INDEXED: an index that covers the columns would give the rows in its own order
        query = f'SELECT {shown} FROM "{table}" NOT INDEXED WHERE {where or "1"} LIMIT -1 OFFSET {done}'
        self._budget = 0
        with self._damage(f"{table} cannot be read as integers"):
            cursor = self._connection.execute(query)
            while values := array("q", chain.from_iterable(islice(cursor, _BLOCK_ROWS))):
                yield np.frombuffer(values, dtype=np.int64).reshape(-1, len(columns))

    def _pages(self, table: str, columns: Sequence[Wanted]) -> Iterator[Ints]:
        """The same from the pages; Unfit where only SQLite knows: rowid aliases, generated columns, odd records."""
        present = self.columns(table)
        layout = self.rows(f'PRAGMA table_xinfo("{table}")')
        if any(column[5] or column[6] for column in layout):
            raise Unfit(table)
        (root,) = self.rows("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))[0]
        with self.path.open("rb") as file:
            pages = TablePages(file, root if isinstance(root, int) else 0, len(layout))
            there = [place for place, (name, _) in enumerate(columns) if name in present]
            for found in pages.blocks([(present.index(columns[place][0]), columns[place][1]) for place in there]):
                if len(there) == len(columns):
                    yield found
                    continue
                block: Ints = np.empty((len(columns), len(found)), np.int64).T
                block[:] = [null for _, null in columns]
                block[:, there] = found
                yield block

    def _checked_size(self) -> int:
        """The file's size, after the header's own word on how many bytes there should be."""
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                header = file.read(100)
        except OSError as error:
            raise UsageError(f"{self.shown} cannot be read: {error.strerror}", "check the path") from error
        if not header.startswith(MAGIC) or len(header) < 100:
            raise SchemaError(f"{self.shown} is no SQLite file", "give an nsys export (.sqlite) or a .nsys-rep")
        page, changes, pages, valid_for = (
            *struct.unpack_from(">H", header, 16),
            *struct.unpack_from(">II", header, 24),
            *struct.unpack_from(">I", header, 92),
        )
        page_bytes = 65536 if page == 1 else page
        promised = pages * page_bytes if changes == valid_for else 0
        if promised > size or page_bytes == 0 or size % page_bytes:
            what = f"{size} of {promised} bytes are there" if promised else f"{size} bytes are no whole pages"
            raise SchemaError(f"{self.shown} is cut off: {what}", _EXPORT_AGAIN)
        for suffix in ("-wal", "-journal"):
            beside = self.path.with_name(self.path.name + suffix)
            if beside.is_file() and beside.stat().st_size > 0:
                self.warnings.append(
                    f"{beside.name} lies beside the export and is not read: the export may be unfinished"
                )
        return size

    def _prepare(self) -> None:
        connection = self._connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_progress_handler(self._spent, _STEPS)
        for pragma in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON"):
            self.rows(f"PRAGMA {pragma}")
        for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
            if isinstance(name, str) and '"' not in name:
                found = self.rows(f'PRAGMA table_info("{name}")')
                self._columns[name] = tuple(str(column[1]) for column in found)

    def _spent(self) -> bool:
        self._budget += _STEPS
        return self._budget > self._size * _STEPS_A_BYTE + _STEPS * 10

    @contextmanager
    def _damage(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, TypeError, ValueError, OverflowError) as error:
            said = "".join(c for c in str(error) if c.isprintable())[:100]  # it may quote the damaged bytes
            raise SchemaError(
                f"{self.shown} is damaged or of another kind: {what} ({said})", _EXPORT_AGAIN
            ) from error
