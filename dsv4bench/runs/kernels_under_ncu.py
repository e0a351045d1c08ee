"""What runs under ncu for `--counters`: each target once unseen, then once profiled, behind a marker.

The answer file is written anew after every step, so that whatever ends this process leaves what was done until then.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.kernels.lab import CudaLab, first_line, prepared
from dsv4bench.kernels.workload import calls_of, with_router_scale
from dsv4bench.runs.kernels_candidates import Candidate, candidates
from dsv4bench.runs.kernels_counters import Answered, Asked, Target

TIME_IS_UP = "the time for counters was up"


def main() -> None:
    """`python -c … ASKED.json ANSWER.json`."""
    started = time.monotonic()
    question, answer = (Path(p) for p in sys.argv[1:3])
    asked = msgspec.json.decode(question.read_bytes(), type=Asked)
    lab, did = CudaLab(asked.seed), Answered()

    def left_s() -> float:
        return asked.budget_s - (time.monotonic() - started)

    def note() -> None:
        answer.write_bytes(msgspec.json.encode(did))

    names = ",".join(dict.fromkeys(t.kernel for t in asked.targets))
    by_name = {k.name: k for k in candidates(names, None, asked.peers)}
    for name, group in itertools.groupby(asked.targets, key=lambda t: t.kernel):
        count(by_name[name], list(group), lab, did, left_s, note)
        lab.free()
    note()


def count(
    kernel: Candidate,
    targets: Iterable[Target],
    lab: Any,
    did: Answered,
    left_s: Callable[[], float],
    note: Callable[[], None],
    profiled: Callable[[Callable[[], object]], None] | None = None,
) -> None:
    """All batches of one kernel. `profiled` runs a call where ncu looks (None: behind a marker on the GPU)."""
    run, ready, runner, why = profiled or behind_marker, None, None, None
    for target in targets:
        if why is None and left_s() <= 0:
            why = TIME_IS_UP
        if why is not None:
            did.missed.append((target, why))
            continue
        try:
            load = lab.workload(kernel.component, target.batch)
            load = with_router_scale(load) if kernel.role == "peer" else load
            runner = kernel.load() if runner is None else runner
            ready = prepared(runner, load) if ready is None else ready
            first, second, *_ = calls_of(load, runner, ready)
            first()
            did.begun.append(target)
            note()
            run(second)
        except Exception as error:  # whatever a kernel or its library raises
            did.missed.append((target, first_line(error)))
        note()


def behind_marker(call: Callable[[], object]) -> None:
    """The marker and the call, seen by ncu; nothing else is."""
    import torch

    from dsv4bench.kernels.gpu.read_stream import SHAPES, read

    words = torch.zeros(SHAPES[0].words, dtype=torch.int32, device="cuda")
    sums = torch.zeros(1, dtype=torch.int32, device="cuda")
    read(words, sums, SHAPES[0], 1)  # compiled here, unseen
    torch.cuda.synchronize()
    profiler = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    profiler.cudaProfilerStart()
    try:
        read(words, sums, SHAPES[0], 1)
        call()
        torch.cuda.synchronize()
    finally:
        profiler.cudaProfilerStop()
