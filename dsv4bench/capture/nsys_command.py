"""The command lines for nsys, and what the nsys at hand understands of them.

`launch` puts the server under nsys and records nothing yet; `start` and `stop` bound one window; every switch is
there for a reason that cost somebody a capture:

    --cuda-graph-trace=node        the default, `graph`, hides every kernel inside a CUDA graph
    --trace-fork-before-exec=true  workers are forked; without it their GPUs stay empty
    --sample=none --cpuctxsw=none  with them, a toy wrote 2 GB in 110 s; and they need no privilege when off
    --wait=primary                 the end of the server is the end of `nsys launch`
    --env-var=TMPDIR=…             nsys gets a private folder, the server keeps its own

An option that this nsys lacks is left out with a note, or refused where the capture would be worthless without it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.host.nsight import Nsight

METRICS_HZ = 10_000
_OPTION = re.compile(r"--[a-z][\w-]*")
_NEEDED_LAUNCH = ("--session-new", "--trace")
_NEEDED_START = ("--session", "--output", "--sample")
_ASK_S = 20.0
_LACKING = {
    "--cuda-graph-trace": "it traces CUDA graphs as its version does by default",
    "--trace-fork-before-exec": "workers that are forked are not traced: let the server spawn them",
    "--cpuctxsw": "context switches may be recorded, which makes the report large",
}


class Options(msgspec.Struct, frozen=True):
    """The options that `nsys launch` and `nsys start` of one version know."""

    launch: frozenset[str]
    start: frozenset[str]

    def notes(self) -> list[str]:
        """What is left out of the commands, and what that means."""
        wanted = (("--cuda-graph-trace", self.launch), ("--trace-fork-before-exec", self.launch))
        return [
            f"this nsys has no {name}: {_LACKING[name]}"
            for name, known in (*wanted, ("--cpuctxsw", self.start))
            if name not in known
        ]


def options_of(nsys: Nsight) -> Options:
    """What its help names. Raises UsageError where sessions cannot be driven with it."""
    known = Options(_named(nsys.path, "launch"), _named(nsys.path, "start"))
    lacking = [n for n in _NEEDED_LAUNCH if n not in known.launch] + [
        n for n in _NEEDED_START if n not in known.start
    ]
    if lacking:
        raise UsageError(
            f"{nsys.shown} does not know {', '.join(lacking)}",
            "install nsight-systems-cli 2022.1 or newer, and put it first on the PATH",
        )
    return known


def launch_command(
    nsys: Nsight, known: Options, session: str, server: Sequence[str], tmpdir: str | None = None
) -> list[str]:
    """`nsys launch … server`. `tmpdir` is the server's TMPDIR (default: that of this process)."""
    switches = {
        "--trace": "cuda,nvtx",
        "--cuda-graph-trace": "node",
        "--trace-fork-before-exec": "true",
        "--wait": "primary",
        "--env-var": f"TMPDIR={tmpdir or tempfile.gettempdir()}",
    }
    return [nsys.path, "launch", f"--session-new={session}", *_known(switches, known.launch), *server]


def start_command(
    nsys: Nsight, known: Options, session: str, report: Path, *, by_server: bool = False, metrics: bool = False
) -> list[str]:
    """`nsys start`: record into `report`; `by_server`: between a traced process' cudaProfilerStart and Stop.

    The end of that range must be said: by default nsys ends the server with it.
    """
    switches = {"--sample": "none", "--cpuctxsw": "none", "--output": str(report), "--force-overwrite": "true"}
    if by_server:
        switches |= {"--capture-range": "cudaProfilerApi", "--capture-range-end": "stop"}
        lacking = [name for name in ("--capture-range", "--capture-range-end") if name not in known.start]
        if lacking:
            raise UsageError(f"{nsys.shown} does not know {', '.join(lacking)}", "install a newer nsight-systems-cli")
    if metrics:
        name = next((n for n in ("--gpu-metrics-devices", "--gpu-metrics-device") if n in known.start), None)
        if name is None:
            raise UsageError(f"{nsys.shown} cannot sample GPU metrics", "install a newer nsight-systems-cli")
        switches |= {name: "all", "--gpu-metrics-frequency": str(METRICS_HZ)}
    return [nsys.path, "start", f"--session={session}", *_known(switches, known.start)]


def stop_command(nsys: Nsight, session: str) -> list[str]:
    return [nsys.path, "stop", f"--session={session}"]


def cancel_command(nsys: Nsight, session: str) -> list[str]:
    return [nsys.path, "cancel", f"--session={session}"]


def shutdown_command(nsys: Nsight, session: str) -> list[str]:
    return [nsys.path, "shutdown", f"--session={session}", "--kill=sigterm"]


def sessions_command(nsys: Nsight) -> list[str]:
    return [nsys.path, "sessions", "list"]


def export_command(nsys: Nsight, report: Path, export: Path) -> list[str]:
    return [nsys.path, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report)]


def state_in(listed: str, session: str) -> str | None:
    """The state of a session (`Launched`, `DelayedCollection`, `Collection`, …) in `nsys sessions list`.

    None where it is not listed. A line is: ID, TIME, STATE, LAUNCH, NAME.
    """
    for line in listed.splitlines():
        cells = line.split()
        if len(cells) >= 5 and cells[-1] == session:
            return cells[2]
    return None


def _known(switches: dict[str, str], known: frozenset[str]) -> list[str]:
    return [f"{name}={value}" for name, value in switches.items() if name in known]


def _named(nsys: str, verb: str) -> frozenset[str]:
    try:
        done = subprocess.run(
            [nsys, verb, "--help"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"{nsys} {verb} --help does not answer: {error}", "install nsight-systems-cli anew"
        ) from error
    return frozenset(_OPTION.findall(done.stdout + done.stderr))
