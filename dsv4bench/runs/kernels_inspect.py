"""`dsv4bench kernels inspect`: which unit each kernel would use on a GPU that need not be here, from its own SASS.

Joins what `kernels` compiles with what `trace` reads in it. A build that cannot be compiled for an architecture is a
row that says why; so is one whose code does nothing, because it proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dsv4bench.errors import Unanswerable
from dsv4bench.kernels.attempts import Attempt, compile_all
from dsv4bench.kernels.compiled import parse_archs, triton_version
from dsv4bench.kernels.registry import Kernel, kernels
from dsv4bench.records.kernels import InspectDocument, InspectRow, KernelRole
from dsv4bench.records.progress import MessageCallback
from dsv4bench.trace.sass import read_cubin


def run_inspect(names: str | None, archs: str, say: MessageCallback) -> InspectDocument:
    """Compile and disassemble. Raises UsageError for an unknown kernel or architecture, or without Triton.

    Raises Unanswerable when no build at all could be compiled.
    """
    wanted = parse_archs(archs)
    chosen = kernels(names)
    version = triton_version()
    peers = [k for k in chosen if k.role == "peer"] if names else []
    bundled = [k for k in chosen if k.role != "peer"]
    say(f"compiling {len(bundled)} kernels for {', '.join(wanted)} with Triton {version}")
    document = inspect_kernels(bundled, wanted, version)
    why = "a peer: its binaries are its own; profile --cubins reads them"
    absent = [
        InspectRow(kernel=k.name, function="", role=k.role, arch=arch, triton=version, why_null=why)
        for k in peers
        for arch in wanted
    ]
    if document.rows and all(row.why_null for row in document.rows):
        raise Unanswerable(f"no kernel could be compiled: {document.rows[0].why_null}")
    return InspectDocument(rows=[*document.rows, *absent])


def inspect_kernels(chosen: Sequence[Kernel], archs: Sequence[str], version: str) -> InspectDocument:
    """A row for each build and architecture."""
    roles: dict[str, KernelRole] = {k.name: k.role for k in chosen}
    attempts = compile_all(chosen, archs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the disassembler is a process of its own
        return InspectDocument(rows=list(pool.map(lambda a: _row(a, roles[a.kernel], version), attempts)))


def _row(attempt: Attempt, role: KernelRole, version: str) -> InspectRow:
    row = InspectRow(
        kernel=attempt.kernel,
        function=attempt.function,
        label=attempt.label,
        role=role,
        arch=attempt.arch,
        triton=version,
        why_null=attempt.why,
    )
    made = attempt.compiled
    if made is None:
        return row
    try:
        found = read_cubin(made.cubin)
    except Unanswerable as e:
        return msgspec.structs.replace(row, why_null=f"cannot be disassembled: {e.message}")
    if not found.writes:
        nothing = f"compiled to {found.instructions} instructions that write nothing"
        return msgspec.structs.replace(row, why_null=made.too_large or nothing)
    return msgspec.structs.replace(
        row,
        mma=found.mma,
        instructions=found.instructions,
        fp64=found.fp64,
        registers=found.registers,
        spill_bytes=found.spill_store_bytes,
        smem_bytes=made.smem_bytes,
        cannot_run=made.too_large,
    )
