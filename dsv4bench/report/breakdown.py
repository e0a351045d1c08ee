"""A breakdown as terminal text: devices, components, kernels, units, steps, labels side by side, then the plan.

Every share stands under the name of its denominator: sum (all kernel durations added), busy (their union), window
(first start to last end in the file) or step (a decode step's span). Where a label has several ranks, components are
the median over them and kernels those of one rank, which is named. Times are milliseconds only here. Words, not
colours; kernel names are shortened in the middle, so that the head and the template's end stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.breakdown import (
    BreakdownDocument,
    ComponentTime,
    DeviceBreakdown,
    KernelRow,
    RankSummary,
    UnitTime,
)
from dsv4bench.records.shares import SharesDocument
from dsv4bench.report.breakdown_steps import OVERLAP, steps_lines, steps_table
from dsv4bench.report.breakdown_values import DASH, frac, ms, number, percent, shortened, text_table
from dsv4bench.report.captures import capture_lines, captures_table, live_lines
from dsv4bench.report.plan import plan_lines, plan_table, share_tables, shift_tables

RUNS_ON = {"tensor": "tensor cores", "cuda": "CUDA cores", "unknown": "unknown"}


def print_breakdown(
    document: BreakdownDocument, console: Console, *, top: int = 20, shares: Sequence[SharesDocument] = ()
) -> None:
    """All of it, in the order in which a reader asks."""
    if document.captures:
        _print(console, captures_table(document.captures))
    _lines(console, [*capture_lines(document.captures), *live_lines(document.live)])
    if document.devices:
        _print(console, devices_table(document.devices))
    for label in dict.fromkeys(d.label for d in document.devices):
        _print_label(console, document, label, top)
    for found in shares:
        for table in share_tables(found):
            _print(console, table)
    for table in shift_tables(document.shifts):
        _print(console, table)
    for plan in document.plans:
        if plan.steps:
            _print(console, plan_table(plan))
        _lines(console, plan_lines(plan, document.captures))
    _lines(console, [f"warning: {w}" for w in document.warnings])


def devices_table(devices: Sequence[DeviceBreakdown]) -> Table:
    """One row a device of a file: the times that every share is of."""
    table = text_table(
        "Devices, whole files (ms)",
        ["label", "rank", "device", "GPU", "file"],
        [
            "\nwindow",
            "\nsum",
            "\nbusy",
            "any\nbusy",
            "copies\nalone",
            "\nidle",
            "over-\nlap",
            "opaque\ngraphs",
            "\nkernels",
            "\ncopies",
            "\nstreams",
            "SM\ncoverage",
            "grid\nknown",
        ],
        [],
    )
    for d in devices:
        table.add_row(
            Text(d.label or DASH),
            Text(number(d.rank)),
            Text(str(d.device)),
            Text(d.gpu or DASH),
            Text(shortened(d.file.rpartition("/")[2], 32)),
            *(Text(ms(v)) for v in (d.window_ns, d.kernel_sum_ns, d.kernel_busy_ns, d.any_busy_ns)),
            *(Text(ms(v)) for v in (d.copy_only_ns, d.idle_ns, d.overlap_ns, d.opaque_graph_ns or None)),
            Text(str(d.kernels)),
            Text(str(d.copies)),
            Text(str(d.streams)),
            Text(percent(d.sm_coverage_frac)),
            Text(percent(d.grid_known_frac)),
        )
    return table


def component_table(title: str, device: DeviceBreakdown | None, components: Sequence[ComponentTime]) -> Table:
    """Components with all three denominators; below them what is left of the window, so that it adds up."""
    table = text_table(
        title, ["component"], ["time ms", "of sum", "alone ms", "of busy", "of window", "kernels"], [], "component"
    )
    for c in components:
        table.add_row(
            Text(c.component),
            Text(ms(c.time_ns)),
            Text(frac(c.share_of_sum_frac)),
            Text(ms(c.exclusive_ns)),
            Text(frac(c.share_of_busy_frac)),
            Text(frac(c.share_of_span_frac)),
            Text(str(c.count)),
        )
    if device is not None and device.window_ns:
        rest = (
            (OVERLAP, device.overlap_ns),
            ("copies alone", device.copy_only_ns),
            ("idle", device.idle_ns),
            ("window", device.window_ns),
        )
        for name, ns in rest:
            share = None if ns is None else ns / device.window_ns
            in_busy = name == OVERLAP and ns is not None and device.kernel_busy_ns
            busy = Text(frac(ns / device.kernel_busy_ns)) if in_busy and ns and device.kernel_busy_ns else ""
            table.add_row(Text(name), "", "", Text(ms(ns)), busy, Text(frac(share)), "")
    return table


def kernel_table(device: DeviceBreakdown, top: int) -> Table:
    """The kernels with the most time, what they run on, and how that is known; empty columns are left out."""
    rows = sorted(device.rows, key=lambda r: -r.time_ns)
    left = rows[top:]
    timed = device.kernel_sum_ns > 0
    optional = [column for column in _OPTIONAL if any(column[1](r) != DASH for r in rows[:top])]
    table = text_table(
        f"Kernels of {_of(device)}" + (f", the first {top} of {len(rows)}" if left else ""),
        ["kernel", "component"],
        ["count", *(["time ms", "of sum"] if timed else [])],
        ["runs on (evidence)", *(head for head, _ in optional)],
    )
    for r in rows[:top]:
        time = [Text(ms(r.time_ns)), Text(frac(r.share_of_sum_frac))] if timed else []
        table.add_row(
            Text(shortened(r.name, 64)),
            Text(r.component),
            Text(str(r.count)),
            *time,
            Text(f"{RUNS_ON[r.runs_on]} ({r.evidence})"),
            *(Text(show(r)) for _, show in optional),
        )
    if left:
        total = sum(r.time_ns for r in left)
        time = [Text(ms(total)), Text(frac(total / device.kernel_sum_ns))] if timed else []
        table.add_row(Text(f"{len(left)} more"), "", Text(str(sum(r.count for r in left))), *time)
    return table


def _pipe(r: KernelRow) -> str:
    """With its denominator; the metric's full name stands under the table."""
    if r.tensor_pipe_frac is None:
        return DASH
    of = next((word for word in ("elapsed", "active") if (r.tensor_pipe_metric or "").endswith(word)), "")
    return f"{frac(r.tensor_pipe_frac)}{f' of {of}' if of else ''}"


