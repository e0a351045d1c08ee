"""Integers from pages are SQLite's own integers, and what the pages cannot say is left to SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv4bench.errors import SchemaError
from dsv4bench.trace.nsys_database import NsysDatabase
from dsv4bench.trace.nsys_pages import Damaged, TablePages, Unfit

EDGES = [0, 1, 2, -1, 127, 128, -128, -129, 32767, -32769, 1 << 23, -(1 << 23), 1 << 31, 1 << 40, 1 << 47, 1 << 55]
WORD = st.one_of(
    st.none(), st.sampled_from([*EDGES, (1 << 63) - 1, -(1 << 63)]), st.integers(-(1 << 63), (1 << 63) - 1)
)


def table(path: Path, rows: list[tuple[object, ...]], page_size: int = 512, columns: str = "a, b, c") -> int:
    """A file with the table t; its root page."""
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA page_size = {page_size}")
    db.execute(f"CREATE TABLE t ({columns})")
    marks = ", ".join("?" * len(columns.split(",")))
    db.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    db.commit()
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()
    db.close()
    return int(root)


def pages(path: Path, root: int, wanted: list[tuple[int, int]], width: int = 3) -> list[list[int]]:
    with path.open("rb") as file:
        return [row for block in TablePages(file, root, width).blocks(wanted) for row in block.tolist()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(WORD, WORD, WORD), max_size=60), page_size=st.sampled_from([512, 4096, 65536]))
def test_every_integer_and_null(tmp_path: Path, rows: list[tuple[int | None, ...]], page_size: int) -> None:
    root = table(tmp_path / "x.sqlite", list(rows), page_size)
    found = pages(tmp_path / "x.sqlite", root, [(2, -7), (0, 9)])
    assert found == [[-7 if c is None else c, 9 if a is None else a] for a, _, c in rows]


def test_a_tree_of_three_levels(tmp_path: Path) -> None:
    rows = [(i, i * i, -i) for i in range(20_000)]
    root = table(tmp_path / "x.sqlite", list(rows))
    assert pages(tmp_path / "x.sqlite", root, [(0, 0), (1, 0), (2, 0)]) == [list(row) for row in rows]


def test_rows_deleted_between_others_are_gone(tmp_path: Path) -> None:
    root = table(tmp_path / "x.sqlite", [(i, 0, 0) for i in range(2000)])
    db = sqlite3.connect(tmp_path / "x.sqlite")
    db.execute("DELETE FROM t WHERE a % 3 = 0")
    db.commit()
    db.close()
    assert pages(tmp_path / "x.sqlite", root, [(0, 0)]) == [[i] for i in range(2000) if i % 3]


def test_a_text_beside_the_wanted_columns_is_passed_over(tmp_path: Path) -> None:
    root = table(tmp_path / "x.sqlite", [(1, "short", 2), (3, None, 4), (5, 6.5, 7)])
    assert pages(tmp_path / "x.sqlite", root, [(0, 0), (2, 0)]) == [[1, 2], [3, 4], [5, 7]]


@pytest.mark.parametrize(
    "row",
    [("text", 0, 0), (1.5, 0, 0), (b"blob", 0, 0), (0, "t" * 60, 0), (0, "t" * 5000, 0)],
    ids=["text", "real", "blob", "long text", "overflow"],
)
def test_what_pages_do_not_say_is_unfit_and_sqlite_answers(tmp_path: Path, row: tuple[object, ...]) -> None:
    path = tmp_path / "x.sqlite"
    root = table(path, [(1, 2, 3), row])
    with pytest.raises(Unfit):
        pages(path, root, [(0, 0)])
    if isinstance(row[0], int):
        with NsysDatabase(path) as db:
            assert [r for block in db.blocks("t", [("a", 0), ("c", 0)]) for r in block.tolist()] == [[1, 3], [0, 0]]


def test_sqlite_reads_on_where_the_pages_end(tmp_path: Path) -> None:
    """The odd record lies in a later batch: no row comes twice and none is lost."""
    path = tmp_path / "x.sqlite"
    rows: list[tuple[object, ...]] = [(i, 0, 0) for i in range(200_000)]
    rows[150_000] = (150_000, "t" * 60, 0)
    table(path, rows, 65536)
    with NsysDatabase(path) as db:
        found = np.concatenate(list(db.blocks("t", [("a", 0)])))[:, 0]
    assert np.array_equal(found, np.arange(200_000))


@pytest.mark.parametrize("columns", ["a INTEGER PRIMARY KEY, b, c", "a, b, c AS (a + 1) VIRTUAL"])
def test_rowid_aliases_and_generated_columns_are_sqlites(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "x.sqlite"
    db = sqlite3.connect(path)
    db.execute(f"CREATE TABLE t ({columns})")
    db.execute("INSERT INTO t (a, b) VALUES (41, 5)")
    db.commit()
    db.close()
    with NsysDatabase(path) as db_read:
        assert [r for block in db_read.blocks("t", [("a", 0), ("b", 0)]) for r in block.tolist()] == [[41, 5]]


def test_columns_added_later_have_their_default(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    table(path, [(1, 2, 3)])
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 12")
    db.commit()
    db.close()
    with NsysDatabase(path) as db_read:
        assert [r for block in db_read.blocks("t", [("d", 0), ("e", 5)]) for r in block.tolist()] == [[12, 5]]


def test_a_page_used_twice_does_not_count_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    root = table(path, [(i, 0, 0) for i in range(300)])
    raw = bytearray(path.read_bytes())
    at = (root - 1) * 512
    assert raw[at] == 0x05, "the root is an interior page"
    first = at + int.from_bytes(raw[at + 12 : at + 14], "big")
    raw[at + 8 : at + 12] = raw[first : first + 4]
    path.write_bytes(raw)
    with pytest.raises(Damaged, match="twice"):
        pages(path, root, [(0, 0)])
    with NsysDatabase(path) as db, pytest.raises(SchemaError, match="a page is used twice"):
        list(db.blocks("t", [("a", 0)]))
