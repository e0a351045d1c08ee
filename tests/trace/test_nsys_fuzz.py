"""A damaged export is an error that says so: no traceback, no hang."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from nsys_made import Made, decode, kernel, thread

from dsv4bench.errors import BenchError, SchemaError
from dsv4bench.trace.nsys import is_nsys_sqlite, read_nsys_sqlite


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Small pages, so that a few kilobytes have trees, leaves and a schema that spans pages."""
    made = Made(tmp_path_factory.mktemp("made") / "x.sqlite", page_size=512)
    made.kernels(*(kernel(i * 1000, i * 1000 + 500, correlationId=i) for i in range(40)))
    made.calls(
        *({"start": i, "end": i + 1, "globalTid": thread(), "correlationId": i, "nameId": 10} for i in range(40))
    )
    made.ranges({"start": 0, "end": 9000, "eventType": 59, "textId": 20, "globalTid": thread()})
    made.gpus(0)
    return made.done().read_bytes()


def outcome(path: Path, raw: bytes) -> str:
    path.write_bytes(raw)
    is_nsys_sqlite(path)
    try:
        read_nsys_sqlite(path)
    except BenchError as error:
        assert error.message and error.hint
        return type(error).__name__
    return "read"


def test_truncation_at_any_offset_is_seen(tmp_path: Path, small: bytes) -> None:
    for size in range(0, len(small), 37):
        assert outcome(tmp_path / "x.sqlite", small[:size]) == "SchemaError", size


def test_truncation_that_the_header_does_not_tell(tmp_path: Path, small: bytes) -> None:
    """A header without its own page count (as very old SQLite wrote it) hides the loss: the pages must show it."""
    raw = bytearray(small)
    raw[92:96] = bytes(4)
    for size in range(0, len(raw), 331):
        assert outcome(tmp_path / "x.sqlite", bytes(raw[:size])) == "SchemaError", size


def test_flipped_bytes(tmp_path: Path, small: bytes) -> None:
    chance = random.Random(4)
    seen = set()
    for _ in range(250):
        raw = bytearray(small)
        for _ in range(chance.choice((1, 1, 4, 40))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        seen.add(outcome(tmp_path / "x.sqlite", bytes(raw)))
    assert {"read", "SchemaError"} <= seen


def test_flipped_bytes_of_the_schema(tmp_path: Path, small: bytes) -> None:
    chance = random.Random(5)
    for _ in range(120):
        raw = bytearray(small)
        raw[chance.randrange(100, 512)] = chance.randrange(256)
        outcome(tmp_path / "x.sqlite", bytes(raw))


def test_every_page_replaced_by_another(tmp_path: Path, small: bytes) -> None:
    pages = [small[at : at + 512] for at in range(0, len(small), 512)]
    for place in range(1, len(pages)):
        other = [*pages[:place], pages[(place * 7) % len(pages)], *pages[place + 1 :]]
        outcome(tmp_path / "x.sqlite", b"".join(other))


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds", "DIAGNOSTIC_EVENT"])
def test_a_view_in_the_place_of_a_table_is_no_table(tmp_path: Path, table: str) -> None:
    """A view would let a file run its own queries."""
    made = Made(tmp_path / "x.sqlite")
    made.db.execute("DROP TABLE StringIds")
    made.db.execute(
        f"CREATE VIEW {table} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
        'SELECT x AS start, x AS "end", x AS id, x AS value, x AS text FROM n'
    )
    made.table("META_DATA_CAPTURE", "name TEXT, value TEXT")
    with pytest.raises(BenchError, match="no event at all"):
        read_nsys_sqlite(made.done())


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    """Whatever makes SQLite walk in circles may take the steps that the file has bytes for, and no more."""
    path = decode(tmp_path / "x.sqlite", "2025")
    with pytest.raises(SchemaError, match="interrupted"):
        endless(path)


def endless(path: Path) -> None:
    from dsv4bench.trace.nsys_database import NsysDatabase

    with NsysDatabase(path) as db:
        db.rows("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")


def test_a_missing_time_column_is_named(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.rows("CUPTI_ACTIVITY_KIND_KERNEL", "start deviceId", {"start": 5})
    with pytest.raises(SchemaError, match="has no column 'end'"):
        read_nsys_sqlite(made.done())


def test_tables_of_the_right_names_and_no_known_column(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    for table in (
        "TARGET_INFO_GPU",
        "META_DATA_CAPTURE",
        "DIAGNOSTIC_EVENT",
        "TARGET_INFO_GPU_METRICS",
        "GPU_METRICS",
    ):
        made.table(table, "other BLOB")
        made.db.execute(f"INSERT INTO {table} VALUES (x'00ff')")
    made.kernels(kernel(1000, 1500))
    (trace,) = read_nsys_sqlite(made.done())
    assert len(trace) == 1
