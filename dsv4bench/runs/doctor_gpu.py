"""The GPU's part of `dsv4bench doctor`: driver, profilers, and whether counters can be sampled: that is tried."""

from __future__ import annotations

import time
from collections.abc import Callable

from dsv4bench.capture.gpm import GpmCounters
from dsv4bench.capture.pm import PmCounters
from dsv4bench.capture.pm_frames import Refused
from dsv4bench.capture.pm_library import find_cupti
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.host import nvml
from dsv4bench.host.nsight import LIBRARIES_REMEDY, Nsight, find_ncu, find_nsys, importer_lacks, importer_of
from dsv4bench.host.profiling import REMEDY, CounterRights, counter_rights
from dsv4bench.records.experiment import Machine
from dsv4bench.runs.doctor_finding import Finding

ON_A_GPU_HOST = "on a GPU host: pip install 'dsv4bench[gpu]'"
TRY_S = 0.5


def examine_gpu(m: Machine) -> list[Finding]:
    nsys = find_nsys()
    return [
        *_driver(m),
        _telemetry(),
        _nsight("nsys", nsys, "Nsight Systems"),
        _importer(nsys),
        _nsight("ncu", find_ncu(), "Nsight Compute"),
        _cupti(),
        _permission(counter_rights(), m.driver),
        *_sampling(bool(m.gpus)),
    ]


def _driver(m: Machine) -> list[Finding]:
    cuda = nvml.cuda_version()
    names = sorted({g.name for g in m.gpus})
    return [
        Finding(
            what="GPU",
            ok=bool(m.gpus),
            found=f"{len(m.gpus)} × {', '.join(names)}" if m.gpus else f"none ({m.gpu_why_none})",
            remedy="" if m.gpus else ON_A_GPU_HOST,
        ),
        Finding(
            what="driver",
            ok=m.driver is not None,
            found=m.driver or "not told",
            remedy="" if m.driver else "install the NVIDIA driver",
        ),
        Finding(
            what="CUDA",
            ok=cuda is not None,
            found=f"the driver goes up to {cuda}" if cuda else "not told",
            remedy="" if cuda else ON_A_GPU_HOST,
        ),
    ]


def _telemetry() -> Finding:
    why = nvml.available()
    return Finding(
        what="GPU telemetry (NVML)",
        ok=why is None,
        found="yes" if why is None else why,
        remedy="" if why is None else ON_A_GPU_HOST,
    )


def _nsight(name: str, found: Nsight | None, product: str) -> Finding:
    return Finding(
        what=name,
        ok=found is not None,
        found=found.shown if found is not None else "not found on PATH or where NVIDIA installs it",
        remedy="" if found is not None else f"install {product}, or put {name} on PATH",
    )


def _importer(nsys: Nsight | None) -> Finding:
    """nsys records without them, and then makes no report."""
    what = "libdw and libelf (for nsys)"
    if nsys is None:
        return Finding(what=what, ok=False, found="not asked: no nsys", remedy="install Nsight Systems")
    if importer_of(nsys.path) is None:
        return Finding(what=what, ok=False, found="nsys' importer was not found", remedy=LIBRARIES_REMEDY)
    lacks = importer_lacks(nsys.path)
    if lacks is not None:
        return Finding(
            what=what, ok=False, found=f"{lacks} is missing: nsys makes no report", remedy=LIBRARIES_REMEDY
        )
    return Finding(what=what, ok=True, found="nsys' importer starts")


def _cupti() -> Finding:
    found = find_cupti()
    if isinstance(found, Refused):
        return Finding(what="CUPTI", ok=False, found=found.message, remedy=found.hint)
    return Finding(
        what="CUPTI", ok=True, found=f"libcupti {found.version} for cupti-python {found.binding} ({found.path})"
    )


def _permission(rights: CounterRights, driver: str | None) -> Finding:
    what = "GPU counters' permission"
    if rights.restricted is None and driver is None:
        return Finding(what=what, ok=False, found="not asked: no NVIDIA driver", remedy=ON_A_GPU_HOST)
    who = "this process has administrator's rights" if rights.admin else "this process has no administrator's rights"
    setting = {
        True: f"for administrators only; {who}",
        False: "for every user",
        None: f"the driver does not tell for whom; {who}",
    }
    return Finding(
        what=what,
        ok=rights.allowed is True,
        found=setting[rights.restricted],
        remedy="" if rights.allowed else REMEDY,
    )


def _sampling(any_gpu: bool) -> list[Finding]:
    if not any_gpu:
        return [
            Finding(what=what, ok=False, found="not tried: no GPU", remedy=ON_A_GPU_HOST)
            for what in ("tensor pipe by CUPTI PM sampling", "tensor pipe by NVML GPM")
        ]
    return [
        _tried("tensor pipe by CUPTI PM sampling", lambda: PmCounters([0])),
        _tried("tensor pipe by NVML GPM", lambda: GpmCounters([0])),
    ]


def _tried(what: str, opening: Callable[[], PmCounters | GpmCounters]) -> Finding:
    try:
        counters = opening()
    except CountersRefused as e:
        return Finding(what=what, ok=False, found=e.message, remedy=e.hint or "another way of sampling may work")
    try:
        counters.start()
        time.sleep(TRY_S)
        (samples,) = counters.stop()
    except CountersRefused as e:
        return Finding(what=what, ok=False, found=e.message, remedy=e.hint or "another way of sampling may work")
    finally:
        counters.close()
    n = len(samples.time_ns)
    metrics = ", ".join(name.split(".avg.")[0] for name in counters.metrics)
    chip = f" of {counters.chip}" if counters.chip else ""
    return Finding(
        what=what,
        ok=n > 0 and counters.ended is None,
        found=f"{n} samples{chip} in {TRY_S:g} s: {metrics}" + (f"; {counters.ended}" if counters.ended else ""),
        remedy="" if n else "see whether another profiler has the counters",
    )
