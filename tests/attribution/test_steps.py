"""Decode steps: found by each method, prefill apart, partial steps dropped, refused when too few."""

from __future__ import annotations

import numpy as np
import pytest
from trace_maker import ATTENTION, MOE, MULTIPLY, NORM, SAMPLE, Maker, decode

from dsv4bench.attribution.marks import read_annotation
from dsv4bench.attribution.steps import steps_of
from dsv4bench.records.breakdown import Steps
from dsv4bench.records.trace import Kind
from dsv4bench.scenario.rules import load_rules

RULES = load_rules()
STEP = 3 * 3 * 10 + 10 + 50  # three layers of three kernels, sampling, idle


def found(maker: Maker) -> Steps:
    return steps_of(maker.trace(), RULES)


def shape(steps: Steps) -> dict[str, tuple[int, int | None]]:
    return {c.component: (c.median_ns, c.exclusive_median_ns) for c in steps.components}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step[DECODE bs=32]", ("sglang", "decode", 32)),
        ("step[EXTEND bs=2 toks=512]", ("sglang", "prefill", 2)),
        ("step[MIXED bs=9]", ("sglang", "mixed", 9)),
        ("step[TARGET_VERIFY bs=16]", ("sglang", "decode", 16)),
        ("step[DRAFT_EXTEND bs=16]", None),
        ("step[IDLE]", ("sglang", "other", 0)),
        ("execute_context_0(0)_generation_16(16)", ("vllm", "decode", 16)),
        ("execute_context_3(12)_generation_1(1)", ("vllm", "mixed", 4)),
        ("execute_context_1(888_788544)_generation_0(0)", ("vllm", "prefill", 1)),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", ("vllm", "decode", 32)),
        ("ProfilerStep#3", None),
        ("moe", None),
    ],
)
def test_annotations_of_the_servers(name: str, expected: object) -> None:
    assert read_annotation(name) == expected


@pytest.mark.parametrize("annotation", ["step[DECODE bs=4]", "execute_context_0(0)_generation_4(4)"])
@pytest.mark.parametrize("late", [0, 77, 100_000])
def test_annotated_steps_follow_their_launches_however_late_the_device_is(annotation: str, late: int) -> None:
    maker = Maker()
    decode(maker, 14, annotation=annotation, late=late)
    steps = found(maker)
    assert (steps.method, steps.count, steps.batch) == ("annotation", 12, 4)  # without the first and the last
    assert (steps.median_ns, steps.busy_median_ns, steps.idle_median_ns) == (STEP, 100, 50)
    assert steps.iqr_ns == (STEP, STEP)
    assert shape(steps) == {
        "moe": (30, 30),
        "attention": (30, 30),
        "glue": (30, 30),
        "sampling": (10, 10),  # launched after the range, and part of the step all the same
        "other": (0, 0),
    }
    assert steps.launches == 10 and steps.graph_launches == 0 and steps.layers == 3
    assert next(c for c in steps.components if c.component == "moe").share_of_step_frac == pytest.approx(30 / STEP)
    assert steps.warnings == []


def test_each_step_adds_up_with_overlap_and_copies() -> None:
    maker = Maker()
    starts = decode(maker, 14)
    for at in starts:
        maker.kernel(NORM, at + 10, at + 14, stream=8)  # beside attention
        maker.kernel("ncclDevKernel_AllReduce_Sum", at + 20, at + 25, stream=8)  # behind moe
        maker.copy(at + 110, at + 130)
    steps = found(maker)
    assert steps.overlap_median_ns == 4 and steps.copy_only_median_ns == 20 and steps.idle_median_ns == 30
    assert (
        shape(steps)["comm"] == (5, 0) and shape(steps)["attention"] == (30, 26) and shape(steps)["moe"] == (30, 30)
    )
    exclusive = sum(c.exclusive_median_ns or 0 for c in steps.components)
    assert exclusive + 4 + 20 + 30 == steps.median_ns


