"""Every generation of the nsys export tells the same decode; the file stays as it was."""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from nsys_made import GENERATIONS, PID, SECRET, Made, decode, kernel, process, thread

from dsv4bench.errors import SchemaError, UsageError
from dsv4bench.records.trace import KernelTrace, Kind
from dsv4bench.trace import nsys_database
from dsv4bench.trace.nsys import is_nsys_sqlite, read_nsys_sqlite
from dsv4bench.trace.nsys_pages import Unfit


def read(path: Path) -> KernelTrace:
    (trace,) = read_nsys_sqlite(path, "A")
    return trace


@pytest.mark.parametrize("generation", [name for name in GENERATIONS if name != "third-party"])
def test_each_generation_tells_the_same(tmp_path: Path, generation: str) -> None:
    trace = read(decode(tmp_path / "x.sqlite", generation))
    assert trace.start_ns.tolist() == [900, 1000, 2000, 3000]
    assert trace.end_ns.tolist() == [950, 1500, 2600, 3100]
    assert trace.kind.tolist() == [Kind.MEMSET, Kind.KERNEL, Kind.KERNEL, Kind.COPY]
    assert trace.correlation.tolist() == [104, 101, 102, 103]
    assert trace.pid.tolist() == [PID] * 4
    assert trace.grid.tolist() == [[0, 0, 0], [64, 2, 1], [1, 2, 1], [0, 0, 0]]
    assert trace.block.tolist()[1] == [128, 1, 1]
    assert trace.registers.tolist() == [0, 96, 96, 0]
    assert trace.shared_bytes.tolist() == [0, 17408, 17408, 0]
    assert trace.graph_id.tolist() == [0, 0, 5, 0]
    assert trace.graph_node_id.tolist() == [0, 0, (5 << 32) | 1, 0]
    assert [trace.kernel_names[name] for name in trace.name] == [
        ("Memset", "Memset", "Memset"),
        ("_ZN3moe9slot_gemvILi4EEEvPfi", "void moe::slot_gemv<(int)4>(float *, int)", "moe::slot_gemv"),
        ("_ZN4attn13sparse_decodeIfEEvPf", "void attn::sparse_decode<float>(float *)", "attn::sparse_decode"),
        ("Memcpy DtoH", "Memcpy DtoH", "Memcpy DtoH"),
    ]
    assert trace.launches.is_graph.tolist() == [False, True]
    assert trace.launches.correlation.tolist() == [101, 102]
    assert (trace.launches.pid.tolist(), trace.launches.tid.tolist()) == ([PID, PID], [7, 7])
    assert [trace.spans.names[name] for name in trace.spans.name] == ["decode[bs=1]"]
    assert (trace.spans.start_ns.tolist(), trace.spans.end_ns.tolist()) == ([800], [2700])
    assert trace.devices[0].sms == 188
    assert trace.devices[0].compute == (12, 0)
    assert trace.devices[0].memory_bytes_s == 1.792e12
    assert trace.label == "A"
    assert (trace.missing, trace.warnings) == ([], [])
    assert trace.facts.get("schema") == GENERATIONS[generation].version


