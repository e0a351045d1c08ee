"""Kernels as tables: the registry, and which unit each build uses; words, not colours, say it.

A build with MMA instructions runs on tensor cores; one with none among its instructions cannot. A build that was not
compiled, or to nothing, is neither: it says why.
"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from dsv4bench.records.kernels import InspectDocument, InspectRow, KernelEntry, KernelListDocument

DASH = "–"
MEGA = 1e6
GIGA = 1e9


def inspect_table(document: InspectDocument) -> Table:
    """A row for each build and architecture; the name of a kernel stands once."""
    table = _table("kernel", "build", "arch", ">registers", ">spilled B", ">shared B", "runs on")
    before = None
    for row in document.rows:
        name = row.kernel if row.kernel != before else ""
        before = row.kernel
        numbers = (_int(row.registers), _int(row.spill_bytes), _int(row.smem_bytes))
        table.add_row(*map(Text, (name, _build(row), row.arch, *numbers, runs_on(row))))
    return table


def inspect_lines(document: InspectDocument) -> list[str]:
    """A line a kernel: its unit on each architecture, over all its builds; then what some builds lack."""
    lines, reasons = [], []
    for kernel in dict.fromkeys(row.kernel for row in document.rows):
        rows = [row for row in document.rows if row.kernel == kernel]
        archs = dict.fromkeys(row.arch for row in rows)
        lines.append(f"{kernel}: " + "; ".join(_unit([r for r in rows if r.arch == arch], arch) for arch in archs))
        reasons += [f"{kernel}, {_build(r)}, {r.arch}: {why}" for r in rows if (why := r.why_null or r.cannot_run)]
    return [*lines, *reasons]


def runs_on(row: InspectRow) -> str:
    """The unit of one build, with its evidence."""
    if row.mma is None:
        return "not known"
    if row.mma:
        unit = "tensor cores: " + ", ".join(f"{root} {n}" for root, n in row.mma.items())
    else:
        unit = f"CUDA cores: no MMA in {_int(row.instructions)} instructions"
    if row.fp64:
        unit += f", {row.fp64} in double precision"
    return unit + ("; cannot run" if row.cannot_run else "")


def kernels_list_table(document: KernelListDocument) -> Table:
    """A row a kernel. Megabytes and GFLOP are those of one call at the document's batch."""
    table = _table("kernel", "component", "role", "replaces", "architectures", "here", ">floor MB", ">GFLOP")
    for k in document.kernels:
        table.add_row(
            *map(
                Text,
                (
                    *(k.name, k.component, k.role.replace("_", " "), k.replaces or DASH, _archs(k), _here(k)),
                    f"{k.floor_bytes / MEGA:.1f}",
                    f"{k.flops / GIGA:.2f}",
                ),
            )
        )
    return table


def kernels_list_lines(document: KernelListDocument) -> list[str]:
    """What each kernel does and lacks, what the figures are of, and the inputs of each component."""
    lines = [f"{k.name}: {k.summary}" + ("" if k.default else " (only when named)") for k in document.kernels]
    lines += [f"{k.name} is not here: {k.why_not.removeprefix(f'{k.name}: ')}" for k in document.kernels if k.why_not]
    for component in dict.fromkeys(k.component for k in document.kernels):
        first = next(k for k in document.kernels if k.component == component)
        lines.append(f"{component}, floor of one call: {first.call}")
        lines += [f"  {i.name}: {i.dtype} {i.shape}" for i in first.inputs]
    lines.append(f"GPU: {document.gpu}" if document.gpu else "no CUDA GPU here: check and inspect work without one")
    return lines


def _unit(rows: list[InspectRow], arch: str) -> str:
    known = [row for row in rows if row.mma is not None]
    if not known:
        return f"{arch} not known"
    roots = sorted({root for row in known for root in row.mma or {}})
    without = sum(not row.mma for row in known)
    if not roots:
        unit = f"{arch} CUDA cores, no MMA in {_builds(known)}"
    else:
        unit = f"{arch} tensor cores ({', '.join(roots)})"
        unit += f", but no MMA in {without} of {_builds(known)}" if without else ""
    lost = sum(row.mma is None or row.cannot_run is not None for row in rows)
    return unit + (f", {lost} of {_builds(rows)} cannot run" if lost else "")


def _builds(rows: list[InspectRow]) -> str:
    return f"{len(rows)} build" + ("s" if len(rows) > 1 else "")


def _build(row: InspectRow) -> str:
    return row.label or row.function or DASH


def _archs(k: KernelEntry) -> str:
    return ", ".join(k.archs) if k.archs else f"sm_{k.min_sm} and later"


def _here(k: KernelEntry) -> str:
    if not k.loads:
        return "missing"
    return {None: "loads", True: "yes", False: "not on this GPU"}[k.fits_gpu]


def _int(value: int | None) -> str:
    return DASH if value is None else str(value)


def _table(*heads: str) -> Table:
    """Heads that begin with > are those of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head.lstrip(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    return table
