"""What the decode steps are spent on: medians over the steps of a device, then over the devices.

Every single step keeps the invariant Σ component exclusive + overlap + copy-only + idle = its span; medians of the
parts need not add up to the median of the whole. Fewer than TEN steps are said, fewer than THREE give no figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dsv4bench.attribution.components import INDEX, Assignment
from dsv4bench.attribution.intervals import Sweep, sweep
from dsv4bench.attribution.launches import launch_of
from dsv4bench.attribution.layers import layer_count, period
from dsv4bench.records.breakdown import StepComponent, Steps
from dsv4bench.records.rules import COMPONENTS
from dsv4bench.records.trace import KernelTrace, Kind

Ints = npt.NDArray[np.int64]

TEN = 10
THREE = 3
LOOKED_AT = 64  # steps from which layers are read


@dataclass(frozen=True, slots=True)
class DeviceSteps:
    """One device: arrays of one row a decode step; `prefill` and `mixed` count partial steps too."""

    span_ns: Ints
    exclusive_ns: Ints  # steps x components
    sum_ns: Ints  # steps x components
    kernels: Ints  # steps x components
    overlap_ns: Ints
    copy_only_ns: Ints
    idle_ns: Ints
    graphs: Ints | None
    layers: int | None
    batch: int | None
    prefill: int
    mixed: int
    opaque: bool
    warnings: list[str]


def kernels_between(trace: KernelTrace, device: int, edges: Ints) -> Ints:
    """Kernels that start between one edge and the next."""
    mine = (trace.device == device) & (trace.kind == Kind.KERNEL)
    return np.diff(np.searchsorted(np.sort(trace.start_ns[mine]), edges)).astype(np.int64)


def measured(
    trace: KernelTrace,
    assignment: Assignment,
    device: int,
    edges: Ints,
    chosen: Ints,
    *,
    batch: int | None,
    prefill: int,
    mixed: int,
    opaque: bool,
    warnings: list[str],
) -> DeviceSteps:
    """The `chosen` of the steps between the edges, all swept in one go."""
    rows = np.flatnonzero(trace.device == device)
    bins, width = max(len(edges) - 1, 0), len(COMPONENTS)
    kernel = trace.kind[rows] == Kind.KERNEL
    start, end, component = trace.start_ns[rows], trace.end_ns[rows], assignment.component[rows]
    swept = sweep(start, end, component, ~kernel, edges, width, INDEX["comm"]) if bins else _nothing(width)
    bin_of = np.searchsorted(edges, start, side="right") - 1
    inside = kernel & (bin_of >= 0) & (bin_of < bins)
    rows, bin_of = rows[inside], bin_of[inside]
    cell = bin_of * width + component[inside]
    times = np.zeros(bins * width, dtype=np.int64)
    np.add.at(times, cell, (end - start)[inside])
    sums, counts = times.reshape(bins, width), np.bincount(cell, minlength=bins * width).reshape(bins, width)
    graphs = _graphs(trace, device, edges, opaque) if bins else None
    return DeviceSteps(
        span_ns=np.diff(edges)[chosen] if bins else edges[:0],
        exclusive_ns=swept.exclusive_ns[chosen],
        sum_ns=sums[chosen],
        kernels=counts[chosen],
        overlap_ns=swept.overlap_ns[chosen],
        copy_only_ns=swept.copy_only_ns[chosen],
        idle_ns=swept.idle_ns[chosen],
        graphs=None if graphs is None else graphs[chosen],
        layers=None if opaque else _layers(trace, assignment, rows, bin_of, chosen),
        batch=batch,
        prefill=prefill,
        mixed=mixed,
        opaque=opaque,
        warnings=warnings,
    )


def _nothing(width: int) -> Sweep:
    none = np.zeros(0, dtype=np.int64)
    return Sweep(np.zeros((0, width), dtype=np.int64), none, none, none, {})


def _graphs(trace: KernelTrace, device: int, edges: Ints, opaque: bool) -> Ints | None:
    """Graph launches of each step, by their first kernel; None where the file has no launches."""
    if opaque:
        at = trace.graph_runs.start_ns[trace.graph_runs.device == device]
    elif len(trace.launches.start_ns) == 0:
        return None
    elif not trace.launches.is_graph.any():
        at = trace.start_ns[:0]
    else:
        launch = launch_of(trace)
        by_graph = (launch >= 0) & trace.launches.is_graph[np.maximum(launch, 0)]
        rows = np.flatnonzero(by_graph & (trace.device == device) & (trace.kind == Kind.KERNEL))
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
        at = trace.start_ns[rows[np.unique(launch[rows], return_index=True)[1]]]
    return np.diff(np.searchsorted(np.sort(at), edges)).astype(np.int64)


def _layers(trace: KernelTrace, assignment: Assignment, rows: Ints, bin_of: Ints, chosen: Ints) -> int | None:
    """Layers of the model, where the kernels of a step repeat themselves."""
    looked = chosen[len(chosen) // 2 :][:LOOKED_AT]
    kept = np.isin(bin_of, looked)
    rows, bin_of = rows[kept], bin_of[kept]
    if len(rows) == 0:
        return None
    one = rows[bin_of == looked[0]]
    one = one[np.argsort(trace.start_ns[one], kind="stable")]
    if period(trace.name[one].astype(np.int64)) is None:
        return None
    names, which, count = np.unique(trace.name[rows], return_inverse=True, return_counts=True)
    component = np.zeros(len(names), dtype=np.int64)
    component[which] = assignment.component[rows]
    return layer_count([(COMPONENTS[c], n / len(looked)) for c, n in zip(component, count, strict=True)])


def combined(label: str | None, method: str, devices: list[DeviceSteps], warnings: list[str]) -> Steps:
    """One `Steps` of all devices; without figures where a device has fewer than three decode steps."""
    count = min(len(d.span_ns) for d in devices)
    batches = {d.batch for d in devices}
    warnings = [*warnings, *dict.fromkeys(w for d in devices for w in d.warnings)]
    steps = Steps(
        label=label,
        count=count,
        method=method,
        batch=batches.pop() if len(batches) == 1 else None,
        prefill_steps=max(d.prefill for d in devices),
        mixed_steps=max(d.mixed for d in devices),
    )
    if count < THREE:
        said = (
            f"{count} whole decode steps (a file's first and last step are partial): a median needs three at "
            "least, and ten to stand on; record longer"
        )
        return replace(steps, warnings=[*warnings, said])
    if count < TEN:
        warnings.append(f"the median of {count} decode steps, fewer than ten, is weak: record longer")
    quarters = [np.percentile(d.span_ns, [25, 75]) for d in devices]
    steps = replace(
        steps,
        median_ns=_median(devices, lambda d: d.span_ns),
        iqr_ns=(round(float(np.median([q[0] for q in quarters]))), round(float(np.median([q[1] for q in quarters])))),
        graph_launches=_graph_launches(devices),
        warnings=warnings,
    )
    if any(d.opaque for d in devices):
        warnings.append("graph launches without their kernels: these steps are timed, but cannot be broken down")
        return steps
    return replace(
        steps,
        busy_median_ns=_median(devices, lambda d: d.exclusive_ns.sum(axis=1) + d.overlap_ns),
        idle_median_ns=_median(devices, lambda d: d.idle_ns),
        overlap_median_ns=_median(devices, lambda d: d.overlap_ns),
        copy_only_median_ns=_median(devices, lambda d: d.copy_only_ns),
        launches=_number(devices, lambda d: d.kernels.sum(axis=1)),
        layers=devices[0].layers,
        components=[_component(devices, i, steps.median_ns) for i in _present(devices)],
    )


def _present(devices: list[DeviceSteps]) -> list[int]:
    """Components with a kernel in any step; `other` always, so that the residual is seen."""
    kernels = sum(d.kernels.sum(axis=0) for d in devices)
    return [i for i, name in enumerate(COMPONENTS) if name == "other" or kernels[i] > 0]


def _component(devices: list[DeviceSteps], i: int, span_ns: int | None) -> StepComponent:
    exclusive = _median(devices, lambda d: d.exclusive_ns[:, i])
    return StepComponent(
        component=COMPONENTS[i],
        median_ns=_median(devices, lambda d: d.sum_ns[:, i]),
        exclusive_median_ns=exclusive,
        launches=_number(devices, lambda d: d.kernels[:, i]),
        share_of_step_frac=exclusive / span_ns if span_ns else None,
    )


def _number(devices: list[DeviceSteps], of: Callable[[DeviceSteps], Ints]) -> float:
    return float(np.median([np.median(of(d)) for d in devices]))


def _median(devices: list[DeviceSteps], of: Callable[[DeviceSteps], Ints]) -> int:
    return round(_number(devices, of))


def _graph_launches(devices: list[DeviceSteps]) -> float | None:
    told = [float(np.median(d.graphs)) for d in devices if d.graphs is not None]
    return float(np.median(told)) if told else None
