"""What the kernels of a profile were compiled to: of folders that were named, else of the server's own Triton cache.

A folder that was named and cannot be used is an error. A cache is looked into unasked: what it cannot tell is one
note, and only kernels of the trace are read of it, those with the most time first. Others may share a cache: builds
for another block size than those of the trace are of another program or another tuning, and are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dsv4bench.errors import BenchError
from dsv4bench.records.trace import Kind, Sass
from dsv4bench.runs.profile_inputs import Inputs
from dsv4bench.trace.cubin import read_cubins
from dsv4bench.trace.names import base_name

MOST_BUILDS = 400  # of a cache: about a minute of disassembly on two cores


def compiled(folders: Sequence[str], cache: str | None, inputs: Inputs) -> dict[str, Sass]:
    """SASS by kernel; one kernel of two folders keeps the builds of both. `cache` counts where no folder was named.

    Raises UsageError and Unanswerable for a folder, never for the cache.
    """
    names, blocks = kernel_names(inputs), block_sizes(inputs)
    if not folders and cache is not None:
        return _of_cache(Path(cache), names, blocks, inputs.warnings)
    found: dict[str, Sass] = {}
    for folder in folders:
        disassembly = read_cubins(Path(folder), names or None, blocks=blocks)
        inputs.warnings += disassembly.warnings
        for name, sass in disassembly.kernels.items():
            before = found.get(name)
            found[name] = sass if before is None else Sass(name, [*before.builds, *sass.builds])
    return found


def kernel_names(inputs: Inputs) -> list[str]:
    """Base names of every kernel of the files, those with the most time first, then those that have none."""
    time_ns: Counter[str] = Counter()
    for t in inputs.traces:
        is_kernel = t.kind == Kind.KERNEL
        lengths = (t.end_ns - t.start_ns)[is_kernel]
        sums = np.bincount(t.name[is_kernel], weights=lengths, minlength=len(t.kernel_names))
        for (raw, _, _), total in zip(t.kernel_names, sums, strict=True):
            time_ns[base_name(raw)] += int(total)
    for table in inputs.tables:
        for row in table.rows:
            time_ns[base_name(row.name)] += row.time_ns
    for counters in inputs.counters:
        for counted in counters.rows:
            time_ns[base_name(counted.name)] += 0
    return [name for name, _ in time_ns.most_common()]


def block_sizes(inputs: Inputs) -> dict[str, set[int]]:
    """By base name, the threads a block that a kernel ran with; without names whose blocks are not all told."""
    found: dict[str, set[int]] = {}
    untold = {base_name(row.name) for table in inputs.tables for row in table.rows}
    for t in inputs.traces:
        is_kernel = t.kind == Kind.KERNEL
        pairs = np.stack([t.name[is_kernel], t.block[is_kernel].prod(axis=1)], axis=1)
        for index, threads in np.unique(pairs, axis=0).tolist():
            found.setdefault(base_name(t.kernel_names[index][0]), set()).add(threads)
    for counted in (row for counters in inputs.counters for row in counters.rows):
        found.setdefault(base_name(counted.name), set()).add(math.prod(counted.block))
    return {name: threads for name, threads in found.items() if 0 not in threads and name not in untold}


def _of_cache(
    cache: Path, names: Sequence[str], blocks: Mapping[str, set[int]], warnings: list[str]
) -> dict[str, Sass]:
    """Never raises: what cannot be told is one line in `warnings`."""
    if not names:
        return {}
    try:
        found = read_cubins(cache, names, MOST_BUILDS, blocks)
    except (BenchError, OSError) as e:
        reason = e.message.removeprefix(f"--cubins {cache}: ") if isinstance(e, BenchError) else e.strerror
        warnings.append(f"no proof from compiled kernels: {reason or type(e).__name__}")
        return {}
    if found.warnings:
        more = f" (and {len(found.warnings) - 1} more)" if len(found.warnings) > 1 else ""
        warnings.append(f"compiled kernels: {found.warnings[0]}{more}")
    return found.kernels
