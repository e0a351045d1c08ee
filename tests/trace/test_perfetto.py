"""Perfetto protobuf: small traces made here with a writer of their own, and real ones where they are."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from kineto_made import write

from dsv4bench.errors import BenchError, Unanswerable
from dsv4bench.records.trace import Kind, Source
from dsv4bench.trace.perfetto import read_perfetto

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
REAL = Path(os.environ.get("DSV4BENCH_TRACES", _BESIDE)) / "other"
# kernels and copies counted with another reader
COUNTS = {
    "attngym_hello_world_no_cuda_graphs.pftrace": (31, 2),
    "attngym_hello_world_training_loop.pftrace": (201, 30),
    "attngym_hello_world_with_cuda_graphs.pftrace": (30, 2),
    "attngym_kda_chunk_before_after.pftrace": (38, 0),
    "attngym_kda_cuda_graph_e2e_attribution.pftrace": (110, 2),
}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def annotation(name: str, value: object) -> bytes:
    if isinstance(value, int):
        told = number(4, value)
    elif isinstance(value, float):
        told = varint(5 << 3 | 1) + struct.pack("<d", value)
    else:
        told = message(9, str(value))
    return message(4, told + message(10, name))


def begin(category: str, name: str, time_ns: int, track: int, **args: object) -> bytes:
    told = b"".join(annotation(key.replace("_", " "), value) for key, value in args.items())
    event = number(9, 1) + number(11, track) + message(22, category) + message(23, name) + told
    return message(1, number(8, time_ns) + number(10, 1) + message(11, event))


def end(time_ns: int, track: int) -> bytes:
    return message(1, number(8, time_ns) + message(11, number(9, 2) + number(11, track)))


TRACE = (
    message(1, message(60, number(1, 5) + message(2, "stream 7")))
    + begin("user_annotation", "step[DECODE bs=1]", 4295763402281529, 1)
    + begin("cuda_runtime", "cudaGraphLaunch", 4295763402299137, 1, correlation=8)
    + end(4295763402300137, 1)
    + end(4295763402390000, 1)
    + begin("kernel", "a", 4295763402321180, 5, device=0, stream=7, correlation=8, grid="[288, 1, 1]", graph_id=2)
    + begin("kernel", "b", 4295763402325000, 6, device=0, stream=7, correlation=8, launch_latency=2.5)
    + end(4295763402329180, 5)
    + end(4295763402331000, 6)
    + begin("gpu_memset", "Memset", 4295763402338875, 5, device=0, stream=7)
    + end(4295763402339875, 5)
)


def test_slices_are_paired_on_their_tracks(tmp_path: Path) -> None:
    trace = read_perfetto(write(tmp_path, TRACE, "x-rank2.pftrace"), "base")
    assert [trace.kernel_names[n][0] for n in trace.name] == ["a", "b", "Memset"]
    assert (trace.end_ns - trace.start_ns).tolist() == [8000, 6000, 1000]
    assert trace.start_ns[0] == 4295763402321180
    assert trace.grid[0].tolist() == [288, 1, 1]
    assert trace.graph_id.tolist() == [2, 0, 0]
    assert trace.correlation.tolist() == [8, 8, 0]
    assert trace.launches.is_graph.tolist() == [True]
    assert trace.spans.names == ["step[DECODE bs=1]"]
    assert (trace.source, trace.label, trace.rank, trace.warnings) == (Source.PERFETTO, "base", 2, [])


def test_every_cut_gives_a_part_and_says_so(tmp_path: Path) -> None:
    counts = set()
    for length in range(1, len(TRACE)):
        try:
            trace = read_perfetto(write(tmp_path, TRACE[:length]))
        except BenchError as error:
            assert error.exit_code == 4
            continue
        counts.add(len(trace))
        assert len(trace) < 3
        assert trace.warnings or TRACE[length:].startswith(b"\x0a")  # between packets nothing tells of a cut
    assert counts == {1, 2}


def test_changed_bytes_never_end_in_a_traceback(tmp_path: Path) -> None:
    dice, outcomes = random.Random(7), set()
    for _ in range(800):
        data = bytearray(TRACE)
        for _ in range(3):
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            outcomes.add(len(read_perfetto(write(tmp_path, bytes(data)))))
        except BenchError as error:
            assert error.exit_code == 4
            outcomes.add(-1)
    assert {-1, 3} <= outcomes


def test_a_trace_without_kernels_is_diagnosed(tmp_path: Path) -> None:
    host = begin("cpu_op", "aten::mm", 1, 1) + end(2, 1)
    with pytest.raises(Unanswerable, match="recorded no GPU activity"):
        read_perfetto(write(tmp_path, host))


def test_rocprofv3_is_named(tmp_path: Path) -> None:
    interned = message(12, message(1, number(1, 1) + message(2, "hip_api")))
    with pytest.raises(Unanswerable, match="rocprofv3"):
        read_perfetto(write(tmp_path, message(1, interned) + begin("", "x", 1, 1) + end(2, 1)))


@pytest.mark.skipif(not REAL.is_dir(), reason="no collection of traces here (DSV4BENCH_TRACES)")
@pytest.mark.parametrize("name", COUNTS)
def test_a_real_trace(name: str) -> None:
    trace = read_perfetto(REAL / name)
    kernels = int((trace.kind == Kind.KERNEL).sum())
    assert (kernels, len(trace) - kernels) == COUNTS[name]
    assert trace.warnings == []
    assert (trace.end_ns > trace.start_ns).all()


@pytest.mark.skipif(not REAL.is_dir(), reason="no collection of traces here (DSV4BENCH_TRACES)")
@pytest.mark.parametrize("name", ["jacc_rocprof_3634724_nearly_empty.pftrace", "jacc_rocprof_3635359.pftrace"])
def test_a_real_trace_of_rocprof(name: str) -> None:
    with pytest.raises(Unanswerable, match="rocprofv3"):
        read_perfetto(REAL / name)
