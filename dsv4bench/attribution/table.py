"""A table of sums (`nsys stats`, torch key averages) into a breakdown that claims no more than it can.

It has no timeline, hence no busy time, idle, overlap, steps or neighbours: every share is of the kernel sum, and the
elementwise tail stays where its names put it. Rows that name a copy are no kernels.
"""

from __future__ import annotations

from dsv4bench.attribution.components import classify_all, reason_of
from dsv4bench.attribution.rows import UNITS, UnitOf, merged, table_group
from dsv4bench.records.breakdown import ComponentTime, DeviceBreakdown, KernelRow, UnitTime
from dsv4bench.records.rules import COMPONENTS, Rules
from dsv4bench.records.trace import KernelTable


def table_breakdown(table: KernelTable, rules: Rules, unit_of: UnitOf) -> DeviceBreakdown:
    """Sums, and shares of the sum; everything else is None. Its device is 0, which a table does not tell."""
    found = classify_all([(row.name,) for row in table.rows], rules)
    groups = [
        table_group(row.name, rule.component if rule else "other", reason_of(rule), row.count, row.time_ns, unit_of)
        for row, rule in zip(table.rows, found, strict=True)
    ]
    copies = [g for g in groups if _is_copy(g.name)]
    kernels = [g for g in groups if not _is_copy(g.name)]
    whole = sum(g.time_ns for g in kernels)
    rows = merged(kernels, whole)
    return DeviceBreakdown(
        device=0,
        label=table.label,
        rank=None,
        file=table.file,
        window_ns=None,
        kernel_sum_ns=whole,
        kernel_busy_ns=None,
        any_busy_ns=None,
        copy_only_ns=None,
        idle_ns=None,
        overlap_ns=None,
        opaque_graph_ns=0,
        kernels=sum(g.count for g in kernels),
        copies=sum(g.count for g in copies),
        copy_sum_ns=sum(g.time_ns for g in copies),
        components=_table_components(rows, whole),
        units=[
            UnitTime(runs_on=unit, time_ns=ns)
            for unit in UNITS
            if (ns := sum(row.time_ns for row in rows if row.runs_on == unit)) or unit == "unknown"
        ],
        rows=rows,
        warnings=[
            "a table of sums, perhaps over several GPUs: every share is of the kernel sum; idle time, overlap and "
            "steps need a timeline"
        ],
    )


def _is_copy(name: str) -> bool:
    return name.lower().startswith(("memcpy ", "memset ", "[cuda mem"))


def _table_components(rows: list[KernelRow], whole: int) -> list[ComponentTime]:
    found = []
    for name in COMPONENTS:
        mine = [row for row in rows if row.component == name]
        if mine or name == "other":
            time_ns = sum(row.time_ns for row in mine)
            share = time_ns / whole if whole else None
            count = sum(row.count for row in mine)
            found.append(ComponentTime(component=name, time_ns=time_ns, count=count, share_of_sum_frac=share))
    return sorted(found, key=lambda c: (c.component == "other", -c.time_ns))
