"""The decode steps of a trace: where they lie, how long the median one is, and what it is spent on.

Steps tile the timeline: each runs from its first kernel to the first kernel of the next, on each device, so that its
span is decode wall time. The first step and the last are partial and dropped; prefill and mixed steps stand apart.
The methods are tried in the order of METHODS, and the one that was used is named. What the steps are spent on is
summed up in `step_times`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.components import Assignment
from dsv4bench.attribution.inferred import REGULAR, anchor_kernel, gaps, graph_launches
from dsv4bench.attribution.marks import Found, Marks, annotated, nvtx
from dsv4bench.attribution.prepared import Prepared, prepared
from dsv4bench.attribution.step_times import TEN, THREE, DeviceSteps, combined, kernels_between, measured
from dsv4bench.records.breakdown import Steps
from dsv4bench.records.rules import Rules
from dsv4bench.records.trace import KernelTrace

Ints = npt.NDArray[np.int64]

ALIKE = 0.1  # of the median number of kernels: a step further off, where no file told the phase, is no decode step

METHODS: tuple[tuple[str, Callable[[KernelTrace, Assignment], Found]], ...] = (
    ("annotation", lambda trace, _: annotated(trace)),
    ("graph launch", graph_launches),
    ("nvtx", lambda trace, _: nvtx(trace)),
    ("anchor kernel", anchor_kernel),
    ("gap", gaps),
)
NONE_FOUND = (
    "no decode steps found: no step annotation, graph launch, NVTX range, anchor kernel or regular gap; profile at "
    "least ten decode steps through the server's own profiler endpoint, which writes annotations"
)


def steps_of(trace: KernelTrace, rules: Rules, known: Prepared | None = None) -> Steps:
    """The decode steps of one file. `count` is 0 and the method "none" where it has none to show.

    `known` is this trace prepared with these rules, where the caller has it.
    """
    trace, _, assignment = known or prepared(trace, rules)
    warnings: list[str] = []
    for method, find in METHODS:
        found = find(trace, assignment)
        warnings += found.warnings
        # What the file tells holds, however little it is: a lone annotated step is no reason to guess others.
        devices = [
            steps
            for device, marks in sorted(found.marks.items())
            if len((steps := _device(trace, assignment, device, marks)).span_ns) >= THREE or marks.told
        ]
        if devices:
            return combined(trace.label, method, devices, warnings)
    return Steps(label=trace.label, count=0, method="none", warnings=[*warnings, NONE_FOUND])


def _device(trace: KernelTrace, assignment: Assignment, device: int, marks: Marks) -> DeviceSteps:
    """The steps of one device between its second mark and its last."""
    edges = marks.start_ns[1:]
    if marks.opaque:
        chosen, batch, warnings = np.arange(max(len(edges) - 1, 0)), None, list[str]()
    else:
        chosen, batch, warnings = _decode(marks, kernels_between(trace, device, edges))
    return measured(
        trace,
        assignment,
        device,
        edges,
        chosen,
        batch=batch,
        prefill=marks.phase.count("prefill"),
        mixed=marks.phase.count("mixed"),
        opaque=marks.opaque,
        warnings=warnings,
    )


def _decode(marks: Marks, kernels: Ints) -> tuple[Ints, int | None, list[str]]:
    """Which whole steps are decode steps of one kind, the batch that they share, and what was set apart."""
    chosen = np.array([i for i, phase in enumerate(marks.phase[1:-1]) if phase == "decode"], dtype=np.int64)
    if len(chosen) == 0:
        return chosen, None, []
    if not marks.told:
        middle = float(np.median(kernels[chosen]))
        alike = np.abs(kernels[chosen] - middle) <= ALIKE * middle
        apart = int(np.count_nonzero(~alike))
        if apart > (1 - REGULAR) * len(chosen):
            return chosen[:0], None, []  # whatever this is, it is not one step after the other
        said = f"{apart} steps whose number of kernels is unlike the median's {middle:.0f} stand apart"
        return chosen[alike], None, [said] if apart else []
    batches = marks.batch[1:-1][chosen]
    batch, most = Counter(batches.tolist()).most_common(1)[0]
    if most == len(chosen):
        return chosen, batch or None, []
    if most >= TEN:
        said = f"{len(chosen) - most} decode steps of another batch than {batch} stand apart"
        return chosen[batches == batch], batch, [said]
    said = f"decode steps of batch {batches.min()} to {batches.max()} are taken together: no batch has {TEN} steps"
    return chosen, None, [said]
