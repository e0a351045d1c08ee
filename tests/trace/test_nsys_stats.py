"""Kernel summaries of `nsys stats`, as its versions and locales print them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest

from dsv4bench.errors import SchemaError, Unanswerable, UsageError
from dsv4bench.records.trace import Source
from dsv4bench.trace.nsys_stats import is_nsys_stats, read_nsys_stats
from dsv4bench.trace.nsys_table_header import locale_number

NEW = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
GEMV = "61.6,6160,4,1540.0,1540.0,1500,1600,40.0,_mxfp4_slot_gemv_kernel"
ATTENTION = '38.4,3840,2,1920.0,1920.0,1900,1940,20.0,"void attn::decode<(int)4, ""x"">(float *, int)"'
TABLE = f"{NEW}\n{GEMV}\n{ATTENTION}\n"


def rows(tmp_path: Path, text: str | bytes) -> list[tuple[str, int, int]]:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert is_nsys_stats(path)
    table = read_nsys_stats(path, "A")
    assert (table.source, table.label, table.warnings) == (Source.NSYS_STATS, "A", [])
    return [(row.name, row.count, row.time_ns) for row in table.rows]


EXPECTED = [("_mxfp4_slot_gemv_kernel", 4, 6160), ('void attn::decode<(int)4, "x">(float *, int)', 2, 3840)]
PREAMBLE = (
    "Generating SQLite file r.sqlite from r.nsys-rep\n"
    "Processing [r.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]... \n\n"
)
API = (
    "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "100.0,5,1,5.0,5.0,5,5,0.0,cudaLaunchKernel\n\n"
)
OLD = (
    "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n"
    "61.6,6160,4,1540.0,1500,1600,_mxfp4_slot_gemv_kernel\n"
    '38.4,3840,2,1920.0,1900,1940,"void attn::decode<(int)4, ""x"">(float *, int)"\n'
)
GROUPED = (
    f"{NEW}\n"
    '"61,6","6.160","4","1.540,0","1.540,0","1.500","1.600","40,0","_mxfp4_slot_gemv_kernel"\n'
    '"38,4","3 840","2","1\u202f920,0","1,0","1","1","20,0","void attn::decode<(int)4, ""x"">(float *, int)"\n'
)
MICRO = (
    TABLE.replace("(ns)", "(us)")
    .replace(",6160,4,1540.0", ",6.160,4,1.540")
    .replace(",3840,2,1920.0", ",3.840,2,1.92")
)
BY_GRID = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name\n"
    '61.6,6000,3,2000.0,1540.0,1500,1600,40.0,"  64    1    1",128 1 1,_mxfp4_slot_gemv_kernel\n'
    '0.0,160,1,160.0,1540.0,1500,1600,40.0,"   1    1    1",128 1 1,_mxfp4_slot_gemv_kernel\n'
    '38.4,3840,2,1920.0,1920.0,1900,1940,20.0,1 1 1,1 1 1,"void attn::decode<(int)4, ""x"">(float *, int)"\n'
)
WITH_COPIES = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Category,Operation\n"
    "90.0,90000,1,90000.0,1,1,1,0.0,MEMORY_OPER,[CUDA memcpy Host-to-Device]\n"
    "6.1,6160,4,1540.0,1,1,1,0.0,CUDA_KERNEL,_mxfp4_slot_gemv_kernel\n"
    '3.9,3840,2,1920.0,1,1,1,0.0,CUDA_KERNEL,"void attn::decode<(int)4, ""x"">(float *, int)"\n'
)


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TABLE.replace("\n", "\r\n"),
        PREAMBLE + TABLE,
        PREAMBLE + API + PREAMBLE + TABLE + "\n" + PREAMBLE + API,
        OLD,
        OLD.replace("Total Time (ns)", "Total Time"),
        GROUPED,
        GROUPED.replace('","', '";"')
        .replace(",", "\1")
        .replace(NEW.replace(",", "\1"), NEW.replace(",", ";"))
        .replace("\1", ","),
        MICRO,
        BY_GRID,
        WITH_COPIES,
        b"\xef\xbb\xbf" + TABLE.encode(),
        TABLE.encode("utf-16"),
    ],
    ids=[
        *("new", "crlf", "preamble", "among others", "2020", "no unit", "commas", "semicolons", "us", "by grid"),
        *("with copies", "bom", "utf-16"),
    ],
)
def test_every_spelling_is_the_same_table(tmp_path: Path, text: str | bytes) -> None:
    assert rows(tmp_path, text) == EXPECTED


@pytest.mark.parametrize(
    ("text", "whole", "number"),
    [
        ("61,602,133", True, "61602133"),
        ("61.602.133", True, "61602133"),
        ("61 602 133", True, "61602133"),
        ("1.234", True, "1234"),
        ("1.234", False, "1.234"),
        ("34,4", False, "34.4"),
        ("1.234,5", False, "1234.5"),
        ("1,234.5", False, "1234.5"),
        ("41259.0", True, "41259.0"),
    ],
)
def test_numbers_of_a_locale(text: str, whole: bool, number: str) -> None:
    assert locale_number(text, whole) == Decimal(number)


@pytest.mark.parametrize("text", ["", "NaN", "Infinity", "-5", "1e9", "12x", "1,2.3,4", "²"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(InvalidOperation):
        locale_number(text, whole=True)


def test_a_table_that_lost_its_tail_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{NEW}\n{GEMV}\n")
    assert read_nsys_stats(path).warnings == ["the table is cut: its rows are 62 % of the time its percents speak of"]


def test_many_rows_of_zero_percent_are_no_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    tail = "".join(f"0.0,4,1,4.0,4.0,4,4,0.0,k{i}\n" for i in range(900))
    path.write_text(f"{NEW}\n63.1,6160,4,1540.0,1540.0,1500,1600,40.0,big\n{tail}")
    assert read_nsys_stats(path).warnings == []


def test_numbers_that_contradict_each_other_are_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE.replace(",1540.0,", ",15400.0,", 1))
    assert "numbers may be misread" in read_nsys_stats(path).warnings[0]


def test_a_second_summary_is_not_added(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE + "\n" + TABLE)
    table = read_nsys_stats(path)
    assert sum(row.time_ns for row in table.rows) == 10_000
    assert "the first is read" in table.warnings[0]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("SKIPPED: r.sqlite does not contain CUDA kernel data.\n", Unanswerable, "no kernel"),
        (NEW + "\n", Unanswerable, "no row"),
        (API, SchemaError, "no kernel summary"),
        ("", SchemaError, "no kernel summary"),
        (TABLE[:-30], SchemaError, "damaged"),
        (f"{NEW}\n{GEMV}\n38.4,38", SchemaError, "columns"),
        (f"{NEW}\n{GEMV.replace('6160', 'many')}\n", SchemaError, "'many' is no number"),
        (f"{NEW}\n{GEMV.replace('6160', '9' * 30)}\n", SchemaError, "is no number"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(error, match=said):
        read_nsys_stats(path)


def test_no_such_file(tmp_path: Path) -> None:
    assert not is_nsys_stats(tmp_path / "absent")
    with pytest.raises(UsageError):
        read_nsys_stats(tmp_path / "absent")


def test_every_truncation_reads_or_says_why(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    whole = (PREAMBLE + TABLE).encode()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            assert read_nsys_stats(path).rows
        except (SchemaError, Unanswerable) as error:
            assert error.hint
