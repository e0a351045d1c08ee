"""`dsv4bench doctor`: what this machine lets the tool measure."""

from __future__ import annotations

import importlib.util

import msgspec

from dsv4bench.host.machine import machine
from dsv4bench.host.nvml import available
from dsv4bench.host.process import raise_file_limit
from dsv4bench.load.clock import kernel_stamps_available
from dsv4bench.load.pool import worker_count


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing: whether it is there, what was found, and what brings it when it is missing."""

    what: str
    ok: bool
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    m = machine()
    stamps = kernel_stamps_available()
    files = raise_file_limit()
    why_no_nvml = available()
    found = [
        Finding(what="cores", ok=m.cores > 1, found=f"{m.cores} ({m.cpu})"),
        Finding(
            what="kernel receive stamps",
            ok=stamps,
            found="yes" if stamps else "no: times hold the client's own lag",
            remedy="" if stamps else "run the client on Linux",
        ),
        Finding(
            what="open files", ok=files >= 1088, found=f"{files}: at most {max(files - 64, 0)} requests in flight"
        ),
        Finding(what="load workers at C=1024", ok=True, found=str(worker_count(1024))),
        Finding(
            what="GPU telemetry (NVML)",
            ok=why_no_nvml is None,
            found="yes" if why_no_nvml is None else why_no_nvml,
            remedy="" if why_no_nvml is None else "on a GPU host: pip install 'dsv4bench[gpu]'",
        ),
    ]
    for package, extra, use in (
        ("torch", "serve", "the embedded server"),
        ("starlette", "serve", "the embedded server"),
        ("triton", "kernels", "the bundled kernels"),
    ):
        there = importlib.util.find_spec(package) is not None
        found.append(
            Finding(
                what=package,
                ok=there,
                found=f"{'installed' if there else 'not installed'} ({use})",
                remedy="" if there else f"pip install 'dsv4bench[{extra}]'",
            )
        )
    return found
