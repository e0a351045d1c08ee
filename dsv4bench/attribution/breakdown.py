"""A trace into one breakdown a device: sum, busy and span, components, units, and kernels row by row.

    Σ component exclusive + overlap + copy-only + idle = window        to the nanosecond, on every device

The window runs from the first start to the last end of the device's kernels, copies and memsets, or is given. Graph
launches whose kernels the file does not show stand apart as `opaque_graph_ns`; that time reads as idle above, and the
warning says how to record it. Ranks and devices are never summed here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.components import INDEX, Assignment
from dsv4bench.attribution.coverage import blocks, coverage, sm_count
from dsv4bench.attribution.intervals import Sweep, clip, covered, kept, sweep, total
from dsv4bench.attribution.launches import from_graph
from dsv4bench.attribution.prepared import Prepared, prepared
from dsv4bench.attribution.rows import UNITS, UnitOf, kernel_rows
from dsv4bench.attribution.sampled import sampled
from dsv4bench.attribution.table import table_breakdown
from dsv4bench.records.breakdown import ComponentTime, DeviceBreakdown, OverlapTime, UnitTime
from dsv4bench.records.rules import COMPONENTS, Rules
from dsv4bench.records.trace import KernelTable, KernelTrace, Kind

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]

MANY_ZERO = 0.01  # share of kernels of no duration from which a trace of whole microseconds is suspected
NODE_LEVEL = "record with `nsys profile --cuda-graph-trace=node`, or with the server's torch profiler"


def device_breakdowns(
    trace: KernelTrace | KernelTable,
    rules: Rules,
    unit_of: UnitOf,
    window: tuple[int, int] | None = None,
    known: Prepared | None = None,
) -> list[DeviceBreakdown]:
    """One breakdown a device, in the order of their numbers; of a table one, with shares of the sum only.

    `known` is this trace prepared with these rules, where the caller has it.
    """
    if isinstance(trace, KernelTable):
        return [table_breakdown(trace, rules, unit_of)]
    trace, changed, assignment = known or prepared(trace, rules)
    graph = from_graph(trace)
    devices = np.unique(np.concatenate([trace.device, trace.graph_runs.device])).tolist()
    return [_device(trace, assignment, device, graph, changed, unit_of, window) for device in devices]


def _device(
    trace: KernelTrace,
    assignment: Assignment,
    device: int,
    graph: Bools,
    changed: Bools,
    unit_of: UnitOf,
    window: tuple[int, int] | None,
) -> DeviceBreakdown:
    mine = trace.device == device
    rows, start, end = np.flatnonzero(mine), kept(trace.start_ns, mine), kept(trace.end_ns, mine)
    span = window or ((int(start.min()), int(end.max())) if len(rows) else (0, 0))
    start, end, inside, cut = clip(start, end, span)
    rows = kept(rows, inside)
    kernel = trace.kind[rows] == Kind.KERNEL
    component = assignment.component[rows]
    swept = _swept(start, end, component, ~kernel, span, len(COMPONENTS), INDEX["comm"])
    facts = trace.devices.get(device)
    streams = len(np.unique(trace.stream[rows]))
    copies = int(np.count_nonzero(~kernel))
    copy_sum = total(start[~kernel], end[~kernel])
    repairs = int(np.count_nonzero(changed[rows]))
    rows, start, end = kept(rows, kernel), kept(start, kernel), kept(end, kernel)
    component = kept(component, kernel)
    length = end - start
    kernel_sum = int(length.sum())
    busy = int(swept.kernel_busy_ns().sum())
    shown, unit = kernel_rows(trace, assignment, rows, length, facts, unit_of)
    filled, known = coverage(start, end, blocks(trace.grid[rows]), sm_count(facts))
    of_samples = sampled(trace.samples, device, span)
    zero = int(np.count_nonzero(length == 0))
    in_graph = graph[rows]
    opaque, graph_warnings = _opaque(trace, device, in_graph)
    return DeviceBreakdown(
        device=device,
        label=trace.label,
        rank=trace.rank,
        file=trace.file,
        gpu=facts.name if facts else None,
        window_ns=span[1] - span[0],
        kernel_sum_ns=kernel_sum,
        kernel_busy_ns=busy,
        any_busy_ns=busy + int(swept.copy_only_ns.sum()),
        copy_only_ns=int(swept.copy_only_ns.sum()),
        idle_ns=int(swept.idle_ns.sum()),
        overlap_ns=int(swept.overlap_ns.sum()),
        opaque_graph_ns=opaque,
        kernels=len(length),
        copies=copies,
        copy_sum_ns=copy_sum,
        streams=streams,
        zero_duration=zero,
        repaired=repairs,
        sm_coverage_frac=filled,
        grid_known_frac=known,
        graph_kernels_frac=int(length[in_graph].sum()) / kernel_sum if kernel_sum else None,
        tensor_pipe_frac=of_samples.tensor_pipe_frac,
        tensor_pipe_metric=of_samples.tensor_pipe_metric,
        sm_active_frac=of_samples.sm_active_frac,
        dram_frac=of_samples.dram_frac,
        components=_components(component, length, swept, span[1] - span[0]),
        overlaps=_overlaps(swept),
        units=_units(start, end, unit, span, busy),
        rows=shown,
        warnings=[
            *graph_warnings,
            *_time_warnings(len(length), zero, repairs, cut if window else 0),
            *of_samples.warnings,
        ],
    )


def _swept(
    start: Ints, end: Ints, label: Codes, is_copy: Bools, span: tuple[int, int], labels: int, yields: int | None
) -> Sweep:
    if span[1] <= span[0]:
        none = np.zeros(0, dtype=np.int64)
        return Sweep(np.zeros((0, labels), dtype=np.int64), none, none, none, {})
    return sweep(start, end, label, is_copy, np.array(span, dtype=np.int64), labels, yields)


def _components(component: Codes, length: Ints, swept: Sweep, window_ns: int) -> list[ComponentTime]:
    """Components with a kernel, the longest first, and `other` last in any case."""
    count = np.bincount(component, minlength=len(COMPONENTS))
    time = np.zeros(len(COMPONENTS), dtype=np.int64)
    np.add.at(time, component, length)
    exclusive = swept.exclusive_ns.sum(axis=0)
    whole, busy = int(length.sum()), int(swept.kernel_busy_ns().sum())
    found = [
        ComponentTime(
            component=name,
            time_ns=int(time[i]),
            exclusive_ns=int(exclusive[i]),
            count=int(count[i]),
            share_of_sum_frac=int(time[i]) / whole if whole else None,
            share_of_busy_frac=int(exclusive[i]) / busy if busy else None,
            share_of_span_frac=int(exclusive[i]) / window_ns if window_ns else None,
        )
        for i, name in enumerate(COMPONENTS)
        if count[i] or name == "other"
    ]
    return sorted(found, key=lambda c: (c.component == "other", -c.time_ns))


def _overlaps(swept: Sweep) -> list[OverlapTime]:
    found = [
        OverlapTime(components=[COMPONENTS[i] for i in ids], time_ns=ns) for ids, ns in swept.overlaps_ns.items()
    ]
    return sorted(found, key=lambda o: -o.time_ns)


def _units(start: Ints, end: Ints, unit: Ints, span: tuple[int, int], busy: int) -> list[UnitTime]:
    """Sums of the units; their shares are of the busy time, and time that two units share is in neither."""
    length = end - start
    sums = [int(length[unit == i].sum()) for i in range(len(UNITS))]
    exclusive = sums
    if sum(sums) != busy:
        none = np.zeros(len(start), dtype=np.bool_)
        exclusive = _swept(start, end, unit, none, span, len(UNITS), None).exclusive_ns.sum(axis=0).tolist()
    return [
        UnitTime(runs_on=name, time_ns=sums[i], share_of_busy_frac=exclusive[i] / busy if busy else None)
        for i, name in enumerate(UNITS)
        if sums[i] or name == "unknown"
    ]


def _opaque(trace: KernelTrace, device: int, in_graph: Bools) -> tuple[int, list[str]]:
    """Time of the graph launches whose kernels the file lacks, and what to say about them."""
    runs = trace.graph_runs
    mine = runs.device == device
    timed = mine & (runs.end_ns > runs.start_ns)
    opaque = covered(runs.start_ns[timed], runs.end_ns[timed])
    warnings = []
    if timed.any():
        warnings.append(
            f"{np.count_nonzero(timed)} graph launches of {opaque / 1e6:.3f} ms show none of their kernels; that "
            f"time stands apart and reads as idle here: {NODE_LEVEL}"
        )
    if untimed := int(np.count_nonzero(mine & ~timed)):
        warnings.append(f"{untimed} graph launches have no times: {NODE_LEVEL}")
    if not mine.any() and trace.launches.is_graph.any() and not in_graph.any():
        warnings.append(
            "the host launched CUDA graphs, but none of their kernels is in the file: the idle time is not to be "
            f"believed; {NODE_LEVEL}"
        )
    return opaque, warnings


def _time_warnings(kernels: int, zero: int, repairs: int, cut: int) -> list[str]:
    warnings = []
    if zero > MANY_ZERO * kernels:
        warnings.append(
            f"{zero} of {kernels} kernels have no duration: the file counts whole microseconds, and short kernels "
            "are undercounted"
        )
    if repairs:
        warnings.append(f"{repairs} impossible durations were cut at the next start on their stream")
    if cut:
        warnings.append(f"{cut} kernels and copies reach out of the window, or lie outside it, and were cut")
    return warnings
