"""One row a kernel: launches of one name, component and unit are one row, its grid given where all share it.

The unit is asked for per (name, grid, block), since a kernel that uses tensor cores at one shape need not at another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.components import Assignment
from dsv4bench.attribution.coverage import blocks_per_sm, sm_count, waves
from dsv4bench.attribution.units import UnitVerdict
from dsv4bench.records.breakdown import KernelRow, RunsOn
from dsv4bench.records.rules import COMPONENTS
from dsv4bench.records.trace import DeviceFacts, KernelTrace

Ints = npt.NDArray[np.int64]
Dims = tuple[int, int, int]
UnitOf = Callable[[str, Dims | None, Dims | None, tuple[int, int] | None], UnitVerdict]

UNITS: tuple[RunsOn, ...] = ("tensor", "cuda", "unknown")


@dataclass(frozen=True, slots=True)
class _Group:
    """Launches of one name, component, grid and block."""

    name: str
    component: str
    rule: str | None
    grid: Dims | None
    block: Dims | None
    count: int
    time_ns: int
    waves: float | None
    verdict: UnitVerdict


def kernel_rows(
    trace: KernelTrace, assignment: Assignment, rows: Ints, length: Ints, facts: DeviceFacts | None, unit_of: UnitOf
) -> tuple[list[KernelRow], Ints]:
    """The rows of one device, the longest first, and for each of `rows` its unit (index in UNITS).

    `rows` are kernels of the trace, `length` their durations within the window.
    """
    if len(rows) == 0:
        return [], np.zeros(0, dtype=np.int64)
    first, which = _grouped(trace, assignment, rows)
    count = np.bincount(which, minlength=len(first))
    time = np.zeros(len(first), dtype=np.int64)
    np.add.at(time, which, length)
    groups = [
        _group(trace, assignment, row, n, ns, facts, unit_of)
        for row, n, ns in zip(rows[first].tolist(), count.tolist(), time.tolist(), strict=True)
    ]
    unit = np.array([UNITS.index(g.verdict.runs_on) for g in groups], dtype=np.int64)
    return merged(groups, int(length.sum())), unit[which]


def _grouped(trace: KernelTrace, assignment: Assignment, rows: Ints) -> tuple[Ints, Ints]:
    """The first of each group, and each row's group: by name, component, reason, grid and block."""
    key = trace.name[rows].astype(np.int64)
    key *= len(COMPONENTS)
    key += assignment.component[rows]
    key *= len(assignment.reasons)
    key += assignment.reason[rows]
    distinct, which = _numbered(key)
    for dims in (trace.grid, trace.block):
        codes, code = _numbered(_packed(dims, rows))
        distinct, which = _numbered(which * len(codes) + code)
    first = np.zeros(len(distinct), dtype=np.int64)
    first[which[::-1]] = np.arange(len(rows) - 1, -1, -1)  # the last one written is the first row
    return first, which


def _packed(dims: npt.NDArray[np.int32], rows: Ints) -> Ints:
    """A launch's shape as one number: y and z are below 65536 on every device."""
    packed: Ints = dims[rows, 0].astype(np.int64)
    packed <<= 32
    packed ^= dims[rows, 1].astype(np.int64) << 16
    packed ^= dims[rows, 2]
    return packed


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values in order, and each one's place among them: far faster than np.unique's where few differ."""
    distinct = np.unique(values)
    return distinct, np.searchsorted(distinct, values)


def _group(
    trace: KernelTrace,
    assignment: Assignment,
    row: int,
    count: int,
    time_ns: int,
    facts: DeviceFacts | None,
    unit_of: UnitOf,
) -> _Group:
    raw, demangled, short = trace.kernel_names[trace.name[row]]
    grid, block = _dims(trace.grid[row]), _dims(trace.block[row])
    compute = facts.compute if facts else None
    resident = None
    if block is not None:
        resident = blocks_per_sm(block, int(trace.registers[row]), int(trace.shared_bytes[row]), compute)
    name = demangled or raw or short
    return _Group(
        name=name,
        component=COMPONENTS[assignment.component[row]],
        rule=assignment.reasons[assignment.reason[row]],
        grid=grid,
        block=block,
        count=count,
        time_ns=time_ns,
        waves=waves(grid[0] * grid[1] * grid[2], resident, sm_count(facts)) if grid else None,
        verdict=unit_of(name, grid, block, compute),
    )


def _dims(values: npt.NDArray[np.int32]) -> Dims | None:
    x, y, z = (int(v) for v in values)
    return (x, y, z) if x > 0 and y > 0 and z > 0 else None


def table_group(name: str, component: str, rule: str | None, count: int, time_ns: int, unit_of: UnitOf) -> _Group:
    """A line of a table of sums, which has no grid."""
    verdict = unit_of(name, None, None, None)
    return _Group(name, component, rule, None, None, count, time_ns, None, verdict)


def merged(groups: Sequence[_Group], sum_ns: int) -> list[KernelRow]:
    """Groups of one name, component, rule and verdict as one row; the longest row first."""
    joined: dict[tuple[str, str, str | None, str, str], list[_Group]] = {}
    for group in groups:
        verdict = group.verdict
        key = (group.name, group.component, group.rule, verdict.runs_on, verdict.evidence)
        joined.setdefault(key, []).append(group)
    rows = [_row(same, sum_ns) for same in joined.values()]
    return sorted(rows, key=lambda row: (-row.time_ns, row.name, row.component))


def _row(same: list[_Group], sum_ns: int) -> KernelRow:
    most = max(same, key=lambda g: g.time_ns)
    time_ns = sum(g.time_ns for g in same)
    alike = len(same) == 1
    return KernelRow(
        name=most.name,
        component=most.component,
        rule=most.rule,
        count=sum(g.count for g in same),
        time_ns=time_ns,
        share_of_sum_frac=time_ns / sum_ns if sum_ns else None,
        runs_on=most.verdict.runs_on,
        evidence=most.verdict.evidence,
        evidence_note=most.verdict.note,
        tensor_pipe_frac=_weighted([(g.verdict.tensor_pipe_frac, g.time_ns) for g in same]),
        tensor_pipe_metric=most.verdict.tensor_pipe_metric,
        dram_frac=_weighted([(g.verdict.dram_frac, g.time_ns) for g in same]),
        grid=most.grid if alike else None,
        block=most.block if alike else None,
        waves=most.waves if alike else None,
    )


def _weighted(values: list[tuple[float | None, int]]) -> float | None:
    told = [(value, weight) for value, weight in values if value is not None]
    whole = sum(weight for _, weight in told)
    return sum(value * weight for value, weight in told) / whole if whole else (told[0][0] if told else None)