def test_what_a_third_party_schema_lacks_is_zero_and_named(tmp_path: Path) -> None:
    trace = read(decode(tmp_path / "x.sqlite", "third-party"))
    assert trace.start_ns.tolist() == [1000, 2000]
    assert trace.grid.tolist() == [[64, 2, 1], [1, 2, 1]]
    assert trace.registers.tolist() == [0, 0]
    assert trace.pid.tolist() == [PID, PID], "the one process that launched"
    assert trace.kernel_names[trace.name[1]][0] == "void attn::sparse_decode<float>(float *)", (
        "no mangled name: the readable one"
    )
    for name in ("registersPerThread", "globalPid", "dynamicSharedMemory", "graphNodeId"):
        assert f"CUPTI_ACTIVITY_KIND_KERNEL.{name}" in trace.missing
    assert {"NVTX_EVENTS", "TARGET_INFO_GPU"} <= set(trace.missing)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_pages_and_sql_read_the_same(tmp_path: Path, generation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = decode(tmp_path / "x.sqlite", generation)
    quick = read(path)

    def unfit(*_: object) -> None:
        raise Unfit("not today")

    monkeypatch.setattr(nsys_database, "TablePages", unfit)
    slow = read(path)
    for column in KernelTrace.__dataclass_fields__:
        one, other = getattr(quick, column), getattr(slow, column)
        if isinstance(one, np.ndarray):
            assert np.array_equal(one, other), column
            assert one.dtype == other.dtype, column
    assert quick.kernel_names == slow.kernel_names


def test_the_file_is_not_touched(tmp_path: Path) -> None:
    path = decode(tmp_path / "x.sqlite", "2026")
    path.chmod(0o444)
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
    assert is_nsys_sqlite(path)
    read(path)
    assert (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.sqlite"]


def test_an_index_added_by_another_tool_changes_nothing(tmp_path: Path) -> None:
    path = decode(tmp_path / "x.sqlite", "2025")
    plain = read(path)
    with sqlite3.connect(path) as db:
        db.execute("CREATE INDEX _other ON NVTX_EVENTS (eventType, start, end, globalTid, textId, domainId, text)")
    db.close()
    assert read(path).spans.names == plain.spans.names
    assert read(path).start_ns.tolist() == plain.start_ns.tolist()


def test_gzip_and_odd_path_names(tmp_path: Path) -> None:
    plain = decode(tmp_path / "a ?#%b.sqlite", "2025")
    assert len(read(plain)) == 4
    packed = tmp_path / "x.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert is_nsys_sqlite(packed)
    assert read(packed).file == str(packed)
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(SchemaError, match="cannot be unpacked"):
        read(packed)


def test_correlation_ids_repeat_between_processes(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(
        kernel(1000, 1500, correlationId=1), kernel(1100, 1700, correlationId=1, globalPid=process(99), deviceId=1)
    )
    made.calls(
        {"start": 900, "end": 910, "globalTid": thread(99), "correlationId": 1, "nameId": 11},
        {"start": 800, "end": 810, "globalTid": thread(), "correlationId": 1, "nameId": 10},
    )
    trace = read(made.done())
    assert len(trace) == 2, "a join on the correlation alone would give four"
    assert trace.pid.tolist() == [PID, 99]
    assert trace.launches.pid.tolist() == [PID, 99]
    assert trace.warnings == [], "process 99's graph launch has its kernel"


def test_a_graph_launch_without_a_row_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500, correlationId=1), kernel(1600, 1700, correlationId=2, globalPid=process(99)))
    made.calls({"start": 900, "end": 910, "globalTid": thread(), "correlationId": 2, "nameId": 11})
    assert "1 of 1 graph launches have no row on a device" in read(made.done()).warnings[0]


def test_one_ordinal_that_means_two_gpus(tmp_path: Path) -> None:
    """One process a rank, each with one visible GPU: both call it device 0."""
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500), kernel(1100, 1700, globalPid=process(99)))
    made.gpus(2, 3)
    made.cuda_devices((2, 0, PID), (3, 0, 99))
    trace = read(made.done())
    assert trace.device.tolist() == [2, 3]
    assert {number: facts.uuid for number, facts in trace.devices.items()} == {2: "uuid-2", 3: "uuid-3"}
    assert any("numbered by GPU" in warning for warning in trace.warnings)


def test_a_remapped_ordinal_of_one_process_keeps_its_number_and_finds_its_gpu(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500))
    made.gpus(0, 3)
    made.cuda_devices((3, 0, PID))
    trace = read(made.done())
    assert trace.device.tolist() == [0]
    assert trace.devices[0].uuid == "uuid-3"


