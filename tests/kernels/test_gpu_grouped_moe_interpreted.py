"""The grouped MoE kernels against the reference, through Triton's interpreter: no GPU takes part."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from interpreter import run

PARITY = """
import msgspec
from dsv4bench.kernels.cases import SMALL, MoeShape
from dsv4bench.kernels.parity import run_list
from dsv4bench.kernels.registry import kernels

# 68 tokens are for a GPU.
moe = [c for c in SMALL if isinstance(c, MoeShape) and c.tokens <= 20]
moe.append(MoeShape(tokens=2, experts=3, top_k=2, hidden=128, inner=32))  # a quarter of a tile
few = [c for c in moe if c.tokens <= 3]
plan = {"grouped_moe": moe, "grouped_moe_separate": few, "grouped_moe_w4a4": few, "grouped_moe_w4a8": few}
rows = [row for name, shapes in plan.items() for row in run_list(kernels(name), shapes)]
answer = msgspec.to_builtins({
    "rows": rows,
    "expected": {name: len(shapes) for name, shapes in plan.items()},
})
"""

# Every way of cutting that the plan for some number of tokens has, on few tokens.
PLANS = """
from dsv4bench.kernels import cases
from dsv4bench.kernels.comparison import compare
from dsv4bench.kernels.gpu import grouped_moe
from dsv4bench.kernels.gpu.grouped_moe import GroupedMoe, Plan, Tile, plan
from dsv4bench.kernels.reference import moe

call = cases.make_moe(cases.MoeShape(tokens=3, experts=4, top_k=2, hidden=256, inner=128, routing="some -1"), 0)
call.ids[0] = 2  # one expert twice in a token
prepared = GroupedMoe().prepare(call.experts)
cuts = {plan(tokens) for tokens in (*range(1, 130), 200, 300, 600, 2000)}
cuts.add(Plan(8, Tile(64, 2, 1), Tile(128, 2, 1), direct=True))
answer = {}
for cut in cuts:
    out = grouped_moe.run(call.x, call.ids, call.weights, prepared, cut)
    answer[str(cut)] = compare(out, None, moe(call)).why or "pass"
"""

ROUTING = """
import torch
from dsv4bench.kernels.gpu.routing import block_limit, route

answer = []
cases = ((1, 3, 5, 8, 5), (9, 4, 6, 8, 6), (40, 3, 7, 8, 2), (33, 2, 300, 16, 300), (4, 2, 8, 8, 0))
for tokens, k, experts, block, highest in cases:
    ids = torch.randint(-1, highest, (tokens, k), generator=torch.Generator().manual_seed(tokens)).int()
    x = torch.randn(tokens, 128).bfloat16()
    out = torch.full_like(x, 7.0)
    groups = route(x, ids, out, experts, block, 4, lifted=True, pdl=False)
    count = int(groups.num_blocks)
    slots = groups.block_slots.view(-1, block)[:count].tolist()
    owners = groups.block_expert[:count].tolist()
    answer.append({
        "ids": ids.flatten().tolist(), "slots": slots, "experts": owners, "limit": groups.limit, "block": block,
        "counters": int(groups.arrived.abs().sum()), "lifted": bool((groups.x == x * 2.0**64).all()),
        "zeroed": [bool((row == 0).all()) for row in out], "kept": [bool((row == 7).all()) for row in out],
        "absent": (ids < 0).all(1).tolist(),
    })
"""


@pytest.fixture(scope="module")
def parity() -> dict[str, Any]:
    found: dict[str, Any] = run(PARITY)
    return found


@pytest.mark.parametrize("kernel", ["grouped_moe", "grouped_moe_separate", "grouped_moe_w4a4", "grouped_moe_w4a8"])
def test_every_small_case_passes(parity: dict[str, Any], kernel: str) -> None:
    rows = [row for row in parity["rows"] if row["kernel"] == kernel]
    assert [(row["case"], row["why"]) for row in rows if row["outcome"] != "pass"] == []
    assert len(rows) == parity["expected"][kernel] > 7


def test_errors_are_those_of_the_activations(parity: dict[str, Any]) -> None:
    """bf16 far below the gate's limit; what MXFP4 and MXFP8 cost is what the registry says, not less and not more."""
    for row in parity["rows"]:
        least, most = {"grouped_moe_w4a4": (0.1, 0.35), "grouped_moe_w4a8": (0.02, 0.085)}.get(
            row["kernel"], (0, 0.004)
        )
        all_absent = row["case"].endswith("all -1")
        assert (0 if all_absent else least) <= row["rel_fro"] < most, row


def test_every_plan_computes_the_same() -> None:
    found = run(PLANS)
    assert len(found) >= 4
    assert {name: outcome for name, outcome in found.items() if outcome != "pass"} == {}


def test_routing_puts_every_slot_into_one_block_of_its_expert() -> None:
    for case in run(ROUTING):
        ids, block = case["ids"], case["block"]
        placed = [slot for slots in case["slots"] for slot in slots if slot >= 0]
        assert sorted(placed) == [i for i, expert in enumerate(ids) if expert >= 0]
        for slots, expert in zip(case["slots"], case["experts"], strict=True):
            valid = [slot for slot in slots if slot >= 0]
            assert valid and {ids[slot] for slot in valid} == {expert}
            assert slots == sorted(valid) + [-1] * (block - len(valid))  # in order, filled up at the end
        assert case["experts"] == sorted(case["experts"])
        full = {e: -(-ids.count(e) // block) for e in set(ids) if e >= 0}
        assert {e: case["experts"].count(e) for e in set(case["experts"])} == full
        assert len(case["experts"]) <= case["limit"]
        assert case["counters"] == 0 and case["lifted"]
        assert case["zeroed"] == case["absent"] and [not kept for kept in case["kept"]] == case["absent"]


def test_the_limit_of_blocks_is_reached_and_never_passed() -> None:
    from dsv4bench.kernels.gpu.routing import block_limit

    for slots in range(1, 40):
        for experts in (1, 2, 3, 7):
            for block in (1, 2, 8):
                most = max(sum(-(-c // block) for c in counts) for counts in _partitions(slots, min(experts, slots)))
                assert block_limit(slots, experts, block) == most, (slots, experts, block)


def _partitions(total: int, parts: int) -> list[list[int]]:
    """Counts with one slot for each expert but one of them: where the most blocks are."""
    return [[1] * (used - 1) + [total - used + 1] for used in range(1, parts + 1)]
