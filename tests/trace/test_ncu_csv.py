"""ncu CSV of every page and version; what is damaged is refused or left out, and never a wrong number."""

from __future__ import annotations

import random
from pathlib import Path

import ncu_made as made
import pytest

from dsv4bench.errors import BenchError, SchemaError, Unanswerable
from dsv4bench.records.trace import KernelCounters
from dsv4bench.trace.ncu_csv import looks_like_ncu_csv, read_ncu_csv


def read(tmp_path: Path, text: str | bytes) -> KernelCounters:
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_ncu_csv(path, "base")


def test_our_own_recording() -> None:
    counters = read_ncu_csv(made.HFMA2)
    assert [(row.name[:12], row.grid) for row in counters.rows if row.name.startswith("dot")] == [
        ("dot_kernel", (64, 1, 1)),
        ("dot_kernel", (64, 1, 1)),  # two launches of one kernel and grid stay two
    ]
    randn = counters.rows[0]
    assert randn.metrics[made.TENSOR] == randn.metrics[made.HFMA2_PART] == 278_784
    assert randn.metrics["gpu__time_duration.sum"] == 42_656
    assert randn.compute == (9, 0) and randn.block == (256, 1, 1) and randn.device == 0
    assert counters.warnings == []


def test_units_are_converted_row_by_row(tmp_path: Path) -> None:
    section = "Command line profiler metrics"
    text = made.details(
        [
            (made.launch(0), [(section, "dram__bytes.sum", "Mbyte", "17.57"), (section, "t__t.sum", "us", "6.75")]),
            (made.launch(1), [(section, "dram__bytes.sum", "Kbyte", "175.10"), (section, "t__t.sum", "ms", "1.5")]),
            (made.launch(2), [(section, "dram__bytes.sum", "byte", "0"), (section, "r__x.avg", "Gbyte/s", "345.14")]),
        ]
    )
    rows = read(tmp_path, text).rows
    assert [row.metrics["dram__bytes.sum"] for row in rows] == [pytest.approx(17.57e6), pytest.approx(175.1e3), 0.0]
    assert [row.metrics.get("t__t.sum") for row in rows] == [6750.0, 1.5e6, None]
    assert rows[2].metrics["r__x.avg"] == pytest.approx(345.14e9)


def test_one_display_name_with_two_units_is_two_metrics(tmp_path: Path) -> None:
    text = made.details(
        [
            (
                made.launch(),
                [
                    ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "19.66"),
                    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "345.14"),
                    ("Occupancy", "", "", ""),  # a rule's row
                ],
            )
        ],
        rules=True,
    )
    assert read(tmp_path, text).rows[0].metrics == {
        "GPU Speed Of Light Throughput: Memory Throughput [%]": 19.66,
        "Memory Workload Analysis: Memory Throughput [byte/s]": pytest.approx(345.14e9),
    }


def test_a_raw_page_has_its_units_under_the_header(tmp_path: Path) -> None:
    text = made.raw(
        ["dram__bytes.sum", "dram__bytes.min", "sm__x.sum", "device__attribute_display_name"],
        ["Mbyte", "Kbyte", "inst", ""],
        [(made.launch(), ["8.251136", "86.528000", "131072.000000", "NVIDIA H200"])],
    )
    (row,) = read(tmp_path, text).rows
    assert row.metrics == {"dram__bytes.sum": 8_251_136, "dram__bytes.min": 86_528, "sm__x.sum": 131_072}


def test_not_available_is_no_zero_and_a_rounded_zero_is_marked(tmp_path: Path) -> None:
    text = made.details(
        [
            (
                made.launch(),
                [
                    ("s", "sm__a.sum", "", "n/a"),
                    ("s", "sm__b.sum", "", "nan"),
                    ("s", "sm__p.pct", "%", "0.00"),
                    ("s", "sm__q.pct", "%", "0"),
                    ("s", "sm__r.sum", "inst", "0.000000"),
                ],
            )
        ]
    )
    (row,) = read(tmp_path, text).rows
    assert row.unavailable == ["sm__a.sum", "sm__b.sum"]
    assert row.metrics == {"sm__p.pct": 0.0, "sm__q.pct": 0.0, "sm__r.sum": 0.0}
    assert row.rounded == ["sm__p.pct"]


