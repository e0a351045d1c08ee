"""What an H200 gave to each way of recording: nsys with node and graph level, GPU_METRICS, ncu, PM sampling.

The nsys exports and the torch traces are of the same server (8 layers, 16 requests, both kernel sets), so the two
ways can be held against each other. tests/data/README.md says how each file was made.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from dsv4bench.attribution.activity import activity
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.device import DeviceActivity
from dsv4bench.records.trace import DeviceSamples
from dsv4bench.runs.profile import ProfileOptions, run_profile

DATA = Path(__file__).resolve().parent.parent / "data"
SETS = ("fallback", "optimized")
PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
MMA = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active.avg.pct_of_peak_sustained_elapsed"


def document(name: str, folder: Path, label: str = "C16") -> BreakdownDocument:
    path = folder / name.removesuffix(".gz") if name.endswith((".sqlite.gz", ".csv.gz")) else DATA / name
    if path.parent == folder:
        path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    return run_profile(ProfileOptions(traces=[f"{label}={path}"])).document


def shares(found: BreakdownDocument) -> dict[str, float]:
    """Percent of the kernels' sum."""
    return {c.component: 100 * (c.share_of_sum_frac or 0.0) for c in found.devices[0].components}


@pytest.mark.parametrize("kernels", SETS)
def test_nsys_and_torch_agree_on_every_component(kernels: str, tmp_path: Path) -> None:
    by_torch = document(f"h200_decode_{kernels}.pt.trace.json.gz", tmp_path)
    by_nsys = document(f"h200_nsys_node_{kernels}_c16.sqlite.gz", tmp_path)
    one, other = shares(by_torch), shares(by_nsys)
    assert one["moe"] > 50
    for component in one.keys() | other.keys():
        assert one.get(component, 0) == pytest.approx(other.get(component, 0), abs=2.0), component
    assert [(x.moe, x.attention) for x in by_nsys.live] == [(x.moe, x.attention) for x in by_torch.live]


def test_nsys_and_torch_find_the_same_step(tmp_path: Path) -> None:
    one = document("h200_decode_optimized.pt.trace.json.gz", tmp_path).steps
    other = document("h200_nsys_node_optimized_c16.sqlite.gz", tmp_path).steps
    assert one is not None and other is not None and other.count > 20
    assert other.median_ns == pytest.approx(one.median_ns, rel=0.02)
    assert (other.method, other.batch, other.graph_launches) == ("annotation", 16, 1)


def test_the_fallback_spends_its_step_in_two_kernels_on_cuda_cores(tmp_path: Path) -> None:
    found = document("h200_nsys_node_fallback_c16.sqlite.gz", tmp_path)
    total = sum(r.time_ns for r in found.devices[0].rows)
    first, second = sorted(found.devices[0].rows, key=lambda r: -r.time_ns)[:2]
    assert (first.name, second.name) == ("_mxfp4_slot_gemv_kernel", "_tiled_sparse_decode_kernel")
    assert (first.time_ns + second.time_ns) / total > 0.9
    assert found.devices[0].graph_kernels_frac == pytest.approx(1.0, abs=0.01)


def test_a_graph_level_export_says_what_it_hides_and_still_has_the_counters(tmp_path: Path) -> None:
    device = document("h200_nsys_graph_metrics.sqlite.gz", tmp_path).devices[0]
    assert device.opaque_graph_ns > device.kernel_busy_ns > 0
    assert device.tensor_pipe_frac == pytest.approx(0.209, abs=0.002)
    assert device.dram_frac == pytest.approx(0.289, abs=0.002)


def test_counters_tell_the_unit_of_the_four_hot_kernels(tmp_path: Path) -> None:
    rows = [r for d in document("h200_ncu_hot_kernels.csv.gz", tmp_path).devices for r in d.rows]
    units = {
        (r.name, r.runs_on, r.evidence) for r in rows if r.name.startswith(("_mxfp4", "_tiled", "_sparse", "gate"))
    }
    assert ("_mxfp4_slot_gemv_kernel", "cuda", "counter") in units
    assert ("_tiled_sparse_decode_kernel", "cuda", "counter") in units
    assert ("gate_up_kernel", "tensor", "counter") in units
    assert ("_sparse_decode_split_kernel", "tensor", "counter") in units
    assert ("_sparse_decode_combine_kernel", "cuda", "counter") in units
    assert len(units) == 5  # no kernel on two units


def test_packed_half_arithmetic_is_not_called_tensor(tmp_path: Path) -> None:
    """HFMA2 keeps the tensor pipe busy without one matrix instruction."""
    name = "h200_ncu_hot_kernels.csv.gz"
    text = gzip.decompress((DATA / name).read_bytes()).decode()
    table = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    busy = {
        row["Kernel Name"].split("(")[0].split("<")[0]
        for row in table
        if row[PIPE] not in ("", "%") and float(row[PIPE]) > 0.05 and float(row[MMA]) == 0.0
    }
    assert "_sparse_decode_combine_kernel" in busy and len(busy) > 1
    found = {
        r.name.split("(")[0].split("<")[0].replace("at::native::", "at::"): r.runs_on
        for d in document(name, tmp_path).devices
        for r in d.rows
    }
    assert found["_sparse_decode_combine_kernel"] == "cuda"
    assert "tensor" not in {unit for kernel, unit in found.items() if "elementwise" in kernel}


def recorded(name: str) -> DeviceActivity:
    kept = json.loads(gzip.decompress((DATA / "h200_pm_samples.json.gz").read_bytes()))["recordings"][name]
    ends, spans = np.array(kept["time_ns"], np.int64), np.array(kept["span_ns"], np.int64)
    samples = DeviceSamples(
        file=name,
        device=0,
        time_ns=ends,
        metrics={k: np.array(v, np.float64) for k, v in kept["metrics"].items()},
        span_ns=spans,
    )
    found = activity([samples], (int(ends[0] - spans[0]), int(ends[-1])), "CUPTI PM sampling")
    assert found is not None
    return found


def test_pm_samples_tell_idle_reduction_and_gemm_apart() -> None:
    idle, reduction, gemm = (recorded(f"{load} pm") for load in ("idle", "reduce", "gemm"))
    assert idle.tensor_pipe.mean_frac == idle.sm.mean_frac == 0.0  # type: ignore[union-attr]
    assert reduction.sm.mean_frac > 0.9 and reduction.dram.mean_frac > 0.8  # type: ignore[union-attr]
    assert reduction.tensor_pipe.mean_frac < 0.01  # type: ignore[union-attr]
    assert gemm.tensor_pipe.mean_frac > 0.85  # type: ignore[union-attr]
    assert gemm.n_dropped == reduction.n_dropped == 0
    assert gemm.interval_s == pytest.approx(200e-6, rel=0.01)
