"""Tables that torch's profiler printed: which rows are kernels, and what the table does not say."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from kineto_made import write

from dsv4bench.errors import BenchError, SchemaError, Unanswerable
from dsv4bench.trace.torch_table import is_torch_table, read_torch_table

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
REAL = Path(os.environ.get("DSV4BENCH_TRACES", _BESIDE)) / "tables"

_TITLES = ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg")
_DEVICE = ("Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg")


def printed(rows: list[tuple[str, str, str, str]], device: bool = True, total: str = "") -> str:
    """`key_averages().table()` of (name, host time, device time, calls): titles may be wider than their column."""
    titles = [*_TITLES, *(_DEVICE if device else ()), "# of Calls"]
    rule = "  ".join(["-" * 55, *["-" * 12] * len(titles)]) + "  "

    def line(name: str, cells: list[str]) -> str:
        return "  ".join([f"{name:>55}", *(f"{cell:>12}" for cell in cells)]) + "  "

    body = [
        line(name, ["1.00%", host, "1.00%", host, host, *(([gpu, "1.00%", gpu, gpu]) if device else []), calls])
        for name, host, gpu, calls in rows
    ]
    return "\n".join([rule, line("Name", titles), rule, *body, rule, "Self CPU time total: 3.000ms", total, ""])


ROWS = [
    ("void at::native::vectorized_elementwise_kernel<4, at...", "0.000us", "1.998s", "12"),
    ("ProfilerStep*", "0.000us", "3.000ms", "1"),
    ("aten::mm", "90.500us", "1.035ms", "1"),
    ("nvjet_sm90_tst_64x8", "0.000us", "1.035ms", "3"),
    ("cudaLaunchKernel", "10.000us", "0.000us", "1"),
    ("Memcpy HtoD (Pinned -> Device)", "0.000us", "1.500us", "1"),
    ("ProfilerStep*", "2.900ms", "0.000us", "1"),
]


def test_an_operators_row_is_no_kernel(tmp_path: Path) -> None:
    table = read_torch_table(write(tmp_path, printed(ROWS, total="Self CUDA time total: 1.999s")), "base")
    assert [(row.count, row.time_ns) for row in table.rows] == [(12, 1998000000), (3, 1035000), (1, 1500)]
    assert table.rows[1].name == "nvjet_sm90_tst_64x8"
    assert table.label == "base"
    assert table.warnings == ["kernel names are cut off in this table: some may be classified wrongly, or joined"]


def test_a_table_that_was_cut_says_so(tmp_path: Path) -> None:
    table = read_torch_table(write(tmp_path, printed(ROWS[3:4], total="Self CUDA time total: 2.070ms")))
    assert any(line.startswith("the rows add up to 50 %") for line in table.warnings)


def test_a_profile_of_the_host_has_no_kernels(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match="no kernel"):
        read_torch_table(write(tmp_path, printed(ROWS, device=False)))


CSV = 'rank,time_pct,total_ms,instances,avg_us,kernel\n1,60.0,1.5,10,150,a\n2,39.9,1.0,20,50,"b<int, 4>(int)"\n'
MARKDOWN = (
    "# sums\n\n| rank | time % | total ms | instances | kernel |\n|---|---|---|---|---|\n"
    "| 1 | 60.0 | 1.5 | 10 | `a` |\n"
)


def test_csv(tmp_path: Path) -> None:
    table = read_torch_table(write(tmp_path, CSV))
    assert [(r.name, r.count, r.time_ns) for r in table.rows] == [("a", 10, 1500000), ("b<int, 4>(int)", 20, 1000000)]
    assert table.warnings == []


def test_markdown_that_shows_a_part_says_so(tmp_path: Path) -> None:
    table = read_torch_table(write(tmp_path, MARKDOWN))
    assert [(r.name, r.count, r.time_ns) for r in table.rows] == [("a", 10, 1500000)]
    assert table.warnings == ["the rows cover 60 % of the kernel time by the table's own count; it was cut"]


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    table = read_torch_table(write(tmp_path, CSV + "3,0.1,oops,1,1,c\n4,0.1\n5,0.1,-1.0,2,1,d\n"))
    assert len(table.rows) == 2
    assert table.warnings == ["3 rows of the table cannot be read and are left out"]


def test_what_is_no_such_table(tmp_path: Path) -> None:
    assert not is_torch_table("a,b,c\n1,2,3\n")
    assert is_torch_table(CSV)
    assert is_torch_table(MARKDOWN)
    assert is_torch_table(printed(ROWS))
    with pytest.raises(SchemaError):
        read_torch_table(write(tmp_path, "a,b,c\n1,2,3\n"))


@pytest.mark.parametrize("text", [printed(ROWS), CSV, MARKDOWN], ids=["printed", "csv", "markdown"])
def test_cuts_and_changed_bytes_never_end_in_a_traceback(tmp_path: Path, text: str) -> None:
    dice, data = random.Random(5), text.encode()
    tries = [data[:length] for length in range(0, len(data), 5)]
    for _ in range(200):
        changed = bytearray(data)
        for _ in range(3):
            changed[dice.randrange(len(data))] = dice.randrange(256)
        tries.append(bytes(changed))
    read = 0
    for one in tries:
        try:
            read += len(read_torch_table(write(tmp_path, one)).rows) > 0
        except BenchError as error:
            assert error.exit_code == 4
    assert read > 0


@pytest.mark.skipif(not REAL.is_dir(), reason="no collection of traces here (DSV4BENCH_TRACES)")
@pytest.mark.parametrize(
    ("name", "rows", "total_ms"),
    [
        ("jasl_dsv4flash_sm120_T1B_torch_kernel_summary.csv", 114, 2795.05),
        ("jasl_dsv4flash_sm120_nomtp_decode64_torch_kernel_summary.csv", 114, 1872.03),
        ("jasl_dsv4flash_sm120_mtp1_decode_torch_kernel_summary.md", 30, 2112.49),
    ],
)
def test_real_tables(name: str, rows: int, total_ms: float) -> None:
    table = read_torch_table(REAL / name)
    assert len(table.rows) == rows
    assert sum(row.time_ns for row in table.rows) == pytest.approx(total_ms * 1e6)
    assert any("cover 93 %" in line for line in table.warnings) == name.endswith(".md")
