"""Bundles taken apart: each lever alone on the same parent, their product, and what the bundle does beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from arms_made import launches, make_arm, make_cell

from dsv4bench.compare.bundles import measured_alone, taken_apart
from dsv4bench.compare.levers import lever_verdict
from dsv4bench.records.arm import Arm
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.verdict import LeverVerdict, VerdictDocument

DRIFT = [1.0, 1.1, 0.9, 1.05]  # of the machine, from block to block: all configurations share it
NOISE = [1.01, 0.99, 1.0, 1.005]
INSEPARABLE = "both bundles moe, splitk: not separable"


def arm(name: str, levers: Sequence[str], tok_s: float | Sequence[float], blocks: bool = True, **more: Any) -> Arm:
    values = [tok_s * d for d in DRIFT] if isinstance(tok_s, float) else list(tok_s)
    return make_arm(name, launches(values, blocks=blocks), levers=list(levers), server=None, **more)


BASE = arm("baseline", [], 100.0)
MOE = arm("moe", ["moe"], 200.0)
SPLITK = arm("splitk", ["splitk"], 120.0)
BOTH = arm("both", ["moe", "splitk"], [312.0 * d * n for d, n in zip(DRIFT, NOISE, strict=True)])


def judged(new: Arm = BOTH, siblings: Sequence[Arm] = (MOE, SPLITK), base: Arm = BASE) -> LeverVerdict:
    return taken_apart(lever_verdict(base, new), base, new, measured_alone(base, new, siblings))


def test_each_alone_and_together_over_their_product() -> None:
    v = judged()
    (x,) = v.bundle
    mean = math.prod(NOISE) ** 0.25
    assert x.alone_ratio == {"moe": pytest.approx(2.0), "splitk": pytest.approx(1.2)}
    assert (x.product_ratio, x.together_ratio) == (pytest.approx(2.4), pytest.approx(3.12 * mean))
    assert x.over_product_ratio == pytest.approx(1.3 * mean)
    logs = [math.log(n) for n in NOISE]
    sd = math.sqrt(sum((y - math.fsum(logs) / 4) ** 2 for y in logs) / 3)
    half = 3.182446 * sd / 2  # what the blocks share is gone, though it is ten times as large
    assert x.over_product_ci == pytest.approx((1.3 * mean * math.exp(-half), 1.3 * mean * math.exp(half)))
    assert x.proven
    assert x.text == (
        "moe ×2.00, splitk ×1.20; product ×2.40, together ×3.12 (×1.30 of the product [1.28, 1.32]: "
        "each is worth more once the other is in)"
    )
    assert v.bundled and INSEPARABLE not in v.notes and v.notes[0] == f"at C=8 alone: {x.text}"


def test_less_than_the_product_and_no_other_than_it() -> None:
    less = judged(arm("both", ["moe", "splitk"], 220.0)).bundle[0]
    assert less.over_product_ratio == pytest.approx(2.2 / 2.4)
    assert less.text.endswith(": each is worth less once the other is in)")
    wild = [240.0 * d * n for d, n in zip(DRIFT, [1.1, 0.9, 1.05, 0.95], strict=True)]
    open_ = judged(arm("both", ["moe", "splitk"], wild)).bundle[0]
    assert not open_.proven and open_.over_product_ci is not None
    assert open_.over_product_ci[0] < 1 < open_.over_product_ci[1]
    assert open_.text.endswith(": not shown to be another)")


def test_without_pairs_there_is_no_interval_and_no_direction() -> None:
    loose = [msgspec.structs.replace(a, cells=[msgspec.structs.replace(c, block=None) for c in a.cells])
             for a in (BASE, MOE, SPLITK, BOTH)]  # fmt: skip
    (x,) = judged(loose[3], loose[1:3], loose[0]).bundle
    assert (x.over_product_ci, x.proven) == (None, False)
    assert x.text.endswith("together ×3.12 (×1.30 of the product)")
    one = [make_arm(a.name, a.cells[:1], levers=a.levers, server=None) for a in (BASE, MOE, SPLITK, BOTH)]
    assert judged(one[3], one[1:3], one[0]).bundle[0].over_product_ci is None
    short = msgspec.structs.replace(SPLITK, cells=SPLITK.cells[:3])  # a block that not all of them have
    assert judged(siblings=[MOE, short]).bundle[0].over_product_ci is None


def test_three_levers() -> None:
    third = arm("comm", ["comm"], 110.0)
    x = judged(arm("both", ["moe", "splitk", "comm"], 400.0), [MOE, SPLITK, third]).bundle[0]
    assert x.product_ratio == pytest.approx(2.64)
    assert x.text.endswith(": worth more together)")


def test_levels_are_told_one_by_one_and_only_where_all_were_measured() -> None:
    def at(a: Arm, **place: int) -> Arm:
        return msgspec.structs.replace(a, cells=[msgspec.structs.replace(c, **place) for c in a.cells])

    def twice(a: Arm, **place: int) -> Arm:
        return msgspec.structs.replace(a, cells=[*a.cells, *at(a, **(place or {"concurrency": 16})).cells])

    v = judged(twice(BOTH), [twice(MOE), twice(SPLITK)], twice(BASE))
    assert [x.concurrency for x in v.bundle] == [8, 16]
    assert [note.partition(" alone")[0] for note in v.notes[:2]] == ["at C=8", "at C=16"]
    assert [x.concurrency for x in judged(twice(BOTH), [twice(MOE), SPLITK], twice(BASE)).bundle] == [8]
    assert judged(at(BOTH, isl=4096)).bundle == []
    base, *rest = (twice(a, isl=4096) for a in (BASE, MOE, SPLITK, BOTH))
    v = judged(rest[2], rest[:2], base)
    assert [note.partition(" alone")[0] for note in v.notes[:2]] == ["at C=8, ISL 1024", "at C=8, ISL 4096"]


@pytest.mark.parametrize(
    "siblings",
    [
        [MOE],
        [],
        [MOE, arm("other", ["paged"], 120.0)],
        [MOE, SPLITK, arm("splitk2", ["splitk"], 130.0)],  # which of the two is in the bundle?
        [MOE, msgspec.structs.replace(SPLITK, not_live="seen otherwise")],
        [MOE, msgspec.structs.replace(SPLITK, workload={**SPLITK.workload, "model": "other"})],
        [MOE, msgspec.structs.replace(SPLITK, hardware={"gpus": "GPU Y"})],
        [arm("moe", ["moe"], 200.0), msgspec.structs.replace(SPLITK, cells=[make_cell(None, launch="L0")])],
    ],
)
def test_unless_each_was_measured_alone_a_bundle_is_not_separable(siblings: list[Arm]) -> None:
    v = judged(siblings=siblings)
    assert (v.bundle, v.notes[0]) == ([], INSEPARABLE)


def test_a_contradicted_sibling_stands_for_nothing() -> None:
    told = msgspec.structs.replace(BASE, server={"a": 1, "b": 1})
    wrong = msgspec.structs.replace(SPLITK, server={"a": 2, "b": 2}, lever_keys={"splitk": ["a"]})
    assert judged(siblings=[MOE, wrong], base=told).bundle == []


def test_a_single_lever_is_no_bundle() -> None:
    assert judged(MOE, [SPLITK]).bundle == []


def test_it_travels_in_the_document_and_older_ones_lack_it() -> None:
    raw = encode(VerdictDocument(levers=[judged()]))
    (x,) = decode(raw, VerdictDocument, "x").levers[0].bundle
    assert (x.text, x.over_product_ratio) == (judged().bundle[0].text, pytest.approx(1.3, rel=0.01))
    old = msgspec.json.decode(raw)
    del old["levers"][0]["bundle"]
    assert decode(msgspec.json.encode(old), VerdictDocument, "x").levers[0].bundle == []
