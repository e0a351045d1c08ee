"""Labels side by side: time a step, so that a share that fell is told from one that only looks smaller."""

from __future__ import annotations

from typing import Any

import pytest

from dsv4bench.attribution.shift import shifts
from dsv4bench.records.breakdown import ComponentTime, DeviceBreakdown, Shift, StepComponent, Steps


def steps(label: str, median: int, parts: dict[str, int], idle: int | None = 0, **fields: Any) -> Steps:
    components = [StepComponent(component=c, median_ns=ns, exclusive_median_ns=ns) for c, ns in parts.items()]
    return Steps(
        label=label,
        count=12,
        method="annotation",
        median_ns=median,
        idle_median_ns=idle,
        components=components,
        **fields,
    )


BS1 = steps("bs1", 1000, {"attention": 630, "moe": 100, "dense": 170}, idle=100)
C16 = steps("c16", 6900, {"attention": 2622, "moe": 2691, "dense": 900, "comm": 100}, idle=187)


def by_name(found: list[Shift]) -> dict[str, Shift]:
    return {s.component: s for s in found}


def test_time_a_step_and_share_move_apart() -> None:
    found, said = shifts([BS1, C16])
    rows = by_name(found)
    attention = rows["attention"]
    assert (attention.base_ns, attention.new_ns, attention.delta_ns) == (630, 2622, 1992)
    assert attention.ratio == pytest.approx(4.162, abs=1e-3)  # four times the time
    assert attention.base_share_frac == pytest.approx(0.63) and attention.new_share_frac == pytest.approx(0.38)
    assert said == []
    assert found[0].component == "step" and found[0].delta_ns == 5900
    assert [s.component for s in found[1:3]] == ["moe", "attention"]  # the largest change first


def test_the_rows_add_up_to_the_step() -> None:
    found, _ = shifts([BS1, C16])
    parts = [s for s in found if s.component != "step"]
    assert sum(s.base_ns or 0 for s in parts) == 1000 and sum(s.new_ns or 0 for s in parts) == 6900
    assert sum(s.delta_ns or 0 for s in parts) == found[0].delta_ns


def test_a_component_that_only_one_side_has() -> None:
    rows = by_name(shifts([BS1, C16])[0])
    assert (rows["comm"].base_ns, rows["comm"].new_ns, rows["comm"].ratio) == (0, 100, None)


def test_kernel_time_is_taken_when_one_side_lacks_exclusive_time() -> None:
    bare = Steps(
        label="new",
        count=12,
        method="anchor kernel",
        median_ns=900,
        components=[StepComponent(component="moe", median_ns=450)],
    )
    rows = by_name(shifts([BS1, bare])[0])
    assert (rows["moe"].base_ns, rows["moe"].new_ns) == (100, 450) and "overlap" not in rows


def test_without_steps_only_shares_stand_side_by_side() -> None:
    def device(label: str, share: float) -> DeviceBreakdown:
        return DeviceBreakdown(
            device=0,
            label=label,
            rank=None,
            file="f",
            window_ns=10,
            kernel_sum_ns=10,
            kernel_busy_ns=10,
            any_busy_ns=10,
            copy_only_ns=0,
            idle_ns=0,
            overlap_ns=0,
            opaque_graph_ns=0,
            kernels=1,
            components=[ComponentTime(component="moe", time_ns=10, share_of_busy_frac=share)],
        )

    none = Steps(label="new", count=0, method="none")
    found, said = shifts([BS1, none], [device("bs1", 0.2), device("new", 0.5)])
    assert by_name(found)["moe"].delta_ns is None
    assert (by_name(found)["moe"].base_share_frac, by_name(found)["moe"].new_share_frac) == (0.2, 0.5)
    assert said == ["new: no decode step was found, so shares stand side by side"]


def test_three_labels_are_each_set_against_the_first_and_batches_are_said() -> None:
    third = steps("c8", 4000, {"moe": 3900}, batch=8)
    found, said = shifts([steps("bs1", 1000, {"moe": 900}, batch=1), C16, third])
    assert {(s.base_label, s.new_label) for s in found} == {("bs1", "c16"), ("bs1", "c8")}
    assert len(said) == 1 and "bs1 has 1 sequences a step and c8 8" in said[0]
    assert shifts([BS1]) == ([], [])