_OPTIONAL: tuple[tuple[str, Callable[[KernelRow], str]], ...] = (
    ("tensor pipe", _pipe),
    ("DRAM", lambda r: frac(r.dram_frac)),
    ("grid", lambda r: DASH if r.grid is None else "x".join(map(str, r.grid))),
    ("waves", lambda r: DASH if r.waves is None else f"{r.waves:.2f}"),
)


def unit_table(units: Sequence[UnitTime], of: str) -> Table:
    table = text_table(f"Runs on, {of}", ["unit"], ["time ms", "of busy"], [])
    for u in units:
        table.add_row(Text(RUNS_ON[u.runs_on]), Text(ms(u.time_ns)), Text(frac(u.share_of_busy_frac)))
    return table


def _print_label(console: Console, document: BreakdownDocument, label: str | None, top: int) -> None:
    devices = [d for d in document.devices if d.label == label]
    ranks = next((r for r in document.ranks if r.label == label), None)
    one = max(devices, key=lambda d: d.kernel_sum_ns)
    if ranks is not None:
        _lines(console, rank_lines(ranks))
        title = f"Components{'' if label is None else f' of {label}'}, median of {len(devices)} ranks"
        _print(console, component_table(title, None, ranks.components_median))
    elif one.components:
        _print(console, component_table(f"Components of {_of(one)}", one, one.components))
    _lines(console, _device_lines(one))
    if one.units:
        _print(console, unit_table(one.units, _of(one)))
    if one.rows:
        _print(console, kernel_table(one, top))
        metrics = dict.fromkeys(r.tensor_pipe_metric for r in one.rows if r.tensor_pipe_metric)
        _lines(console, [f"tensor pipe: {metric}" for metric in metrics])
    steps = next((s for s in document.steps_by_label if s.label == label), None)
    if steps is not None and one.components:
        _lines(console, steps_lines(steps))
        if steps.components:
            _print(console, steps_table(steps))


def rank_lines(ranks: RankSummary) -> list[str]:
    where = f"{ranks.label}: " if ranks.label else ""
    names = ", ".join(number(r) for r in ranks.ranks)
    busy = (
        "" if ranks.median_busy_frac is None else f"; busy {percent(ranks.median_busy_frac)} of the window (median)"
    )
    worst = ""
    if ranks.worst_busy_frac is not None:
        name = "one device" if ranks.worst_rank is None else f"rank {ranks.worst_rank}"
        worst = f", {percent(ranks.worst_busy_frac)} on {name}, which the others wait for"
    missing = f"; missing: {', '.join(map(str, ranks.missing))}" if ranks.missing else ""
    return [f"{where}ranks {names}{busy}{worst}{missing}; never summed"]


def _device_lines(d: DeviceBreakdown) -> list[str]:
    found = []
    if d.tensor_pipe_frac is not None:
        found.append(f"tensor pipe {frac(d.tensor_pipe_frac)} of the window ({d.tensor_pipe_metric})")
    for value, what in ((d.sm_active_frac, "SMs active"), (d.dram_frac, "DRAM")):
        if value is not None:
            found.append(f"{what} {frac(value)} of the window")
    if d.graph_kernels_frac is not None:
        found.append(f"{percent(d.graph_kernels_frac)} of kernel time in CUDA graphs")
    if d.opaque_graph_ns:
        found.append(f"{ms(d.opaque_graph_ns)} ms in graphs whose kernels the file does not show")
    return [f"{_of(d)}: {', '.join(found)}"] if found else []


def _of(d: DeviceBreakdown) -> str:
    parts = [d.label, None if d.rank is None else f"rank {d.rank}", f"device {d.device}"]
    return ", ".join(p for p in parts if p)


def _print(console: Console, table: Table) -> None:
    """The title on a line of its own: a table folds it to its own width."""
    title, table.title = table.title, None
    console.print(Text(str(title), style="bold"), soft_wrap=True)
    console.print(table)
    console.print("")


def _lines(console: Console, lines: Iterable[str]) -> None:
    found = list(lines)
    for line in found:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if found:
        console.print("")
