"""Other people's traces through our readers against independently computed numbers, to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_files import TRACES
from trace_maker import unknown

from dsv4bench.attribution.breakdown import device_breakdowns
from dsv4bench.attribution.steps import steps_of
from dsv4bench.records.trace import KernelTrace
from dsv4bench.scenario.rules import load_rules
from dsv4bench.trace.kineto import read_kineto
from dsv4bench.trace.nsys import read_nsys_sqlite

pytestmark = pytest.mark.skipif(not (TRACES / "golden.json").is_file(), reason=f"no public trace files at {TRACES}")

RULES = load_rules()
GOLDEN = json.loads((TRACES / "golden.json").read_text()) if (TRACES / "golden.json").is_file() else {}
ANSWERED = sorted(name for name, devices in GOLDEN.items() if devices)


def trace_of(name: str) -> KernelTrace:
    path = TRACES / name
    if not path.is_file():
        path = Path(f"{path}.gz")  # a packed export stands under its unpacked name
    if ".sqlite" in path.name:
        (trace,) = read_nsys_sqlite(path)
        return trace
    return read_kineto(path)


@pytest.mark.parametrize("name", ANSWERED)
def test_sum_union_window_and_counts(name: str) -> None:
    found = device_breakdowns(trace_of(name), RULES, unknown)
    assert {str(d.device) for d in found} == set(GOLDEN[name])
    for d in found:
        golden = GOLDEN[name][str(d.device)]
        assert (d.kernel_sum_ns, d.kernel_busy_ns, d.any_busy_ns, d.window_ns, d.kernels, d.copies) == (
            golden["kernel_sum_ns"],
            golden["kernel_union_ns"],
            golden["all_union_ns"],
            golden["window_ns"],
            golden["kernels"],
            golden["copies"],
        )
        assert d.repaired == 0
        assert d.zero_duration == golden.get("zero_dur", d.zero_duration)
        exclusive = sum(c.exclusive_ns or 0 for c in d.components)
        assert exclusive + d.overlap_ns + d.copy_only_ns + d.idle_ns == d.window_ns  # type: ignore[operator]
        coverage = golden.get("time_weighted_sm_coverage_pct")
        if coverage and d.sm_coverage_frac and d.kernel_busy_ns == d.kernel_sum_ns and d.grid_known_frac == 1.0:
            assert 100 * d.sm_coverage_frac == pytest.approx(coverage, abs=0.06)  # golden has one digit


@pytest.mark.parametrize(
    ("name", "method", "count", "batch", "layers"),
    [
        ("own/h200_vllm0.25_mxfp4_moe_c1.pt.trace.json.gz", "annotation", 50, 1, 6),
        ("own/h200_vllm0.25_mxfp4_moe_c16.pt.trace.json.gz", "annotation", 28, 16, 6),
        ("own/h200_vllm0.25_llama_rank0.pt.trace.json.gz", "annotation", 14, 4, 12),
        ("own/h200_cuda_graph_node_level.sqlite", "graph launch", 18, None, 4),
        ("own/h200_cuda_graph_graph_level.sqlite", "graph launch", 18, None, None),
        ("chrome/tl_sglang_qwen3_8b_decode.json.gz", "annotation", 0, None, None),  # one step of 36 layers
        ("chrome/tl_vllm_prefilldecode_piecewise.json.gz", "annotation", 0, None, None),
        ("chrome/tl_h100_falconsai.json.gz", "none", 0, None, None),  # one pass of twelve layers
    ],
)
def test_steps_of_real_servers(name: str, method: str, count: int, batch: int | None, layers: int | None) -> None:
    steps = steps_of(trace_of(name), RULES)
    assert (steps.method, steps.count, steps.batch, steps.layers) == (method, count, batch, layers)
    assert (steps.median_ns is not None) == (count >= 3)
    if steps.components:
        exclusive = sum(c.exclusive_median_ns or 0 for c in steps.components)
        whole = exclusive + (steps.idle_median_ns or 0) + (steps.copy_only_median_ns or 0)
        assert steps.median_ns == pytest.approx(whole, rel=0.05)  # medians of parts


def test_the_experts_grow_from_one_sequence_to_sixteen() -> None:
    one, sixteen = (steps_of(trace_of(f"own/h200_vllm0.25_mxfp4_moe_c{c}.pt.trace.json.gz"), RULES) for c in (1, 16))
    moe = [next(c.median_ns for c in steps.components if c.component == "moe") for steps in (one, sixteen)]
    assert moe[1] > 1.2 * moe[0]


def test_an_opaque_graph_file_says_what_it_cannot_tell() -> None:
    (d,) = device_breakdowns(trace_of("own/h200_cuda_graph_graph_level.sqlite"), RULES, unknown)
    assert d.opaque_graph_ns == 1_242_725 and d.kernels == 55
    assert "--cuda-graph-trace=node" in d.warnings[0]
