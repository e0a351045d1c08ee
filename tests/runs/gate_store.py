"""Stores arms as experiments, for the tests of gate, baseline and calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.records.arm import Arm
from dsv4bench.records.experiment import GpuInfo, Machine, Status, Tool
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.store.store import Store

EPOCH_S = 1796079600.0
WORKLOAD = Workload(endpoint="completions", dataset="random", prompt_kind="token_ids", isl=[1024], osl=256, seed=7)


def machine(gpu: str = "X") -> Machine:
    return Machine(
        cpu="x",
        cores=2,
        memory_bytes=1,
        os="l",
        kernel="6",
        python="3.12",
        hostname_sha256="ab",
        gpus=[GpuInfo(name=gpu)],
    )


def stored(
    root: Path, arm: Arm, config: str, *, start: float, status: Status = Status.COMPLETE, **fields: Any
) -> str:
    """The id. Each launch of the arm gets a start time of its own, from `start` on."""
    names = list(dict.fromkeys(c.launch for c in arm.cells))
    known: dict[str, Any] = {
        "workload": WORKLOAD,
        "plan": Plan(concurrency=[1, 8, 16], isl=[1024], repeat=5),
        "server": ServerInfo(url="http://127.0.0.1:8000", engine=Engine.SGLANG, model="m", args={"tp": 4}),
        "machine": machine(),
        "server_on_this_host": True,
        "tool": Tool(version="0.1.0"),
        "launches": {f"L{i}": EPOCH_S + start + 100 * i for i in range(len(names))},
    }
    with Store(root).create(scenario="c16", config=config, **{**known, **fields}) as e:
        for c in arm.cells:
            i = names.index(c.launch)
            e.append_cell(msgspec.structs.replace(c, launch=f"L{i}", cell=f"l{i}-{c.cell}"))
        e.finish(status)
        return e.id
