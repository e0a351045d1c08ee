"""`profile --with ncu`: hardware counters of named kernels, as evidence for the unit that each runs on.

Bundled kernels and peers are called once each at every batch, in one process under ncu; with `launch` it is a program
of the user's that launches kernels and ends. What comes out is joined to traces by normalised name and grid, like an
ncu file that was named with --trace: put `counters` into `profile_inputs.Inputs.counters`. No duration of it enters a
share. A tensor-parallel server is refused.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from dsv4bench.capture.ncu import (
    LAUNCHES,
    NcuAsk,
    compute_here,
    metrics_for,
    need_ncu,
    refuse_serving,
    run_ncu,
)
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.trace import KernelCounters
from dsv4bench.trace.ncu_csv import read_ncu_csv

TIMEOUT_S = 300.0


class NcuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`kernels`: names of the registry, comma-separated; with `launch`, function names, each a regular expression."""

    kernels: str | None = None
    batches: Sequence[int] = (1, 16)
    launch: str | None = None
    by_program: bool = False  # only between the program's own cudaProfilerStart and cudaProfilerStop
    launch_skip: int = 0
    launch_count: int = LAUNCHES
    peers: str | None = None
    seed: int = 0
    timeout_s: float = TIMEOUT_S


class NcuProfile(msgspec.Struct):
    """`counters` have the labels `c1`, `c16`, … of their batches, or None with `launch`."""

    counters: list[KernelCounters] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


def run_profile_ncu(o: NcuOptions, say: MessageCallback) -> NcuProfile:
    """Raises UsageError for what cannot be asked of ncu, Unanswerable where it counted nothing."""
    if o.launch is None and o.kernels is None:
        raise UsageError("--with ncu without kernels", "name them: --kernels slot_gemv,grouped_moe")
    if o.launch is None and (not o.batches or min(o.batches) < 1):
        raise UsageError("--with ncu without a batch", "give --concurrency, e.g. 1,16")
    command = shlex.split(o.launch) if o.launch is not None else []
    if o.launch is not None and not command:
        raise UsageError("--launch is empty", "give a program that launches the kernels and ends")
    refuse_serving(command)
    return _of_program(o, command, say) if command else _of_registry(o, say)


def _of_program(o: NcuOptions, command: Sequence[str], say: MessageCallback) -> NcuProfile:
    ncu = need_ncu()
    ask = NcuAsk(
        metrics=metrics_for(compute_here()),
        kernels=None if o.kernels is None else "|".join(name.strip() for name in o.kernels.split(",")),
        skip=o.launch_skip,
        count=o.launch_count,
        by_program=o.by_program,
    )
    with tempfile.TemporaryDirectory(prefix="dsv4bench-") as folder:
        log = Path(folder) / "ncu.csv"
        ended = run_ncu(ncu.path, ask, log, command, o.timeout_s, say)
        if not log.is_file():
            raise Unanswerable(
                f"ncu wrote nothing: {ended.why}", "run the program without it; does it end by itself?"
            )
        counters = replace(read_ncu_csv(log), file=f"ncu of {Path(command[0]).name}")
    warnings = [] if ended.code == 0 else [f"{ended.why}: launches may be missing"]
    if len(counters.rows) >= o.launch_count:
        warnings.append(f"the first {o.launch_count} launches only: raise --launch-count, or name --kernels")
    return NcuProfile([counters], warnings)


def _of_registry(o: NcuOptions, say: MessageCallback) -> NcuProfile:
    from dsv4bench.runs.kernels_candidates import candidates
    from dsv4bench.runs.kernels_counters import Asked, Target, ncu_launches

    found = candidates(o.kernels, None, o.peers)
    ncu = need_ncu()
    targets = [Target(kernel.name, batch) for kernel in found for batch in dict.fromkeys(o.batches)]
    say(f"ncu: {len(targets)} calls of {len(found)} kernels")
    asked = Asked(targets, o.peers, o.seed)
    seen = ncu_launches(ncu.path, asked, metrics_for(compute_here()), o.timeout_s, say)
    if not seen.found:
        raise Unanswerable("; ".join(seen.why) or "ncu saw no kernel", "dsv4bench doctor says what it needs")
    counters = [
        KernelCounters(file=f"ncu of {name} at {batch}", rows=rows, label=f"c{batch}")
        for (name, batch), rows in seen.found.items()
    ]
    return NcuProfile(counters, seen.why)
