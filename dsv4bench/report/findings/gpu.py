"""On which GPU a comparison's numbers were taken, and of which GPU they are therefore not.

Told of each experiment, in this order, by the devices in its own profile, by the one kind of GPU that its server's
host has, by CUDA_VISIBLE_DEVICES, by the other profiles of that host; a host of several kinds of which nothing tells
more is said to have them. A comparison without such hosts is told by its profiles, or by the words `sm_…` of a
published setup. The architecture is that of the table of GPUs; a name not in it has none.
A figure of one GPU is not one of another: the campaign's own (`kernels_device.TARGETS`) is named where it is not the
one measured, and GPUs that differ between comparisons are named side by side. Names are as they were recorded: who
prints them escapes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dsv4bench import gpus
from dsv4bench.records.experiment import Experiment, GpuInfo
from dsv4bench.report.findings.data import Compared, Profiled
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.kernels_device import TARGETS

CPU = "a CPU"
_ARCH = re.compile(r"\bsm_\d+\b")


def measured_on(c: Compared) -> str:
    """`NVIDIA H200 (sm_90), not sm_120`; `sm_120 (as its text says)`; `a GPU that is not told`."""
    names, sure = _names(c)
    if names:
        return f"{_where(names, sure)}{_not_target(names)}"
    stated = _stated(c)
    return f"{', '.join(stated)} (as its text says)" if stated else "a GPU that is not told"


def with_arch(name: str) -> str:
    """`NVIDIA H200 (sm_90)`."""
    if name == CPU:
        return name
    arch = _arch(name)
    return f"{name} ({arch or 'architecture not known here'})"


def caution(c: Compared) -> str | None:
    """What a reader with the campaign's own GPU must know; None where it is that GPU, or nobody can tell."""
    names, sure = _names(c)
    if not _not_target(names):
        return None
    return (
        f"measured on {_where(names, sure)}: the structure of an effect may carry over to {TARGETS[0]}; "
        "its size, tok/s and milliseconds do not"
    )


def side_by_side(compared: Sequence[Compared]) -> str | None:
    """That figures of different GPUs stand in one record, and whose are which; None where all are of one."""
    by_gpu: dict[str, list[str]] = {}
    for c in compared:
        by_gpu.setdefault(measured_on(c), []).append(tag(c.document))
    if len(by_gpu) < 2:
        return None
    named = "; ".join(f"{where} {' '.join(tags)}" for where, tags in by_gpu.items())
    return f"Figures of different GPUs are not comparable with each other. On {named}"


def gpu_names(e: Experiment) -> list[str]:
    """By name, each once: the server's GPUs, as far as its header alone tells which, else those of its host.

    `a CPU` where it says that it uses none; empty where nothing is told.
    """
    if str((e.server.args or {}).get("device")) == "cpu":
        return [CPU]
    return list(dict.fromkeys(g.name for g in _visible(e) or _host(e)))


def counted(c: Compared, e: Experiment) -> str:
    """`1 x NVIDIA H200 (sm_90)`; `the host has 8 x …` where it is not told how many of them were used."""
    host, visible = _host(e), _visible(e)
    if visible and len(visible) < len(host):
        return f"{_counts(visible)}, of {len(host)} GPUs of the host"
    if visible or len(host) == 1:
        return _counts(host)
    names, sure = _used(c, e)
    used = f"; used: {_archs(names)}" if sure and len({g.name for g in host}) > 1 else ""
    return f"the host has {_counts(host)}{used}"


def _names(c: Compared) -> tuple[list[str], bool]:
    """Each once; and whether all were used, not only there."""
    told = [_used(c, x.experiment) for x in c.experiments]
    names = list(dict.fromkeys(n for own, _ in told for n in own))
    return (names, all(sure for _, sure in told)) if names else (_seen(c.profiles), True)


def _used(c: Compared, e: Experiment) -> tuple[list[str], bool]:
    """False: those of the host, of which it is not told which were used."""
    names, host = gpu_names(e), list(dict.fromkeys(g.name for g in _host(e)))
    own = _seen([p for p in c.profiles if _of(p, e)])
    if names == [CPU] or own:
        return (names if names == [CPU] else own), True
    if len(host) < 2 or _visible(e):
        return names, True
    alike = [x.experiment for x in c.experiments if x.experiment.server_on_this_host and _same_host(x.experiment, e)]
    seen = _seen([p for p in c.profiles if any(_of(p, other) for other in alike)])
    return (seen, True) if seen else (host, False)


def _seen(profiles: Sequence[Profiled]) -> list[str]:
    return list(dict.fromkeys(d.gpu for p in profiles for d in p.breakdown.devices if d.gpu is not None))


def _of(p: Profiled, e: Experiment) -> bool:
    return p.source.startswith(f"{e.id}/")


def _same_host(a: Experiment, b: Experiment) -> bool:
    return a.machine is not None and b.machine is not None and a.machine.hostname_sha256 == b.machine.hostname_sha256


def _host(e: Experiment) -> list[GpuInfo]:
    return e.machine.gpus if e.machine is not None and e.server_on_this_host else []


def _visible(e: Experiment) -> list[GpuInfo]:
    """By CUDA_VISIBLE_DEVICES; empty where that does not tell.

    The recorded environment is the server's only where the campaign launched it. CUDA counts by speed unless it is
    told to count as the driver does, so on a host of several kinds an index alone tells nothing.
    """
    host = _host(e)
    chosen = [x.strip() for x in e.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if "campaign" not in e.extra or not all(x.isdecimal() and int(x) < len(host) for x in chosen):
        return []
    if len({g.name for g in host}) > 1 and e.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return []
    return [host[int(x)] for x in dict.fromkeys(chosen)]


def _counts(found: Sequence[GpuInfo]) -> str:
    return ", ".join(f"{n} x {with_arch(name)}" for name, n in Counter(g.name for g in found).items())


def _where(names: Sequence[str], sure: bool) -> str:
    return f"{'' if sure else 'a host that has '}{_archs(names)}"


def _archs(names: Sequence[str]) -> str:
    return ", ".join(map(with_arch, names))


def _stated(c: Compared) -> list[str]:
    if any(i.source == "dsv4bench" for i in c.document.inputs):
        return []
    return list(dict.fromkeys(_ARCH.findall(" ".join(c.document.setup))))


def _arch(name: str) -> str | None:
    found = gpus.find(name)
    return f"sm_{found.sm}" if found is not None and found.sm is not None else None


def _not_target(names: Sequence[str]) -> str:
    """`, not sm_120`: only where it is certain of every one."""
    known = [_arch(n) if n != CPU else CPU for n in names]
    return f", not {TARGETS[0]}" if known and all(k is not None and k not in TARGETS for k in known) else ""
