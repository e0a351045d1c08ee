"""On which GPU a comparison's numbers were taken, and of which GPU they are therefore not.

Told, in this order, by the experiments whose server ran on the machine described, by the devices of its profiles, by
the words `sm_…` of a published setup. The architecture is that of the table of GPUs; a name not in it has none.
A figure of one GPU is not one of another: the campaign's own (`kernels_device.TARGETS`) is named where it is not the
one measured, and GPUs that differ between comparisons are named side by side. Names are as they were recorded: who
prints them escapes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dsv4bench import gpus
from dsv4bench.records.experiment import Experiment
from dsv4bench.report.findings.data import Compared
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.kernels_device import TARGETS

CPU = "a CPU"
_ARCH = re.compile(r"\bsm_\d+\b")


def measured_on(c: Compared) -> str:
    """`NVIDIA H200 (sm_90), not sm_120`; `sm_120 (as its text says)`; `a GPU that is not told`."""
    names = _names(c)
    if names:
        return f"{', '.join(with_arch(n) for n in names)}{_not_target(names)}"
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
    names = _names(c)
    if not _not_target(names):
        return None
    return (
        f"measured on {', '.join(map(with_arch, names))}: the structure of an effect may carry over to {TARGETS[0]}; "
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
    """The server's GPUs by name, each once; `a CPU` where it says that it uses none; empty where it is not told."""
    if str((e.server.args or {}).get("device")) == "cpu":
        return [CPU]
    if e.machine is None or not e.server_on_this_host:
        return []
    return list(dict.fromkeys(g.name for g in e.machine.gpus))


def _names(c: Compared) -> list[str]:
    """Each once."""
    told = [name for x in c.experiments for name in gpu_names(x.experiment)]
    seen = [d.gpu for p in c.profiles for d in p.breakdown.devices if d.gpu is not None]
    return list(dict.fromkeys(told or seen))


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
