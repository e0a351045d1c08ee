"""`python -m dsv4bench.runs.kernels_once NAME --batch N`: one call of one kernel, for a profiler of your own.

The call is made once unseen (it compiles, and warms up) and once between cudaProfilerStart and cudaProfilerStop, so
that `ncu --profile-from-start off` sees that one alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from dsv4bench.errors import BenchError
from dsv4bench.kernels.lab import CudaLab
from dsv4bench.runs.kernels_candidates import candidates
from dsv4bench.runs.kernels_counters import Answered, Target
from dsv4bench.runs.kernels_under_ncu import count

_LIMIT_S = 600.0


def main(arguments: list[str] | None = None) -> int:
    """0: called; 1: the kernel did not run; 2: there is no such kernel."""
    parser = argparse.ArgumentParser(prog="kernels_once", description="One call of one kernel, for a profiler.")
    parser.add_argument("name", help="a kernel of `dsv4bench kernels list`")
    parser.add_argument("--batch", type=int, default=1, help="tokens, or requests, of the call")
    parser.add_argument("--seed", type=int, default=0, help="of the generated data")
    parser.add_argument("--peers", help="a Python file that defines PEERS: kernels of your own")
    asked = parser.parse_args(arguments)
    try:
        (kernel,) = candidates(asked.name, None, asked.peers)
    except BenchError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    did, begun = Answered(), time.monotonic()
    target = [Target(kernel.name, asked.batch)]

    def left_s() -> float:
        return begun + _LIMIT_S - time.monotonic()

    count(kernel, target, CudaLab(asked.seed), did, left_s, lambda: None, in_range)
    for _, why in did.missed:
        print(f"error: {kernel.name} at {asked.batch}: {why}", file=sys.stderr)
    return 1 if did.missed else 0


def in_range(call: Callable[[], object]) -> None:
    """The call between cudaProfilerStart and cudaProfilerStop, and nothing else."""
    import torch

    torch.cuda.synchronize()
    profiler = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    profiler.cudaProfilerStart()
    try:
        call()
        torch.cuda.synchronize()
    finally:
        profiler.cudaProfilerStop()


if __name__ == "__main__":
    sys.exit(main())