def test_prefill_and_mixed_steps_stand_apart() -> None:
    maker = Maker()
    decode(maker, 8)
    decode(maker, 1, begin=100_000, tick=900, annotation="step[EXTEND bs=1 toks=64]", first_correlation=1000)
    decode(maker, 1, begin=200_000, tick=900, annotation="step[MIXED bs=5]", first_correlation=1100)
    decode(maker, 8, begin=300_000, first_correlation=1200)
    steps = found(maker)
    assert (steps.count, steps.prefill_steps, steps.mixed_steps) == (14, 1, 1)
    assert steps.median_ns == STEP


@pytest.mark.parametrize("annotation", ["step[DECODE bs=4]", "execute_context_2(99)_generation_0(0)"])
def test_a_lone_annotated_step_is_not_cut_into_its_layers(annotation: str) -> None:
    maker = Maker()
    decode(maker, 1, layers=36, annotation=annotation)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("annotation", 0, None)
    assert steps.prefill_steps == ("context_2" in annotation)
    assert "partial" in steps.warnings[0]


def test_the_layers_of_one_unannotated_pass_are_no_steps() -> None:
    maker = Maker()
    decode(maker, 1, layers=36, annotation=None)
    assert found(maker).method == "none"


def test_steps_of_another_batch_stand_apart_when_enough_are_left() -> None:
    maker = Maker()
    decode(maker, 5, annotation="step[DECODE bs=1]", tick=5)
    decode(maker, 14, begin=50_000, first_correlation=1000, annotation="step[DECODE bs=16]")
    steps = found(maker)
    assert (steps.count, steps.batch, steps.median_ns) == (13, 16, STEP)
    assert "another batch" in steps.warnings[0]


@pytest.mark.parametrize(("recorded", "shown"), [(4, None), (5, STEP), (11, STEP)])
def test_few_steps_are_said_and_too_few_refused(recorded: int, shown: int | None) -> None:
    maker = Maker()
    decode(maker, recorded)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("annotation", recorded - 2, shown)
    assert ("fewer than ten" if shown else "at least") in steps.warnings[0]
    assert bool(steps.components) == (shown is not None)


def test_correlation_ids_of_two_processes_do_not_mix() -> None:
    """Two ranks in one file, with the same ids: a join on the id alone doubles the rows."""
    maker = Maker()
    decode(maker, 14, pid=1, device=0)
    decode(maker, 14, pid=2, device=1, begin=1_000_007, tick=20)
    steps = found(maker)
    assert (steps.count, steps.method) == (12, "annotation")
    slow = 3 * 3 * 20 + 20 + 50
    assert steps.median_ns == (STEP + slow) // 2  # the median over the two devices
    assert steps.busy_median_ns == 150


def test_without_launches_containment_stands_in_and_is_said() -> None:
    maker = Maker()
    decode(maker, 14)
    maker.launches.clear()
    maker.spans[:] = [(s[0], s[0] + 95, *s[2:]) for s in maker.spans]
    steps = found(maker)
    assert (steps.method, steps.median_ns) == ("annotation", STEP)
    assert "containment" in steps.warnings[0]


def test_ranges_of_the_device_are_used_when_there_is_no_other() -> None:
    maker = Maker()
    for at in decode(maker, 14, annotation=None, sample=False):
        maker.span("step[DECODE bs=4]", at, at + 90, on_device=True, pid=0)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("annotation", 12, STEP)


def test_a_thread_that_only_annotates() -> None:
    maker = Maker()
    decode(maker, 14)
    maker.spans[:] = [(*s[:4], 99, s[5]) for s in maker.spans]
    steps = found(maker)
    assert (steps.method, steps.count, steps.warnings) == ("annotation", 12, [])


def test_a_deferred_burst_falls_back_and_says_so() -> None:
    """Annotations that bracket none of the decode work: one small kernel each, the graphs elsewhere."""
    maker = Maker()
    decode(maker, 14, annotation=None, graph=True)
    for i in range(14):
        maker.launch(9000 + i, 500 + i * 10)
        maker.span("step[DECODE bs=4]", 500 + i * 10, 505 + i * 10)
        maker.kernel(NORM, 600 + i, 601 + i, correlation=9000 + i, stream=3)
    steps = found(maker)
    assert steps.method == "graph launch"
    assert "do not bracket" in steps.warnings[0]


