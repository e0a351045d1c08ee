"""Integer columns straight from SQLite's table pages: four times the speed of a row at a time, or not at all.

A million kernels of forty columns cost Python's sqlite3 one object a value. The file format is fixed and public
(sqlite.org/fileformat2.html): a table is a tree of pages, a leaf holds cells, a cell is a payload length, a rowid and
a record, a record is one type byte a column and then the values, big-endian. This module walks the tree, each page
once, and decodes a batch of leaves column by column. It reads plain records only: one-byte types, no overflow pages,
integers and NULL in the wanted columns, lengths that add up. Anything else is `Unfit`, and the caller asks SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import Ints

_LEAF, _INTERIOR = 0x0D, 0x05
_BATCH_BYTES = 1 << 22
_MAX_DEPTH = 20
_WORD = 8  # a value is read as eight bytes, whatever its length
_LONGEST = 57  # bytes of the largest value that a one-byte type can announce
_NULL, _ZERO, _ONE = 0, 8, 9
_LENGTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *[(kind - 12) // 2 for kind in range(12, 128)]], np.int64)
_SHIFTS = np.array([0, 56, 48, 40, 32, 16, 0, 0, 0, 0], np.int64)
_REAL = 7

Buffer = npt.NDArray[np.uint8]


class Unfit(Exception):
    """The table holds something that this module does not read."""


class Damaged(Exception):
    """The tree itself is wrong in a way that SQLite does not notice."""


class TablePages:
    """The leaves of one table. `root` is its root page, `width` the number of its columns."""

    def __init__(self, file: BinaryIO, root: int, width: int) -> None:
        self._file, self._width = file, width
        file.seek(0)
        header = file.read(100)
        size = int.from_bytes(header[16:18], "big")
        self._page_bytes = 65536 if size == 1 else size
        self._usable = self._page_bytes - header[20]
        if self._page_bytes < 512 or self._usable < 480 or root < 2 or not 0 < width < 127:
            raise Unfit("geometry")
        self._leaves = self._leaf_pages(root)

    def blocks(self, columns: Sequence[tuple[int, int]]) -> Iterator[Ints]:
        """Arrays (rows, wanted) in the table's order. `columns`: (position in the table, value for NULL)."""
        at_once = max(1, _BATCH_BYTES // self._page_bytes)
        for first in range(0, len(self._leaves), at_once):
            pages = self._leaves[first : first + at_once]
            block = self._decode(self._read(pages), len(pages), columns)
            if len(block):
                yield block

    def _leaf_pages(self, root: int) -> list[int]:
        """Page numbers of the leaves, in key order. A page met twice is damage: its rows would count twice."""
        seen: set[int] = set()
        level = [root]
        for _ in range(_MAX_DEPTH):
            if not level:
                return []
            if len(set(level)) != len(level) or seen.intersection(level):
                raise Damaged("a page is used twice")
            seen.update(level)
            kind = self._page(level[0])[0]
            if kind == _LEAF:
                return level
            level = [child for page in level for child in self._children(page)]
        raise Unfit("too deep a tree")

    def _children(self, number: int) -> list[int]:
        page = self._page(number)
        cells = int.from_bytes(page[3:5], "big")
        if page[0] != _INTERIOR or 12 + 2 * cells > self._usable:
            raise Unfit("not an interior page")
        pointers = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
        if any(pointer + 4 > self._usable for pointer in pointers):
            raise Unfit("a cell outside its page")
        children = [int.from_bytes(page[pointer : pointer + 4], "big") for pointer in pointers]
        return [*children, int.from_bytes(page[8:12], "big")]

    def _page(self, number: int) -> bytes:
        if number < 2:
            raise Unfit("page number")
        self._file.seek((number - 1) * self._page_bytes)
        page = self._file.read(self._page_bytes)
        if len(page) < self._page_bytes:
            raise Unfit("a page outside the file")
        return page

    def _read(self, pages: Sequence[int]) -> Buffer:
        """These pages one after the other; neighbours in the file are read at once."""
        runs: list[list[int]] = []
        for page in pages:
            if runs and page == runs[-1][-1] + 1:
                runs[-1].append(page)
            else:
                runs.append([page])
        parts = []
        for run in runs:
            if run[0] < 2:
                raise Unfit("page number")
            self._file.seek((run[0] - 1) * self._page_bytes)
            parts.append(self._file.read(len(run) * self._page_bytes))
        padding = _WORD + _LONGEST * self._width  # types that lie point past the last page, not past the buffer
        joined = b"".join([*parts, bytes(padding)])
        if len(joined) != len(pages) * self._page_bytes + padding:
            raise Unfit("a page outside the file")
        return np.frombuffer(joined, np.uint8)

    def _decode(self, data: Buffer, pages: int, columns: Sequence[tuple[int, int]]) -> Ints:
        at, end = self._records(data, pages)
        block: Ints = np.empty((len(columns), len(at)), np.int64).T  # a column lies in one piece
        if not len(at):
            return block
        wanted: dict[int, list[tuple[int, int]]] = {}
        for place, (column, if_null) in enumerate(columns):
            wanted.setdefault(column, []).append((place, if_null))
        words: Ints = np.ndarray((len(data) - _WORD + 1,), ">i8", data, strides=(1,))
        records = np.ndarray((len(data) - self._width + 1,), f"V{self._width}", data, strides=(1,))
        kinds = records[at + 1].view(np.uint8).reshape(len(at), self._width)
        lowest, highest = kinds.min(axis=0).tolist(), kinds.max(axis=0).tolist()
        if max(highest) > 127:
            raise Unfit("a type of more than one byte")
        value_at = at + self._width + 1
        for column, (low, high) in enumerate(zip(lowest, highest, strict=True)):
            kind = kinds[:1, column] if low == high else kinds[:, column]  # most columns have one type in a block
            for place, if_null in wanted.get(column, ()):
                block[:, place] = _integers(words, kind, value_at, if_null)
            if low != high or _LENGTHS[low]:
                value_at += _LENGTHS[kind]
        if not np.array_equal(value_at, end):
            raise Unfit("lengths do not add up")
        return block

    def _records(self, data: Buffer, pages: int) -> tuple[Ints, Ints]:
        """Where each record starts and ends."""
        starts = np.arange(pages, dtype=np.int64) * self._page_bytes
        cells = _big16(data, starts + 3)
        if np.any(data[starts] != _LEAF) or np.any(8 + 2 * cells > self._usable):
            raise Unfit("not a leaf page")
        base = np.repeat(starts, cells)
        slot = np.arange(len(base)) - np.repeat(np.cumsum(cells) - cells, cells)
        at = base + _big16(data, base + 8 + 2 * slot)
        limit = base + self._usable
        if np.any(at + 4 > limit):  # no record is shorter
            raise Unfit("a cell outside its page")
        length = data[at].astype(np.int64)
        long = length > 127
        second = data[at[long] + 1]
        if np.any(second > 127):
            raise Unfit("a large record")
        length[long] = ((length[long] & 127) << 7) | second
        at = _after_varint(data, at + 1 + long, limit)
        end = at + length
        header = self._width + 1  # a length and one byte a column
        if np.any(end > limit) or np.any(at + header > end) or np.any(data[at] != header):
            raise Unfit("overflow, or records of another width")
        return at, end


def _after_varint(data: Buffer, at: Ints, limit: Ints) -> Ints:
    """Past the rowids, of which most have two or three bytes."""
    at = at + 1
    going_on = np.flatnonzero(data[at - 1] > 127)
    for _ in range(_WORD):
        if np.any(at[going_on] >= limit[going_on]):
            raise Unfit("a cell outside its page")
        if not going_on.size:
            return at
        at[going_on] += 1
        going_on = going_on[data[at[going_on] - 1] > 127]
    raise Unfit("a long rowid")


def _big16(data: Buffer, at: Ints) -> Ints:
    high: Ints = data[at].astype(np.int64) << 8
    return high | data[at + 1]


def _integers(words: Ints, kind: Buffer, at: Ints, if_null: int) -> Ints:
    """The values of one column, or the one value: SQLite's types 1 to 6, the constants 0 and 1, and NULL.

    `kind` has one type a row, or one for all rows.
    """
    if int(kind.max()) > _ONE or np.any(kind == _REAL):
        raise Unfit("not an integer")
    if len(kind) == 1 and (kind[0] >= _ZERO or kind[0] == _NULL):
        return np.array([if_null if kind[0] == _NULL else int(kind[0]) - _ZERO], np.int64)
    values: Ints = words[at].astype(np.int64) >> _SHIFTS[kind]
    constant = (kind >= _ZERO) | (kind == _NULL)
    if constant.any():
        values[kind == _ZERO] = 0
        values[kind == _ONE] = 1
        values[kind == _NULL] = if_null
    return values