def test_lines_of_ncu_and_of_the_program_are_passed_over(tmp_path: Path) -> None:
    rows = made.details([(made.launch(0), [("s", "sm__x.sum", "inst", "1,275,068,416")])]).splitlines()
    again = made.line([*made.launch(1), "s", "sm__x.sum", "inst", "2"])
    text = "\n".join(
        [
            "==PROF== Connected",
            "loss 0.12",
            rows[0],
            "==PROF== half",
            '"a lone quote',
            rows[1],
            "12",
            "==WARNING== W",
            again,
        ]
    )
    counters = read(tmp_path, text + "\n")
    assert [row.metrics["sm__x.sum"] for row in counters.rows] == [1_275_068_416, 2]
    assert "W" in counters.warnings


def test_the_same_kernel_at_two_grids_and_in_two_processes_stays_apart(tmp_path: Path) -> None:
    metric = [("s", "sm__x.sum", "inst", "1")]
    other = made.launch(0)
    other[1] = "8"
    text = made.details([(made.launch(0, grid="(1, 2, 3)"), metric), (made.launch(1), metric), (other, metric)])
    assert [row.grid for row in read(tmp_path, text).rows] == [(1, 2, 3), (16, 4, 1), (16, 4, 1)]


def test_twelve_columns_of_an_old_version(tmp_path: Path) -> None:
    header = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"]
    row = ["0", "7", "a.out", "h", "k", "2020-Jan-01", "1", "7", "s", "sm__x.sum", "inst", "3"]
    (found,) = read(tmp_path, f"{made.line([*header, *made.DETAILS])}\n{made.line(row)}\n").rows
    assert found.metrics == {"sm__x.sum": 3} and found.grid == (0, 0, 0) and found.compute is None


def test_a_decimal_comma_is_read_where_the_file_proves_it(tmp_path: Path) -> None:
    text = made.details(
        [
            (
                made.launch(cc="9,0"),
                [
                    ("s", "sm__a.pct", "%", "17,57"),
                    ("s", "sm__b.sum", "", "1.275.068.416"),
                    ("s", "c__c.sum", "", "1.234"),
                ],
            )
        ]
    )
    (row,) = read(tmp_path, text).rows
    assert row.metrics == {"sm__a.pct": 17.57, "sm__b.sum": 1_275_068_416, "c__c.sum": 1234}
    assert row.compute == (9, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["17,57", "0.07"], "cannot both be numbers"),
        (["1.234"], "may be a fraction or a thousand"),
    ],
)
def test_numbers_that_can_be_read_two_ways_are_refused(tmp_path: Path, values: list[str], message: str) -> None:
    text = made.details([(made.launch(), [("s", f"sm__{i}.sum", "", v) for i, v in enumerate(values)])])
    with pytest.raises(Unanswerable, match=message) as caught:
        read(tmp_path, text)
    assert "LC_ALL=C" in caught.value.hint


def test_a_unit_nobody_knows_is_left_out_and_said(tmp_path: Path) -> None:
    text = made.details([(made.launch(), [("s", "a__a.sum", "Nbyte", "2"), ("s", "b__b.sum", "byte", "3")])])
    counters = read(tmp_path, text)
    assert counters.rows[0].metrics == {"b__b.sum": 3}
    assert counters.warnings == ["1 values left out: unit 'Nbyte' is unknown"]


def test_utf16_of_a_windows_shell(tmp_path: Path) -> None:
    text = made.details([(made.launch(), [("s", "b__b.sum", "byte", "3")])])
    assert read(tmp_path, text.replace("\n", "\r\n").encode("utf-16")).rows[0].metrics == {"b__b.sum": 3}


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters",
            "ERR_NVGPUCTRPERM",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== Option '--section .*X.*' did not match any section.", "did not match", "--list-sections"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.", "No kernels", "--target-processes all"),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "driver resource", "dcgmi"),
        ("==ERROR== something new", "something new", "ncu"),
        (made.line([*made.LEADING, *made.DETAILS]), "no kernel", "-k filter"),
    ],
)
def test_a_file_without_rows_is_diagnosed(tmp_path: Path, text: str, cause: str, remedy: str) -> None:
    with pytest.raises(Unanswerable, match=cause) as caught:
        read(tmp_path, text + "\n")
    assert remedy in caught.value.hint and "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\x00\x01", "kernel_id,section,metric_name,value\nk,s,m,1\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SchemaError):
        read(tmp_path, text)
    assert not looks_like_ncu_csv(text)


