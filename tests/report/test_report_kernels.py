"""The registry and the units of builds as tables: words, none of them claimed without evidence."""

from __future__ import annotations

from typing import Any

import pytest
from report_cells import printed

from dsv4bench.records.kernels import InspectDocument, InspectRow, KernelEntry, KernelInput, KernelListDocument
from dsv4bench.report.kernels import (
    inspect_lines,
    inspect_table,
    kernels_list_lines,
    kernels_list_table,
    runs_on,
)


def row(kernel: str, arch: str, label: str = "", **fields: Any) -> InspectRow:
    known: dict[str, Any] = {"function": f"_{kernel}", "role": "fallback", "triton": "3.6.0"}
    if "why_null" not in fields:
        known |= {"mma": {}, "instructions": 913, "fp64": 0, "registers": 95, "spill_bytes": 0, "smem_bytes": 2048}
    return InspectRow(kernel=kernel, arch=arch, label=label, **{**known, **fields})


TOO_BIG = "needs 127360 bytes of shared memory, a block of sm_120 has 101376"
ROWS = [
    row("gemv", "sm_90", "BN64"),
    row("gemv", "sm_120", "BN64", spill_bytes=12),
    row("heads", "sm_90", mma={"HGMMA": 77}, registers=255, smem_bytes=102720),
    row("heads", "sm_120", mma={"HMMA": 288}, cannot_run=TOO_BIG, smem_bytes=127360),
    row("heads", "sm_100", why_null="needs 584 columns of tensor memory, sm_100 has 512"),
]


def test_a_row_says_the_unit_and_the_evidence() -> None:
    assert printed(inspect_table(InspectDocument(rows=ROWS)), width=200).splitlines() == [
        "kernel  build   arch    registers  spilled B  shared B  runs on",
        "gemv    BN64    sm_90          95          0      2048  CUDA cores: no MMA in 913 instructions",
        "        BN64    sm_120         95         12      2048  CUDA cores: no MMA in 913 instructions",
        "heads   _heads  sm_90         255          0    102720  tensor cores: HGMMA 77",
        "        _heads  sm_120         95          0    127360  tensor cores: HMMA 288; cannot run",
        "        _heads  sm_100          –          –         –  not known",
    ]


def test_a_kernel_is_summed_up_over_its_builds() -> None:
    assert inspect_lines(InspectDocument(rows=ROWS)) == [
        "gemv: sm_90 CUDA cores, no MMA in 1 build; sm_120 CUDA cores, no MMA in 1 build",
        "heads: sm_90 tensor cores (HGMMA); sm_120 tensor cores (HMMA), 1 of 1 build cannot run; sm_100 not known",
        f"heads, _heads, sm_120: {TOO_BIG}",
        "heads, _heads, sm_100: needs 584 columns of tensor memory, sm_100 has 512",
    ]


def test_builds_that_differ_are_not_called_one_thing() -> None:
    rows = [row("k", "sm_90"), row("k", "sm_90", mma={"HMMA": 4}), row("k", "sm_90", why_null="it crashed")]
    assert inspect_lines(InspectDocument(rows=rows)) == [
        "k: sm_90 tensor cores (HMMA), but no MMA in 1 of 2 builds, 1 of 3 builds cannot run",
        "k, _k, sm_90: it crashed",
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"mma": {"HMMA": 4, "QMMA": 2}}, "tensor cores: HMMA 4, QMMA 2"),
        ({"fp64": 3}, "CUDA cores: no MMA in 913 instructions, 3 in double precision"),
        ({"why_null": "this build is for sm_90"}, "not known"),
        ({"mma": {"HMMA": 4}, "cannot_run": "too large"}, "tensor cores: HMMA 4; cannot run"),
    ],
)
def test_what_one_build_runs_on(fields: dict[str, Any], told: str) -> None:
    assert runs_on(row("k", "sm_90", **fields)) == told


def entry(name: str, **fields: Any) -> KernelEntry:
    known: dict[str, Any] = {
        "component": "moe",
        "role": "fallback",
        "summary": "row sums",
        "replaces": None,
        "default": True,
        "inputs": [KernelInput(name="x", dtype="bfloat16", shape="[M, D]")],
        "min_sm": 80,
        "archs": [],
        "loads": True,
        "why_not": None,
        "fits_gpu": None,
        "call": "M=16, 256 experts",
        "floor_bytes": 1_080_987_648,
        "flops": 4_831_838_208,
    }
    return KernelEntry(name=name, **{**known, **fields})


def test_the_registry_as_a_table() -> None:
    entries = [
        entry("gemv", fits_gpu=True),
        entry("heads", component="attention", role="second_fallback", replaces="one_head", fits_gpu=False),
        entry("w4a4", role="optimized", archs=["sm_120", "sm_121"], default=False),
        entry("marlin", role="peer", loads=False, why_not="needs vllm (pip install vllm)"),
    ]
    document = KernelListDocument(batch=16, gpu="NVIDIA H200 (sm_90)", kernels=entries)
    assert printed(kernels_list_table(document), width=200).splitlines() == [
        "kernel  component  role             replaces  architectures    here             floor MB  GFLOP",
        "gemv    moe        fallback         –         sm_80 and later  yes                1081.0   4.83",
        "heads   attention  second fallback  one_head  sm_80 and later  not on this GPU    1081.0   4.83",
        "w4a4    moe        optimized        –         sm_120, sm_121   loads              1081.0   4.83",
        "marlin  moe        peer             –         sm_80 and later  missing            1081.0   4.83",
    ]
    lines = kernels_list_lines(document)
    assert lines[0] == "gemv: row sums" and "w4a4: row sums (only when named)" in lines
    assert "marlin is not here: needs vllm (pip install vllm)" in lines
    assert lines.count("  x: bfloat16 [M, D]") == 2 and "moe, floor of one call: M=16, 256 experts" in lines
    assert lines[-1] == "GPU: NVIDIA H200 (sm_90)"
