"""Decode steps of the embedded server recorded on an H200 (8 layers, 16 requests): one graph a step, no host wait.

The traces are the torch profiler's, through the server's own /start_profile; docs/engine.md quotes their figures.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.runs.profile import ProfileOptions, run_profile

DATA = Path(__file__).resolve().parent.parent / "data"
SETS = ("fallback", "optimized")


def trace_of(kernels: str) -> Path:
    return DATA / f"h200_decode_{kernels}.pt.trace.json.gz"


def events(kernels: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(trace_of(kernels).read_bytes()))["traceEvents"]
    return found


def document(kernels: str) -> BreakdownDocument:
    return run_profile(ProfileOptions(traces=[f"C16={trace_of(kernels)}"])).document


@pytest.mark.parametrize("kernels", SETS)
def test_a_step_is_one_graph_launch_and_waits_for_nothing_but_copied_tokens(kernels: str) -> None:
    steps = [
        e for e in events(kernels) if str(e.get("name")) == "step[DECODE bs=16]" and e["cat"] == "user_annotation"
    ]
    calls = Counter(e["name"] for e in events(kernels) if e.get("cat") in {"cuda_runtime", "cuda_driver"})
    copies = Counter(e["name"] for e in events(kernels) if e.get("cat") == "gpu_memcpy")
    assert len(steps) == 8
    assert calls["cudaGraphLaunch"] == len(steps)
    assert sum(copies.values()) == 2 * len(steps)  # inputs in, sampled tokens out
    assert calls["cudaStreamSynchronize"] == calls["cudaMemcpy"] == calls["cudaLaunchKernel"] == 0
    # The profiler's own, when it stops: after the last step.
    ends = [e["ts"] for e in events(kernels) if e.get("name") == "cudaDeviceSynchronize"]
    assert len(ends) == 1 and ends[0] > max(e["ts"] for e in steps)


@pytest.mark.parametrize(
    ("kernels", "step_ms", "launches", "moe", "attention"),
    [("fallback", 54.36, 612, 0.860, 0.107), ("optimized", 3.74, 238, 0.554, 0.027)],
)
def test_launches_and_shares_of_a_step(
    kernels: str, step_ms: float, launches: int, moe: float, attention: float
) -> None:
    steps = document(kernels).steps
    assert steps is not None
    assert (steps.batch, steps.layers, steps.launches, steps.graph_launches) == (16, 8, launches, 1)
    assert steps.median_ns / 1e6 == pytest.approx(step_ms, abs=0.005)
    shares = {c.component: c.share_of_step_frac for c in steps.components}
    assert shares["moe"] == pytest.approx(moe, abs=0.0005) and shares["attention"] == pytest.approx(
        attention, abs=0.0005
    )
