"""Real exports against independent golden numbers, to the nanosecond; skipped where the files are not there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from dsv4bench.errors import Unanswerable
from dsv4bench.records.trace import KernelTrace, Kind
from dsv4bench.trace.nsys import is_nsys_sqlite, read_nsys_sqlite
from dsv4bench.trace.nsys_stats import read_nsys_stats

_SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "traces"
TRACES = Path(os.environ.get("DSV4BENCH_TRACES", _SHARED))
pytestmark = pytest.mark.skipif(not (TRACES / "golden.json").is_file(), reason=f"no real traces in {TRACES}")

FILES = sorted(p for folder in ("nsys", "own") for p in (TRACES / folder).glob("*.sqlite*"))
CAUSES = {
    "cupqc_t4_NO_CUDA.sqlite": "never started",
    "haroonsyed_sgemm_NO_KERNEL_TABLE.sqlite": "192 kernel launches were recorded on the host",
    "jacc_4e6_async_1.sqlite": "never started",
    "jacc_cg_trace.sqlite.gz": "never started",
    "jacc_report1.sqlite": "never started",
    "lighttransport_gemm_NO_KERNEL_TABLE.sqlite": "driver (13.3) is newer than this nsys",
    "nevakrien_python_c.sqlite": "made no CUDA call",
}


def golden(path: Path) -> dict[str, dict[str, int]] | None:
    numbers = json.loads((TRACES / "golden.json").read_text())
    found: dict[str, dict[str, int]] | None = numbers.get(f"{path.parent.name}/{path.name.removesuffix('.gz')}")
    return found


def union(start: np.ndarray, end: np.ndarray) -> int:
    """Σ over the intervals, in order of start, of what each adds to the latest end so far."""
    total, reached = 0, None
    for a, b in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if reached is None or b > reached:
            total += b - (a if reached is None else max(a, reached))
            reached = b
    return total


def numbers(trace: KernelTrace, device: int) -> dict[str, int]:
    here = trace.device == device
    kernels = here & (trace.kind == Kind.KERNEL)
    start, end = trace.start_ns, trace.end_ns
    return {
        "kernels": int(kernels.sum()),
        "copies": int((here & ~kernels).sum()),
        "kernel_sum_ns": int((end - start)[kernels].sum()),
        "kernel_union_ns": union(start[kernels], end[kernels]),
        "all_union_ns": union(start[here], end[here]),
        "window_ns": int(end[here].max() - start[here].min()),
        "zero_dur": int((end == start)[kernels].sum()),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_golden_or_diagnosed(path: Path) -> None:
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
    expected = golden(path)
    assert is_nsys_sqlite(path)
    if path.name in CAUSES:
        assert not expected
        with pytest.raises(Unanswerable) as caught:
            read_nsys_sqlite(path)
        assert CAUSES[path.name] in caught.value.message
        assert caught.value.hint
    else:
        (trace,) = read_nsys_sqlite(path)
        devices = np.unique(trace.device).tolist()
        if expected is not None:
            assert [str(device) for device in devices] == list(expected)
        for device in devices if expected else []:
            found = numbers(trace, device)
            assert found == {name: expected[str(device)][name] for name in found}
    assert (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns) == before


def test_graph_level_and_node_level_of_one_program() -> None:
    (opaque,) = read_nsys_sqlite(TRACES / "own" / "h200_cuda_graph_graph_level.sqlite")
    (nodes,) = read_nsys_sqlite(TRACES / "own" / "h200_cuda_graph_node_level.sqlite")
    assert len(opaque.graph_runs.start_ns) == 20
    assert "--cuda-graph-trace=node" in opaque.warnings[0]
    assert len(nodes.graph_runs.start_ns) == 0
    assert nodes.warnings == []
    assert len(set(nodes.correlation.tolist())) == 20, "one a graph launch"
    assert np.array_equal(
        np.unique(nodes.correlation), np.unique(nodes.launches.correlation[nodes.launches.is_graph])
    )
    assert nodes.spans.names == ["decode[bs=16]"]


def test_gpu_metrics_at_1_khz() -> None:
    (trace,) = read_nsys_sqlite(TRACES / "own" / "h200_gpu_metrics_1khz.sqlite.gz")
    (samples,) = trace.samples
    assert len(samples.time_ns) == 4604
    assert "Tensor Active [Throughput %]" in samples.metrics
    assert all("%" in name for name in samples.metrics)
    assert trace.facts["gpu_metrics_hz"] == "1000"


@pytest.mark.parametrize(
    ("name", "rows", "total_ns"),
    [("clip", 19, 3_424_837), ("decode", 46, 179_072_697), ("projector", 2, 35_488), ("sam", 36, 21_895_142)],
)
def test_real_kernel_summaries(name: str, rows: int, total_ns: int) -> None:
    table = read_nsys_stats(TRACES / "tables" / f"codegandee_{name}_cuda_gpu_kern_sum.csv")
    assert (len(table.rows), sum(row.time_ns for row in table.rows)) == (rows, total_ns)
    assert table.warnings == []