def test_two_hosts_in_one_report_stay_apart(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500), kernel(1100, 1700, globalPid=process() | (1 << 49)))
    trace = read(made.done())
    assert len(set(trace.pid.tolist())) == 2


def test_which_nvtx_rows_are_ranges(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500))
    common = {"globalTid": thread()}
    made.ranges(
        {"start": 0, "eventType": 75, "textId": 22, "domainId": 4, **common},
        {"start": 500, "end": 600, "eventType": 59, "textId": 23, "domainId": 4, **common},
        {"start": 300, "end": 400, "eventType": 60, "text": "step", **common},
        {"start": 100, "end": 200, "eventType": 59, "textId": 20, **common},
        {"start": 250, "eventType": 34, "text": "mark", **common},
        {"start": 700, "eventType": 59, "text": "open", **common},
        {"start": 900, "end": 800, "eventType": 59, "text": "backwards", **common},
        {"start": 910, "end": 920, "eventType": 59, "textId": 20, "text": "inline wins", **common},
    )
    trace = read(made.done())
    assert [trace.spans.names[n] for n in trace.spans.name] == ["decode[bs=1]", "step", "inline wins"]
    assert trace.spans.start_ns.tolist() == [100, 300, 910]
    assert any("1 NVTX ranges are open" in warning for warning in trace.warnings)


def test_rows_without_an_end_are_left_out_and_counted(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500), kernel(2000, 2600, end=None), kernel(3000, 2000), kernel(4000, 4000))
    trace = read(made.done())
    assert trace.start_ns.tolist() == [1000, 4000], "a kernel of no duration is a kernel"
    assert trace.warnings == ["2 kernels have no end or end before they start: left out of every figure"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("start", "soon"),
        ("gridX", "wide"),
        ("registersPerThread", 1.5),
        ("demangledName", b"\0\1"),
        ("gridY", 1 << 40),
    ],
)
def test_a_wrong_type_is_an_error_and_no_zero(tmp_path: Path, column: str, value: object) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500), kernel(2000, 2500, **{column: value}))
    with pytest.raises(SchemaError, match="CUPTI_ACTIVITY_KIND_KERNEL"):
        read(made.done())


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500, demangledName=777, mangledName=None))
    trace = read(made.done())
    assert trace.kernel_names == [("(kernel without a name)",) * 3]
    assert "1 kernel names are not in StringIds" in trace.warnings[0]


def test_no_environment_and_no_command_line_comes_through(tmp_path: Path) -> None:
    made = Made(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500))
    made.table("TARGET_INFO_SYSTEM_ENV", "name TEXT, value TEXT")
    made.db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('HF_TOKEN', ?)", (SECRET,))
    made.capture(
        ("PROCESS_0:ARGUMENT_0", f"--api-key={SECRET}"),
        ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node"),
        ("START_TRIGGER", f"a {SECRET} b"),
        ("CAPTURE_EVENT_TYPE", "Cuda"),
        ("CAPTURE_EVENT_TYPE", "NvtxEvents"),
    )
    made.diagnostics(f"Process was launched with HF_TOKEN={SECRET}")
    trace = read(made.done())
    assert SECRET not in repr(trace)
    assert trace.facts == {"schema": "3.20.3", "cuda_graph_trace": "Node", "traced": "Cuda,NvtxEvents"}


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE songs (title TEXT)")
    db.close()
    text = tmp_path / "text.sqlite"
    text.write_text("no database")
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    for path in (other, text, empty, tmp_path / "absent", tmp_path):
        assert not is_nsys_sqlite(path)
    for path in (text, empty):
        with pytest.raises(SchemaError, match="no SQLite file"):
            read_nsys_sqlite(path)
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_nsys_sqlite(path)


def test_an_unfinished_export_beside_its_journal_is_said(tmp_path: Path) -> None:
    path = decode(tmp_path / "x.sqlite", "2025")
    (tmp_path / "x.sqlite-wal").write_bytes(b"not empty")
    assert "the export may be unfinished" in read(path).warnings[0]