def test_recognised_by_content() -> None:
    assert looks_like_ncu_csv(made.HFMA2.read_text()[:2000])
    assert looks_like_ncu_csv("==ERROR== ERR_NVGPUCTRPERM\n")
    assert not looks_like_ncu_csv("Time (%),Total Time (ns),Instances,Name\n")


SMALL = "==PROF== x\n" + made.details(
    [
        (made.launch(0, "a<1>"), [("s", made.TENSOR, "inst", "65,536"), ("s", made.HFMA2_PART, "inst", "1,024")]),
        (made.launch(1, "b"), [("s", "dram__bytes.sum", "Mbyte", "17.57"), ("u", "Memory", "%", "3.25")]),
    ]
)
SMALL_RAW = made.raw(
    [made.TENSOR, "dram__bytes.sum"],
    ["inst", "Mbyte"],
    [(made.launch(0, "a"), ["65,536", "17.57"]), (made.launch(1, "b"), ["0", "0.50"])],
)


def values(counters: KernelCounters) -> set[tuple[str, str, float]]:
    return {(row.name, key, value) for row in counters.rows for key, value in row.metrics.items()}


@pytest.mark.parametrize("whole", [SMALL, SMALL_RAW])
def test_cut_at_every_offset_it_never_gives_another_number(tmp_path: Path, whole: str) -> None:
    full = values(read(tmp_path, whole))
    assert len(full) == 4
    seen = set()
    for cut in range(len(whole)):
        try:
            found = values(read(tmp_path, whole[:cut]))
        except BenchError as e:
            assert e.hint
            continue
        assert found <= full
        seen |= found
    assert len(seen) >= 3


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_give_an_answer_or_an_error_of_ours(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    for whole in (SMALL.encode(), SMALL_RAW.encode()):
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(random_.randint(1, 4)):
                data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
            try:
                rows = read(tmp_path, bytes(data)).rows
            except BenchError:
                continue
            assert rows and all(value == value for row in rows for value in row.metrics.values())


def test_real_files_of_an_rtx_5090() -> None:
    for n, grid, ops in ((1, (224, 1, 1), 0), (3, (152, 4, 1), 1_275_068_416), (5, (332, 1, 1), 12_532_580_352)):
        counters = read_ncu_csv(made.real("ncu", f"codegandee_kernel_000{n}_details.csv"))
        (row,) = counters.rows
        assert row.grid == grid and row.compute == (12, 0) and counters.warnings == []
        assert row.metrics["sm__ops_path_tensor_src_bf16_dst_fp32.sum"] == ops
        assert "sm__ops_path_tensor_src_bf16_dst_bf16.sum" in row.unavailable
        assert row.metrics["GPU Speed Of Light Throughput: Memory Throughput [%]"] < 100


def test_a_real_file_of_errors_only() -> None:
    with pytest.raises(Unanswerable, match="did not match any section") as caught:
        read_ncu_csv(made.real("ncu", "codegandee_raw_csv_NO_KERNELS_PROFILED.csv"))
    assert caught.value.exit_code == 4 and "--set full" in caught.value.hint


def test_two_pages_of_one_recording_agree() -> None:
    """The raw and the details page of our H200 run are two runs of the same launches."""
    raw, details = (
        [(row.name, row.grid, row.metrics[made.TENSOR]) for row in read_ncu_csv(made.real("own", name)).rows]
        for name in ("h200_ncu_raw.csv", "h200_ncu_details.csv")
    )
    assert raw == details and max(count for *_, count in raw) == 278_784
