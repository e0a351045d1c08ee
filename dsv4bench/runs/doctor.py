"""`dsv4bench doctor`: what this machine lets the tool measure."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path

from dsv4bench.host.machine import clock_source, machine
from dsv4bench.host.process import raise_file_limit
from dsv4bench.load.clock import kernel_stamps_available
from dsv4bench.load.pool import STREAMS_A_WORKER, worker_count
from dsv4bench.records.experiment import Machine
from dsv4bench.runs.doctor_finding import Finding
from dsv4bench.runs.doctor_gpu import examine_gpu

LARGE_C = 1024
SPARE_FILES = 64
LEAST_FREE_BYTES = 2 << 30  # a trace of a minute can be that large
QUICK_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"})
PACKAGES = (
    ("torch", "serve", "the embedded server"),
    ("starlette", "serve", "the embedded server"),
    ("triton", "kernels", "the bundled kernels"),
)


def examine() -> list[Finding]:
    """Everything, in the order of a report: the client, the GPU, the profilers, the optional packages."""
    m = machine()
    return [*_client(m), *examine_gpu(m), *(_package(*one) for one in PACKAGES)]


def _client(m: Machine) -> list[Finding]:
    stamps, files = kernel_stamps_available(), raise_file_limit()
    in_flight, workers = max(files - SPARE_FILES, 0), worker_count(LARGE_C)
    streams = -(-LARGE_C // workers)
    return [
        Finding(
            what="cores",
            ok=m.cores > 1,
            found=f"{m.cores} ({m.cpu})",
            remedy="" if m.cores > 1 else "give the client a core of its own: one core serves and measures in turns",
        ),
        _clock(),
        Finding(
            what="kernel receive stamps",
            ok=stamps,
            found="yes" if stamps else "no: times hold the client's own lag",
            remedy="" if stamps else "run the client on Linux",
        ),
        Finding(
            what="open files",
            ok=in_flight >= LARGE_C,
            found=f"{files}: at most {in_flight} requests in flight",
            remedy="" if in_flight >= LARGE_C else f"ulimit -Hn {LARGE_C + SPARE_FILES} (as root)",
        ),
        Finding(
            what="client capacity",
            ok=streams <= STREAMS_A_WORKER,
            found=f"C={LARGE_C} is {streams} streams for each of {workers} load workers, {STREAMS_A_WORKER} are easy",
            remedy=""
            if streams <= STREAMS_A_WORKER
            else "more cores; `dsv4bench selftest` measures this client's error",
        ),
        *(
            _disk(name, path)
            for name, path in (("results", Path.cwd()), ("temporary files", Path(tempfile.gettempdir())))
        ),
    ]


def _clock() -> Finding:
    source = clock_source()
    if source is None:
        return Finding(what="clock source", ok=True, found="not told by this system")
    quick = source in QUICK_CLOCKS
    return Finding(
        what="clock source",
        ok=quick,
        found=source if quick else f"{source}: reading it is a system call, and slow",
        remedy=""
        if quick
        else "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource (as root)",
    )


def _disk(name: str, path: Path) -> Finding:
    try:
        free = shutil.disk_usage(path).free
    except OSError as e:
        return Finding(
            what=f"disk for {name}", ok=False, found=f"{path}: {e}", remedy="run it in a folder that exists"
        )
    enough = free >= LEAST_FREE_BYTES
    return Finding(
        what=f"disk for {name}",
        ok=enough,
        found=f"{free / 2**30:.1f} GiB free in {path}",
        remedy="" if enough else "traces can take gigabytes: free some, or set TMPDIR and --out to another disk",
    )


def _package(package: str, extra: str, use: str) -> Finding:
    there = importlib.util.find_spec(package) is not None
    return Finding(
        what=package,
        ok=there,
        found=f"{'installed' if there else 'not installed'} ({use})",
        remedy="" if there else f"pip install 'dsv4bench[{extra}]'",
    )
