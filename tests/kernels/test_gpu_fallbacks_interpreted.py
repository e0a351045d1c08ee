"""The Triton fallbacks against the reference, through Triton's interpreter: no GPU takes part."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from interpreter import run

PARITY = """
from dataclasses import replace
import msgspec
from dsv4bench.kernels.cases import SMALL, AttentionShape, MoeShape
from dsv4bench.kernels.parity import run_list
from dsv4bench.kernels.registry import kernels

# What is left out is large for an interpreter, and new only for kernels that group tokens; two heads are as good as
# eight where each is a program of its own.
moe = [c for c in SMALL if isinstance(c, MoeShape) and c.tokens <= 5]
attention = [c for c in SMALL if isinstance(c, AttentionShape)]
single = list(dict.fromkeys(replace(c, heads=2) for c in attention))
# No tile divides these.
moe.append(MoeShape(tokens=2, experts=3, top_k=2, hidden=96, inner=32))
single.append(AttentionShape(batch=1, heads=3, window=17, extra=33, page_size=64))
attention.append(single[-1])
plan = {"slot_gemv": moe, "sparse_decode_per_head": single, "sparse_decode_multi_head": attention}
rows = [row for name, shapes in plan.items() for row in run_list(kernels(name), shapes)]
answer = msgspec.to_builtins({
    "rows": rows,
    "expected": {name: len(shapes) for name, shapes in plan.items()},
})
"""

# Each choice that the autotuner has on a GPU, launched as it is there; the interpreter takes only one of them.
TILES = """
import torch
import triton
from dsv4bench.kernels.cases import AttentionShape, MoeShape
from dsv4bench.kernels.gpu import multi_head, per_head, slot_gemv
from dsv4bench.kernels.parity import run_case
from dsv4bench.kernels.registry import kernels

answer = {}
for module, name, kernel, configs, shape in (
    (slot_gemv, "slot_gemv", slot_gemv._mxfp4_slot_gemv_kernel, slot_gemv._CONFIGS,
     MoeShape(tokens=1, experts=2, top_k=2, hidden=160, inner=96)),
    (per_head, "sparse_decode_per_head", per_head._tiled_sparse_decode_kernel, per_head._CONFIGS,
     AttentionShape(batch=1, heads=2, window=35, extra=0, lengths="mixed")),
    (multi_head, "sparse_decode_multi_head", multi_head._tiled_sparse_decode_kernel_mh, multi_head._CONFIGS,
     AttentionShape(batch=1, heads=40, window=35, extra=0, lengths="mixed")),
):
    (entry,) = kernels(name)
    for config in configs:
        kernel.configs = [config]
        row = run_case(entry, module.runner(), shape)
        answer[f"{name} {config}"] = row.why or row.outcome
"""


@pytest.fixture(scope="module")
def parity() -> dict[str, Any]:
    found: dict[str, Any] = run(PARITY)
    return found


@pytest.mark.parametrize("kernel", ["slot_gemv", "sparse_decode_per_head", "sparse_decode_multi_head"])
def test_every_small_case_passes(parity: dict[str, Any], kernel: str) -> None:
    rows = [row for row in parity["rows"] if row["kernel"] == kernel]
    assert [(row["case"], row["why"]) for row in rows if row["outcome"] != "pass"] == []
    assert len(rows) == parity["expected"][kernel] > 10


def test_errors_are_those_of_bf16(parity: dict[str, Any]) -> None:
    """Far below the limit of the gate: a mistake of one per cent in a corner would pass the gate, not this."""
    for row in parity["rows"]:
        limit = 0.008 if row["kernel"] == "slot_gemv" else 0.004
        assert row["rel_fro"] < limit, row


def test_every_tile_computes_the_same() -> None:
    found = run(TILES)
    assert len(found) == 11
    assert {name: outcome for name, outcome in found.items() if outcome != "pass"} == {}
