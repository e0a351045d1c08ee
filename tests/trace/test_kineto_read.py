"""What a healthy trace becomes, and the dialects of its years."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kineto_made import EVENTS, WORK, document, event, kernel, work, write

from dsv4bench.records.trace import Source
from dsv4bench.trace.kineto import read_kineto


def test_work_launches_and_spans_are_told_apart(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document()), "base")
    assert work(trace) == WORK
    assert (trace.source, trace.label, trace.rank, trace.world_size) == (Source.KINETO, "base", 3, 8)
    assert list(trace.start_ns) == sorted(trace.start_ns)
    assert trace.launches.start_ns.tolist() == [100125, 101125, 102125]
    assert trace.launches.is_graph.tolist() == [False, False, True]
    assert trace.launches.correlation.tolist() == [7, 9, 10]
    assert trace.spans.on_device.tolist() == [False, True]
    assert trace.spans.start_ns.tolist() == [99500, 105000]
    assert trace.spans.names == ["step[DECODE bs=1]"]
    assert trace.warnings == []
    assert trace.missing == []


def test_columns_of_a_kernel(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document()))
    row = [trace.kernel_names[n][0] for n in trace.name].index("kern_c")
    assert trace.grid[row].tolist() == [1, 2, 3]
    assert trace.block[row].tolist() == [32, 1, 1]
    assert (trace.registers[row], trace.stream[row], trace.device[row], trace.pid[row]) == (12, 7, 0, 1)
    assert (trace.graph_id[row], trace.graph_node_id[row]) == (2, (2 << 32) + 5)
    raw, demangled, short = trace.kernel_names[trace.name[row + 0]]
    assert (raw, demangled, short) == ("kern_c", "kern_c", "kern_c")
    assert ("kern_b<int>(int)", "kern_b<int>(int)", "kern_b") in trace.kernel_names


def test_devices_are_described_and_no_environment_is_kept(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document()))
    assert (trace.devices[0].name, trace.devices[0].sms, trace.devices[0].compute) == ("NVIDIA H200", 132, (9, 0))
    assert trace.devices[1].name is None
    assert trace.facts == {"schemaVersion": "1", "cuda_driver_version": "13000"}
    assert "hf_secret" not in repr(trace)


def test_an_amd_device_has_no_cuda_compute_capability(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document(roctracer_version=1)))
    assert trace.devices[0].compute is None


def test_the_capitals_of_2021(tmp_path: Path) -> None:
    events = [
        {**event("Operator", "ProfilerStep#3", 10, 50), "tid": "25738"},
        {**event("Runtime", "cudaLaunchKernel", 11, 2, correlation=4)},
        {**event("Kernel", "old", 20, 0, 0, "stream 9", device=1, correlation=4)},
        {**event("Memcpy", "Memcpy DtoH", 30, 3, 0, "stream 9")},
        {**event("Memset", "Memset", 40, 1, 0, "stream 9")},
    ]
    trace = read_kineto(write(tmp_path, document(events)))
    assert work(trace) == {("old", 20000, 20000, 0), ("Memcpy DtoH", 30000, 33000, 1), ("Memset", 40000, 41000, 2)}
    assert trace.device.tolist() == [1, 0, 0]  # args.device, else pid
    assert trace.stream.tolist() == [9, 9, 9]
    assert trace.spans.names == ["ProfilerStep#3"]
    assert trace.spans.tid.tolist() == [25738]
    assert any("last 0 ns" in line for line in trace.warnings)


@pytest.mark.parametrize(
    ("ts", "start_ns"),
    [
        ("5125948766835.721", 5125948766835721),
        ("1712195495519689.047", 1712195495519689047),  # a double steps by 250 ns here
        ("1712195495519689.25", 1712195495519689250),
        ("0.0009", 0),
        ("1.9999", 1999),
        ("12", 12000),
        ("1.5e3", 1500000),
        ("-0.0015", -2),
    ],
)
@pytest.mark.parametrize("quoted", [False, True])
def test_times_are_the_floor_of_the_decimal_text(tmp_path: Path, ts: str, start_ns: int, quoted: bool) -> None:
    text = document([kernel("k", "TS", "DUR")]).replace('"TS"', f'"{ts}"' if quoted else ts)
    trace = read_kineto(write(tmp_path, text.replace('"DUR"', '"1.0015"' if quoted else "1.0015")))
    assert (int(trace.start_ns[0]), int(trace.end_ns[0])) == (start_ns, start_ns + 1001)


def test_equal_starts_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document([kernel(f"k{i}", 5, 1) for i in range(50)])))
    assert trace.name.tolist() == list(range(50))


def test_kernels_get_the_process_that_launched_them(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, 100, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, 200, 1, correlation=2),
        kernel("b", 11, 1, correlation=2),
        kernel("a", 10, 1, correlation=1),
        kernel("c", 12, 1, correlation=3),
    ]
    assert read_kineto(write(tmp_path, document(events))).pid.tolist() == [100, 200, 0]


def test_a_rank_comes_from_the_name_of_the_file_when_it_is_not_inside(tmp_path: Path) -> None:
    text = document(distributedInfo={})
    assert read_kineto(write(tmp_path, text, "1770-TP-5-DECODE.trace.json")).rank == 5
    assert read_kineto(write(tmp_path, text, "rank-12.pt.trace.json")).rank == 12
    assert read_kineto(write(tmp_path, text, "frank.json")).rank is None


def test_missing_columns_are_named(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document([event("kernel", "k", 1, 1, 0, 0)])))
    assert trace.missing == ["grid", "registers", "correlation", "launches"]


def test_arguments_in_other_types_are_understood_or_left_out(tmp_path: Path) -> None:
    odd = kernel("k", 1, 1, stream="0x7", correlation="12", grid="[4, 5, 6]", block=[1, 2], device="0")
    odd["args"]["shared memory"] = 2**40
    trace = read_kineto(write(tmp_path, document([odd, kernel("l", 2, 1, correlation=2**70)])))
    assert trace.grid.tolist() == [[4, 5, 6], [1, 2, 3]]
    assert trace.block.tolist() == [[0, 0, 0], [32, 1, 1]]
    assert trace.correlation.tolist() == [12, 0]
    assert trace.stream.tolist() == [7, 7]
    assert trace.shared_bytes.tolist() == [0, 0]


def test_kernels_without_a_time_or_a_device_are_counted(tmp_path: Path) -> None:
    lost = [kernel("no dur", 1, None), kernel("negative", 1, -1), kernel("huge", 1e15, 1e300)]
    nowhere = event("kernel", "nowhere", 1, 1, "GPU", "row")
    trace = read_kineto(write(tmp_path, document([*lost, nowhere, kernel("k", 1, 1)])))
    assert work(trace) == {("k", 1000, 2000, 0)}
    assert any(line.startswith("3 events without a usable ts or dur") for line in trace.warnings)
    assert any(line.startswith("1 events on a device without a number") for line in trace.warnings)


def test_floats_since_1970_are_said_to_be_rough(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document([kernel("k", 1712195495505543.2, 4.9)])))
    assert any("steps of 250 ns" in line for line in trace.warnings)


def test_types_of_the_columns(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, json.dumps(EVENTS)))
    wide = (trace.start_ns, trace.end_ns, trace.stream, trace.pid, trace.correlation, trace.graph_node_id)
    assert {c.dtype for c in wide} == {np.dtype(np.int64)}
    narrow = (trace.device, trace.name, trace.registers, trace.shared_bytes, trace.grid, trace.block)
    assert {c.dtype for c in narrow} == {np.dtype(np.int32)}
    assert trace.kind.dtype == np.uint8
    assert {len(c) for c in (*wide, *narrow, trace.kind)} == {len(trace)}
