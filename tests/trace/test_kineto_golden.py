"""Real Kineto files of 2021 to 2026 against numbers computed elsewhere, to the nanosecond."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dsv4bench.errors import Unanswerable
from dsv4bench.records.trace import KernelTrace, Kind
from dsv4bench.trace.kineto import read_kineto

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
TRACES = Path(os.environ.get("DSV4BENCH_TRACES", _BESIDE))
GOLDEN: dict[str, Any] = (
    json.loads((TRACES / "golden.json").read_text(encoding="utf-8")) if (TRACES / "golden.json").is_file() else {}
)
FILES = [name for name in GOLDEN if name.endswith(".json.gz")]

needs_files = pytest.mark.skipif(not FILES, reason="no collection of traces here (DSV4BENCH_TRACES)")


def union(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """The length that intervals sorted by start cover."""
    covered, reach = 0, None
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        if reach is None or a > reach:
            covered, reach = covered + b - a, b
        elif b > reach:
            covered, reach = covered + b - reach, b
    return covered


def numbers(trace: KernelTrace, device: int) -> dict[str, int]:
    here = trace.device == device
    kernels = here & (trace.kind == Kind.KERNEL)
    return {
        "kernels": int(kernels.sum()),
        "copies": int((here & (trace.kind != Kind.KERNEL)).sum()),
        "kernel_sum_ns": int((trace.end_ns - trace.start_ns)[kernels].sum()),
        "kernel_union_ns": union(trace.start_ns[kernels], trace.end_ns[kernels]),
        "all_union_ns": union(trace.start_ns[here], trace.end_ns[here]),
        "window_ns": int(trace.end_ns[here].max() - trace.start_ns[here].min()),
    }


@needs_files
@pytest.mark.parametrize("name", FILES)
def test_a_real_file_agrees_to_the_nanosecond(name: str) -> None:
    expected = GOLDEN[name]
    if not expected:
        with pytest.raises(Unanswerable) as refused:
            read_kineto(TRACES / name)
        assert "\n" not in refused.value.message
        assert refused.value.hint
        return
    trace = read_kineto(TRACES / name)
    assert {str(device) for device in np.unique(trace.device)} == set(expected)
    for device, row in expected.items():
        found = numbers(trace, int(device))
        assert found == {key: row[key] for key in found}


@needs_files
def test_a_served_decode_has_its_steps_and_graph_launches() -> None:
    trace = read_kineto(TRACES / "own/h200_vllm0.25_mxfp4_moe_c1.pt.trace.json.gz")
    host = [trace.spans.names[n] for n in trace.spans.name[~trace.spans.on_device]]
    assert host == ["execute_context_0(0)_generation_1(1)"] * 52
    assert int(trace.launches.is_graph.sum()) == 52
    launched = np.isin(trace.correlation, trace.launches.correlation)
    assert launched[trace.kind == Kind.KERNEL].all()
    assert set(trace.pid.tolist()) == set(trace.launches.pid.tolist())
