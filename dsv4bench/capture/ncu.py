"""Hardware counters of named kernels by ncu: its command line, one run of it, and what it must stay away from.

ncu runs a kernel alone, and again for every pass of metrics, with the caches flushed before: its durations are of
another program and enter no share; what it is good for is the unit that a kernel runs on. `--clock-control none`
leaves the clocks as serving has them. A tensor-parallel server under it hangs: NCCL's kernels wait for the other
ranks, which wait for ncu. So it is given kernels by name, from a program that launches them and ends.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dsv4bench.attribution.counters import unit_metrics
from dsv4bench.capture.leash import GRACE_S, leashed
from dsv4bench.capture.parallel import is_server, ranks_of
from dsv4bench.capture.running import run_tool
from dsv4bench.errors import UsageError
from dsv4bench.host.nsight import Nsight, find_ncu
from dsv4bench.host.profiling import REMEDY, counter_rights
from dsv4bench.host.redact import redact_text

DURATION = "gpu__time_duration.sum"
GH100_MMA = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active"
SHARES = (".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active")
LAUNCHES = 20  # at most, of a program that is not ours: each is replayed some ten times
BY_NAME = "name kernels instead: --with ncu --kernels slot_gemv,grouped_moe,… profiles them alone, at the same shapes"
_SAY_EVERY_S = 15.0
_LINE = 200


class NcuAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What ncu shall count. `kernels` is a regular expression of function names; None: every kernel.

    `by_program`: only between the program's own cudaProfilerStart and cudaProfilerStop.
    """

    metrics: Sequence[str]
    kernels: str | None = None
    skip: int = 0
    count: int | None = None
    by_program: bool = False


class NcuEnded(msgspec.Struct, frozen=True):
    """`why`: how it ended, for kernels that are missing. The log lies where it was asked for, or does not."""

    code: int | None
    why: str


def need_ncu() -> Nsight:
    """Raises UsageError where there is none, or where the driver keeps its counters for administrators."""
    ncu = find_ncu()
    if ncu is None:
        raise UsageError(
            "ncu is neither on the PATH nor where NVIDIA installs it",
            "install Nsight Compute, or do without counters",
        )
    if counter_rights().allowed is False:
        raise UsageError("the driver keeps the GPU's counters for administrators (ERR_NVGPUCTRPERM)", REMEDY)
    return ncu


def refuse_serving(command: Sequence[str]) -> None:
    """Raises UsageError for a command that ncu must not replay."""
    ranks = ranks_of(command)
    if ranks.count > 1:
        raise UsageError(
            f"--with ncu on {ranks.count} GPUs ({ranks.told_by}): it replays one kernel alone, and kernels that "
            "communicate wait for the other ranks, for ever",
            f"{BY_NAME}; for the whole server use --with nsys or --with torch",
        )
    if is_server(command):
        raise UsageError(
            "--with ncu on a server: it does not end by itself, and every kernel of its start-up would be replayed",
            f"{BY_NAME}; or give --launch a program that launches the kernels and ends",
        )


def refuse_url(url: str) -> None:
    """Raises UsageError: ncu starts what it profiles."""
    raise UsageError(
        f"--with ncu on {url}: ncu cannot attach to a running server, and must not replay one that serves",
        f"{BY_NAME}; for the server use --with torch, or --with nsys --launch",
    )


def metrics_for(compute: tuple[int, int] | None) -> list[str]:
    """What decides the unit, its utilisation of elapsed and of active cycles, HFMA2 apart, DRAM, and the time."""
    gh100 = [GH100_MMA + share for share in SHARES] if compute == (9, 0) else []
    return [*unit_metrics(compute or (0, 0)), *gh100, DURATION]


def ncu_command(ncu: str, ask: NcuAsk, log: Path, target: Sequence[str]) -> list[str]:
    """`ncu … target`; rows go to `log`, one launch a row, in base units, every digit printed."""
    options = ["--clock-control", "none", "--print-units", "base", "--print-fp", "--csv", "--page", "raw"]
    options += ["--target-processes", "all", "--graph-profiling", "node"]
    options += ["--profile-from-start", "off"] if ask.by_program else []
    options += ["--kernel-name", f"regex:{ask.kernels}"] if ask.kernels is not None else []
    options += ["--launch-skip", str(ask.skip)] if ask.skip else []
    options += ["--launch-count", str(ask.count)] if ask.count is not None else []
    return [ncu, *options, "--metrics", ",".join(ask.metrics), "--log-file", str(log), *target]


def run_ncu(
    ncu: str,
    ask: NcuAsk,
    log: Path,
    target: Sequence[str],
    timeout_s: float,
    say: Callable[[str], None] = lambda _: None,
) -> NcuEnded:
    """Run a program under ncu and end both after `timeout_s`; never raises for what they do."""
    told = 0.0

    def watch(seconds: float) -> None:
        nonlocal told
        if seconds - told >= _SAY_EVERY_S:
            told = seconds
            say(f"ncu replays kernels: {seconds:.0f} s")

    command = leashed(ncu_command(ncu, ask, log, target))
    environment = {**os.environ, "LC_ALL": "C"}  # numbers with a point
    done = run_tool(command, log.with_suffix(".said"), timeout_s, environment, watch, GRACE_S)
    if done.code is None:
        return NcuEnded(None, f"ncu was ended after {timeout_s:.0f} s")
    lines = [line.strip() for line in done.said.splitlines() if line.strip()]
    last = f": {redact_text(lines[-1])[:_LINE]}" if lines else ""
    return NcuEnded(done.code, f"ncu ended with {done.code}{last}")


def compute_here() -> tuple[int, int] | None:
    """The compute capability of the first GPU, asked of nvidia-smi; None where it does not tell."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(\d+)\.(\d+)", done.stdout.strip())
    return (int(found[1]), int(found[2])) if found is not None else None
