"""Several ranks: median and worst, missing and empty ones said, and nothing summed."""

from __future__ import annotations

from typing import Any

from dsv4bench.attribution.ranks import joined, summary
from dsv4bench.records.breakdown import ComponentTime, DeviceBreakdown, StepComponent, Steps


def device(rank: int | None, busy_ns: int, comm_ns: int = 0, **fields: Any) -> DeviceBreakdown:
    own = busy_ns - comm_ns
    known: dict[str, Any] = {
        "device": rank or 0,
        "label": "c16",
        "file": f"rank{rank}.json",
        "window_ns": 1000,
        "kernel_sum_ns": busy_ns,
        "kernel_busy_ns": busy_ns,
        "any_busy_ns": busy_ns,
        "copy_only_ns": 0,
        "idle_ns": 1000 - busy_ns,
        "overlap_ns": 0,
        "opaque_graph_ns": 0,
        "kernels": 10,
        "components": [
            ComponentTime(component="moe", time_ns=own, exclusive_ns=own, count=5, share_of_busy_frac=own / busy_ns),
            ComponentTime(
                component="comm", time_ns=comm_ns, exclusive_ns=comm_ns, count=5, share_of_busy_frac=comm_ns / busy_ns
            ),
        ]
        if busy_ns
        else [],
    }
    return DeviceBreakdown(rank=rank, **{**known, **fields})


def step(median: int, **fields: Any) -> Steps:
    known: dict[str, Any] = {
        "count": 12,
        "method": "annotation",
        "components": [
            StepComponent(component="moe", median_ns=median // 2, exclusive_median_ns=median // 2, launches=43.0)
        ],
    }
    return Steps(label="c16", median_ns=median, **{**known, **fields})


def test_median_and_worst_over_ranks_and_no_sum() -> None:
    made, said = summary("c16", [device(0, 900, 300), device(1, 900, 500), device(2, 920, 100), device(3, 940, 300)])
    assert made is not None and said == []
    assert made.ranks == [0, 1, 2, 3] and made.missing == []
    assert made.median_busy_frac == 0.91
    assert (made.worst_rank, made.worst_busy_frac) == (2, 0.92)  # the others wait for it, though 3 looks busier
    moe = made.components_median[0]
    assert (moe.component, moe.time_ns, moe.exclusive_ns, moe.count) == ("moe", 620, 620, 5)
    assert sum(c.share_of_busy_frac or 0 for c in made.components_median) <= 1.01


def test_missing_and_empty_ranks_are_said_and_change_no_median() -> None:
    full = [device(0, 900), device(2, 900)]
    empty = device(3, 0, kernels=0, window_ns=0)
    made, said = summary("c16", [*full, empty], world_size=4)
    assert made is not None and made.missing == [1]
    assert made.median_busy_frac == 0.9 and made.components_median[0].time_ns == 900
    assert said[0] == "c16: no file of rank 1"
    assert said[1] == "c16: rank 3 has no kernels (rank3.json): it enters no median"


def test_one_rank_of_one_is_no_summary_and_one_of_two_is() -> None:
    assert summary("c16", [device(0, 900)]) == (None, [])
    assert summary("c16", [device(0, 900)], world_size=1) == (None, [])
    made, said = summary("c16", [device(0, 900)], world_size=2)
    assert made is not None and made.missing == [1] and said == ["c16: no file of rank 1"]


def test_the_same_rank_from_two_files_is_said() -> None:
    _, said = summary("c16", [device(0, 900), device(0, 900, file="again.json")])
    assert "rank 0 comes from more than one file" in said[0]


def test_devices_of_one_file_without_ranks() -> None:
    made, said = summary("c16", [device(None, 900, file="f"), device(None, 800, file="f", device=1)])
    assert made is not None and made.ranks == [None, None] and made.missing == [] and said == []


def test_a_table_of_sums_has_no_busy_fraction() -> None:
    made, _ = summary("c16", [device(0, 900, window_ns=None, kernel_busy_ns=None), device(1, 900, window_ns=None)])
    assert made is not None and made.median_busy_frac is None and made.worst_rank is None


def test_ranks_windows_that_differ_are_said() -> None:
    _, said = summary("c16", [device(0, 900), device(1, 900, window_ns=2000)])
    assert said == ["c16: the windows differ by x2.00 between ranks"]


def test_steps_are_joined_by_the_median_over_ranks() -> None:
    made = joined([step(1000, idle_median_ns=100), step(1200, idle_median_ns=300, count=10), step(1100)])
    assert made is not None
    assert (made.median_ns, made.count, made.idle_median_ns) == (1100, 10, 200)
    assert made.components[0].median_ns == 550 and made.components[0].launches == 43.0


def test_a_rank_without_steps_does_not_deflate_the_others() -> None:
    made = joined([step(1000), Steps(label="c16", count=0, method="none")])
    assert made is not None and made.median_ns == 1000 and made.count == 12
    none = joined([Steps(label="c16", count=0, method="none")])
    assert none is not None and none.count == 0
    assert joined([]) is None


def test_a_component_that_one_rank_lacks_counts_as_zero_there() -> None:
    sampling = StepComponent(component="sampling", median_ns=90, exclusive_median_ns=90, launches=1.0)
    first = step(1000, components=[*step(1000).components, sampling])
    made = joined([first, step(1000), step(1000)])
    assert made is not None
    assert {c.component: c.median_ns for c in made.components} == {"moe": 500, "sampling": 0}