def test_graph_launches_without_annotations() -> None:
    maker = Maker()
    decode(maker, 14, annotation=None, graph=True)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("graph launch", 12, STEP)
    assert steps.graph_launches == 1 and shape(steps)["moe"] == (30, 30)


def piecewise(maker: Maker, steps: int, eager: str) -> None:
    """Three graphs a step, told apart by their kernels, with an eager kernel between them."""
    at, correlation = 0, 1
    for _ in range(steps):
        for names in ([NORM], [MOE, NORM], [MOE, SAMPLE]):
            maker.launch(correlation, at, graph=True)
            for name in names:
                maker.kernel(name, at, at + 10, correlation=correlation, node=1)
                at += 10
            maker.launch(correlation + 1, at)
            maker.kernel(eager, at, at + 10, correlation=correlation + 1)
            at, correlation = at + 10, correlation + 2
        at += 40


def test_graphs_that_come_in_turn_are_one_step() -> None:
    maker = Maker()
    piecewise(maker, 14, ATTENTION)
    trace = maker.trace()
    trace.graph_id[:] = 0  # as older profilers write it
    steps = steps_of(trace, RULES)
    assert (steps.method, steps.count, steps.median_ns) == ("graph launch", 12, 3 * 10 + 50 + 40)
    assert steps.graph_launches == 3


def test_opaque_graph_launches_are_timed_and_not_broken_down() -> None:
    maker = Maker()
    for i in range(14):
        maker.run(i * 100, i * 100 + 60)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("graph launch", 12, 100)
    assert steps.components == [] and steps.busy_median_ns is None and "broken down" in steps.warnings[0]


def test_nvtx_ranges_that_launch_the_work_are_steps() -> None:
    maker = Maker()
    decode(maker, 14, annotation="iteration")
    maker.spans[:] = [(s[0], s[1] + 10, f"{s[2]} {i}", *s[3:]) for i, s in enumerate(maker.spans)]
    for s in list(maker.spans):
        maker.span("half", s[0], s[0] + 3)  # rarer work, same number
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("nvtx", 12, STEP)


def test_an_anchor_of_sampling() -> None:
    maker = Maker()
    decode(maker, 14, annotation=None)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("anchor kernel", 12, STEP)
    assert shape(steps)["moe"] == (30, 30)


def test_an_anchor_that_is_no_sampling_kernel() -> None:
    maker = Maker()
    for at in decode(maker, 14, annotation=None, sample=False):
        maker.kernel("embedding_kernel", at - 10, at)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("anchor kernel", 12, STEP)


def test_gaps_when_no_kernel_comes_in_turn() -> None:
    maker = Maker()
    rng = np.random.default_rng(3)
    for i in range(14):
        for k in range(20):
            maker.kernel(f"k{rng.integers(40)}", i * 900 + k * 11, i * 900 + k * 11 + 10)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("gap", 11, 900)  # no gap tells where the first begins


def test_a_trace_without_rhythm_has_no_steps() -> None:
    maker = Maker()
    rng = np.random.default_rng(0)
    at = 0
    for _ in range(300):
        maker.kernel(f"k{rng.integers(40)}", at, at + int(rng.integers(1, 30)))
        at += int(rng.integers(30, 60))
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("none", 0, None)
    assert "no decode steps" in steps.warnings[-1]
    assert found(Maker()).count == 0


def test_unlike_steps_stand_apart_where_nobody_told_the_phase() -> None:
    maker = Maker()
    decode(maker, 8, annotation=None, graph=True)
    for i in range(40):  # an eager prefill between two replays
        maker.kernel(MULTIPLY, 5000 + i * 10, 5000 + i * 10 + 9, correlation=0)
    decode(maker, 8, annotation=None, graph=True, begin=10_000, first_correlation=500)
    steps = found(maker)
    assert (steps.method, steps.count, steps.median_ns) == ("graph launch", 13, STEP)
    assert "unlike" in steps.warnings[0]


def test_only_kernels_begin_a_step() -> None:
    maker = Maker()
    decode(maker, 14)
    trace = maker.trace()
    assert np.all(trace.kind == Kind.KERNEL)
    assert steps_of(trace, RULES).count == 12
