"""Kernels that only ncu saw: which unit each runs on, at each grid.

ncu serialises kernels and replays them, so its durations enter no share: times and shares stay empty here.
"""

from __future__ import annotations

from dsv4bench.attribution.components import classify_all, reason_of
from dsv4bench.attribution.units import Units
from dsv4bench.records.breakdown import DeviceBreakdown, KernelRow
from dsv4bench.records.rules import Rules
from dsv4bench.records.trace import KernelCounters


def counted_device(counters: KernelCounters, rules: Rules, units: Units) -> DeviceBreakdown:
    """One row a kernel and grid, in the order of the file."""
    rows = []
    for name, grid in dict.fromkeys((r.name, r.grid) for r in counters.rows):
        launches = [r for r in counters.rows if (r.name, r.grid) == (name, grid)]
        verdict = units.of(name, grid, None, launches[0].compute)
        (rule,) = classify_all([(name,)], rules)
        rows.append(
            KernelRow(
                name=name,
                component=rule.component if rule is not None else "other",
                rule=reason_of(rule),
                count=len(launches),
                time_ns=0,
                runs_on=verdict.runs_on,
                evidence=verdict.evidence,
                evidence_note=verdict.note,
                tensor_pipe_frac=verdict.tensor_pipe_frac,
                tensor_pipe_metric=verdict.tensor_pipe_metric,
                dram_frac=verdict.dram_frac,
                grid=grid if any(grid) else None,
            )
        )
    return DeviceBreakdown(
        device=next((r.device for r in counters.rows if r.device is not None), 0),
        label=counters.label,
        rank=None,
        file=counters.file,
        window_ns=None,
        kernel_sum_ns=0,
        kernel_busy_ns=None,
        any_busy_ns=None,
        copy_only_ns=None,
        idle_ns=None,
        overlap_ns=None,
        opaque_graph_ns=0,
        kernels=len(counters.rows),
        rows=rows,
    )
