"""Every step of a comparison against its own parent: a bundle beside its levers alone, speculation on top of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.compare.noise import noise_of
from dsv4bench.records.arm import Arm
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.records.verdict import CellVerdict, VerdictDocument
from dsv4bench.report.compare import comparison_lines, verdict_lines
from dsv4bench.runs.compare import CompareOptions, judge_all

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compare"))
from arms_made import make_arm, make_cell

DRIFT = [1.0, 1.02, 0.99, 1.01]
TOUCHED = {"moe": ["moe"], "splitk": ["attention"], "mtp": ["moe", "attention", "dense"]}
METRICS = ["output_tok_s", "tpot_p50_s", "ttft_p50_s"]


def arm(name: str, levers: list[str], tok_s: float, parent: str | None = "baseline", **more: Any) -> Arm:
    accept = 1.9 if "mtp" in levers else None
    cells = [
        make_cell(
            tok_s * d, c, launch=f"L{i}", block=i, tpot_p50_s=c / tok_s / d, ttft_p50_s=1.0, accept_length=accept
        )
        for c in (1, 8)
        for i, d in enumerate(DRIFT)
    ]
    both = TOUCHED["moe"] + TOUCHED["splitk"]
    touches = {x: both if len(levers) > 1 else TOUCHED[x] for x in levers}
    return make_arm(name, cells, levers=levers, parent=parent, touches=touches, server=None, **more)


ARMS = [
    arm("baseline", [], 100.0, None),
    arm("mtp", ["mtp"], 110.0),
    arm("moe", ["moe"], 200.0),
    arm("splitk", ["splitk"], 120.0),
    arm("both", ["moe", "splitk"], 312.0),
    arm("both+mtp", ["mtp"], 400.0, "both"),
]
PARTS = {"moe": 0.6, "attention": 0.2, "dense": 0.19, "idle": 0.01}


def judged(arms: list[Arm]) -> VerdictDocument:
    shares = [
        KernelShare(config="baseline", kernel=k, component=k, concurrency=1, share_frac=s) for k, s in PARTS.items()
    ]
    told = SharesDocument(source="a trace", published=False, shares=shares)
    return judge_all(arms, CompareOptions(names=[], metrics=METRICS), noise_of(None), told)


def one(found: VerdictDocument, config: str, metric: str, concurrency: int, versus: str = "parent") -> CellVerdict:
    (v,) = [
        v
        for v in found.cells
        if (v.config, v.metric, v.concurrency, v.versus) == (config, metric, concurrency, versus)
    ]
    return v


def test_a_bundle_is_held_beside_its_levers_on_the_same_parent() -> None:
    found = judged(ARMS)
    lever = next(x for x in found.levers if x.config == "both")
    assert [round(x.over_product_ratio, 3) for x in lever.bundle] == [1.3, 1.3]
    for metric in METRICS:
        assert "both bundles moe, splitk: each alone under Levers" in one(found, "both", metric, 1).reason
    v = one(found, "both", "output_tok_s", 1)
    assert v.bound_note == "at most +400.0 % at C=1; moe at most +150.0 %; splitk at most +25.0 %"
    text = "\n".join(comparison_lines(found))
    assert "    at C=1 alone: moe ×2.00, splitk ×1.20; product ×2.40, together ×3.12 (×1.30 of the product" in text
    assert "not separable" not in text


def test_without_one_of_them_it_is_not_separable() -> None:
    found = judged([a for a in ARMS if a.name != "splitk"])
    assert "both bundles moe, splitk: not separable" in one(found, "both", "output_tok_s", 1).reason
    assert one(found, "both", "output_tok_s", 1).bound_note == "at most +400.0 % at C=1"
    assert "    both bundles moe, splitk: not separable" in comparison_lines(found)


@pytest.mark.parametrize(("config", "parent"), [("mtp", "baseline"), ("both+mtp", "both")])
def test_speculation_is_bounded_against_its_parent_where_nothing_was_profiled_too(config: str, parent: str) -> None:
    found = judged(ARMS)
    for concurrency in (1, 8):
        where = f"at C={concurrency}: 1.90 tokens a step, the step no shorter"
        v = one(found, config, "output_tok_s", concurrency)
        assert (v.versus_name, v.bound_source, v.bound_note) == (parent, "speculation", f"at most +90.0 % {where}")
        assert v.bound_frac == pytest.approx(0.9)
        for metric in ("tpot_p50_s", "ttft_p50_s"):  # a smaller decode batch shortens TPOT beyond what tokens allow
            assert one(found, config, metric, concurrency).bound_note is None


def test_no_line_says_a_percentage_twice() -> None:
    for line in verdict_lines(judged(ARMS)):
        change = line.partition("% [")[0].rpartition(" ")[0].rpartition(" ")[2]
        assert not change.startswith(("+", "-")) or line.count(f"{change} %") == 1, line
