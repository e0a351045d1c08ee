"""The split-K sparse decode against the reference, through Triton's interpreter: no GPU takes part."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from interpreter import run

PARITY = """
import msgspec
from dsv4bench.kernels.cases import SMALL, AttentionShape
from dsv4bench.kernels.gpu.split_k import SplitK
from dsv4bench.kernels.parity import run_case, run_list
from dsv4bench.kernels.registry import kernels

(kernel,) = kernels("sparse_decode_split_k")
shapes = [c for c in SMALL if isinstance(c, AttentionShape)]
rows = run_list([kernel], [*shapes, AttentionShape(batch=1, heads=3, window=17, extra=33, page_size=64)])
sunk = [run_case(kernel, SplitK("with_sink"), shape) for shape in shapes if shape.heads == 8]
answer = msgspec.to_builtins({"plain": rows, "with_sink": sunk, "cases": len(shapes)})
"""

# Each way to cut: tiles of one and of several heads and rows, one split, more than there are rows, and more than the
# combining kernel holds at once.
CUTS = """
from dsv4bench.kernels.cases import AttentionShape
from dsv4bench.kernels.gpu.split_k import SplitK
from dsv4bench.kernels.gpu.split_k_plan import Plan
from dsv4bench.kernels.parity import run_case
from dsv4bench.kernels.registry import kernels

(kernel,) = kernels("sparse_decode_split_k")
cuts = [
    Plan(splits=splits, heads=heads, rows=rows, halves=halves, ahead=ahead, wgmma=wgmma)
    for splits, heads, rows, halves, ahead, wgmma in (
        (1, 64, 64, 1, True, True), (1, 64, 64, 2, False, True), (2, 64, 64, 1, True, True),
        (3, 64, 32, 2, False, True), (3, 32, 32, 2, False, False), (5, 16, 16, 1, True, False),
        (40, 64, 32, 2, False, True),
    )
]
answer = {}
for lse in ("plain", "with_sink"):
    for shape in (
        AttentionShape(batch=2, heads=40, window=35, extra=100, lengths="mixed", holes="some", beyond="outside"),
        AttentionShape(batch=1, heads=8, window=70, extra=0, sink=False),
    ):
        for cut in cuts:
            row = run_case(kernel, SplitK(lse, lambda *_: cut), shape)
            ok = row.outcome == "pass" and row.rel_fro < 0.003
            answer[f"{lse} {shape.label} {cut}"] = row.outcome if ok else f"{row.why} {row.rel_fro}"
"""

# Splits differ in what the probabilities are relative to, so in how they round to bf16. Where all are equal nothing
# rounds, and float32 shows whether the parts are joined rightly.
AGREE = """
from dataclasses import replace
import torch
from dsv4bench.kernels.cases import AttentionShape, make_attention, make_pools
from dsv4bench.kernels.gpu.split_k import SplitK
from dsv4bench.kernels.gpu.split_k_plan import Plan

shape = AttentionShape(batch=2, heads=8, window=64, extra=200, lengths="mixed")
call = make_attention(shape, 0, torch.device("cpu"), make_pools(shape, 0, torch.device("cpu")))
equal = replace(call, q=torch.zeros_like(call.q))

def attend(call, splits):
    cut = Plan(splits=splits, heads=64, rows=32, halves=1)
    kernel, (batch, heads, _) = SplitK(), call.q.shape
    out, lse = torch.empty(batch, heads, 512), torch.empty(batch, heads)
    if splits == 1:
        kernel._split(call, cut, out, lse, overlap=False)
        return out, lse
    part, part_lse = torch.full((batch, splits, heads, 512), torch.nan), torch.full((batch, splits, heads), torch.nan)
    kernel._split(call, cut, part, part_lse, overlap=False)
    kernel._combine(call, cut, part, part_lse, out, lse, overlap=False)
    return out, lse

answer = {}
for name, used in (("equal", equal), ("random", call)):
    whole, whole_lse = attend(used, 1)
    size = float(whole.abs().max())
    for splits in (2, 5, 17, 40):
        out, lse = attend(used, splits)
        answer[f"{name} {splits}"] = [float((out - whole).abs().max()) / size, float((lse - whole_lse).abs().max())]
"""


@pytest.fixture(scope="module")
def parity() -> dict[str, Any]:
    found: dict[str, Any] = run(PARITY)
    return found


@pytest.mark.parametrize("convention", ["plain", "with_sink"])
def test_every_small_case_passes(parity: dict[str, Any], convention: str) -> None:
    rows = parity[convention]
    assert [(row["case"], row["why"]) for row in rows if row["outcome"] != "pass"] == []
    assert len(rows) > 20
    if convention == "plain":
        assert len(rows) == parity["cases"] + 1


def test_errors_are_those_of_bf16(parity: dict[str, Any]) -> None:
    for row in (*parity["plain"], *parity["with_sink"]):
        assert row["rel_fro"] < 0.003, row


def test_every_cut_computes_the_same() -> None:
    found = run(CUTS)
    assert len(found) == 28
    assert {name: outcome for name, outcome in found.items() if outcome != "pass"} == {}


def test_splits_agree_in_float32() -> None:
    found = run(AGREE)
    assert len(found) == 8
    for name, (out, lse) in found.items():
        assert lse < 3e-5, (name, lse)
        assert out < (3e-5 if name.startswith("equal") else 5e-3), (name, out)
