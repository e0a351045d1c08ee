"""Whatever a file holds: an answer or a refusal, never an exception, and the steps still add up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_maker import ATTENTION, MOE, MULTIPLY, NORM, SAMPLE, Maker, unknown

from dsv4bench.attribution.breakdown import device_breakdowns
from dsv4bench.attribution.steps import steps_of
from dsv4bench.records.trace import Kind
from dsv4bench.scenario.rules import load_rules

RULES = load_rules()
MOMENT = st.one_of(st.integers(0, 300), st.integers(-(2**60), 2**60))
NAMES = ["step[DECODE bs=2]", "step[EXTEND bs=1]", "execute_context_0(0)_generation_3(3)", "iteration 4", "layer"]

kernels = st.lists(
    st.tuples(
        MOMENT,
        st.integers(-5, 60),
        st.sampled_from([MOE, ATTENTION, NORM, MULTIPLY, SAMPLE, "x"]),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, 12),
        st.sampled_from(list(Kind)),
        st.integers(0, 1),
    ),
    max_size=40,
)
spans = st.lists(
    st.tuples(MOMENT, st.integers(-3, 80), st.sampled_from(NAMES), st.integers(1, 2), st.booleans()), max_size=15
)
launches = st.lists(st.tuples(st.integers(0, 12), MOMENT, st.integers(1, 2), st.booleans()), max_size=25)
runs = st.lists(st.tuples(MOMENT, st.integers(-1, 20), st.integers(0, 2)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(kernels, spans, launches, runs)
def test_any_trace_is_answered_or_refused(
    kernels: list[tuple[int, int, str, int, int, int, Kind, int]],
    spans: list[tuple[int, int, str, int, bool]],
    launches: list[tuple[int, int, int, bool]],
    runs: list[tuple[int, int, int]],
) -> None:
    maker = Maker()
    for start, length, name, device, stream, correlation, kind, node in kernels:
        end = start + length
        maker.kernel(name, start, end, device=device, stream=stream, correlation=correlation, kind=kind, node=node)
    for start, length, name, pid, on_device in spans:
        maker.span(name, start, start + length, pid=pid, on_device=on_device)
    for correlation, at, pid, graph in launches:
        maker.launch(correlation, at, pid=pid, graph=graph)
    for start, length, device in runs:
        maker.run(start, start + length, device=device)
    trace = maker.trace()
    steps = steps_of(trace, RULES)
    assert (steps.median_ns is None) == (steps.count < 3)
    assert steps.median_ns or steps.warnings
    assert all((c.exclusive_median_ns or 0) <= (steps.median_ns or 0) for c in steps.components)
    for d in device_breakdowns(trace, RULES, unknown):
        exclusive = sum(c.exclusive_ns or 0 for c in d.components)
        assert exclusive + d.overlap_ns + d.copy_only_ns + d.idle_ns == d.window_ns  # type: ignore[operator]
