"""The plain facts that decide whether two results may be compared, out of the records that hold them.

A dictionary of plain keys, so that a refusal can name the ones that differ; None for a fact means "not told".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsv4bench.records.arm import Plain
from dsv4bench.records.experiment import Machine
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Workload


def workload_facts(w: Workload, s: ServerInfo) -> dict[str, Plain]:
    """What must be equal before anything is compared; realised lengths are judged cell by cell."""
    return {
        "model": s.model,
        "endpoint": w.endpoint,
        "dataset": w.dataset,
        "dataset_sha256": w.dataset_sha256,
        "prompt_kind": w.prompt_kind,
        "osl": w.osl,
        "vocab_size": w.vocab_size,
        "prefix_share": w.prefix_share,
        "temperature": w.temperature,
        "ignore_eos": w.ignore_eos,
    }


def hardware_facts(m: Machine | None) -> dict[str, Plain] | None:
    """The server's hardware, when it runs on the machine that was described."""
    if m is None:
        return None
    gpus = ", ".join(sorted(g.name for g in m.gpus))
    facts: dict[str, Plain] = {"gpus": gpus or None, "n_gpus": len(m.gpus), "driver": m.driver}
    limits = sorted({g.power_limit_w for g in m.gpus if g.power_limit_w is not None})
    facts["power_limit_w"] = limits[0] if len(limits) == 1 else None
    return {**facts, "cpu": m.cpu, "cores": m.cores}


def server_facts(s: ServerInfo) -> dict[str, Plain] | None:
    """Engine, version and arguments, flat; None when the server does not tell its arguments."""
    if s.args is None:
        return None
    return {"engine": str(s.engine), "version": s.version, **flat(s.args)}


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Plain]:
    """Nested arguments as dotted keys; lists as JSON text."""
    out: dict[str, Plain] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            out.update(flat(inner, f"{name}."))
        elif inner is None or isinstance(inner, str | int | float | bool):
            out[name] = inner
        else:
            out[name] = json.dumps(inner, sort_keys=True, default=str)
    return out
