"""Did nsys see a kernel on every GPU of the server? Workers that it did not follow leave their GPU empty.

It reads the export itself, for nothing but which GPUs have kernels. An export without any is not judged here: whoever
reads it says why.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dsv4bench.capture.parallel import Ranks

_ACTIVITY = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
_GPUS = "TARGET_INFO_CUDA_DEVICE"
_FOLLOW = (
    "a worker that was forked is recorded without kernels: let the server spawn its workers "
    "(vLLM: VLLM_WORKER_MULTIPROC_METHOD=spawn), run no other profiler in them, take an nsys as new as the driver"
)


def gpus_with_kernels(export: Path) -> set[int]:
    """Numbers of the GPUs with a kernel or a whole graph launch; empty where the export does not tell.

    CUDA's ordinal is a process' own where CUDA_VISIBLE_DEVICES differs; the file maps it where it can.
    """
    try:
        with closing(sqlite3.connect(f"{export.resolve().as_uri()}?mode=ro", uri=True)) as db:
            known = _known(db)
            return {known.get(used, used[1]) for table in _ACTIVITY for used in _used(db, table)}
    except (sqlite3.Error, ValueError):
        return set()


def missing_gpus(export: Path, ranks: Ranks) -> str | None:
    """What to say when kernels of some GPUs are missing; None when they are all there, or none is."""
    seen = gpus_with_kernels(export)
    if not seen or len(seen) >= ranks.count:
        return None
    shown = ", ".join(map(str, sorted(seen)))
    return (
        f"kernels of {len(seen)} of {ranks.count} GPUs only (GPU {shown}; {ranks.told_by}): "
        f"the others' shares are not known; {_FOLLOW}"
    )


def _used(db: sqlite3.Connection, table: str) -> list[tuple[int, int]]:
    """(process, CUDA ordinal) of every row; process 0 in a schema that does not tell it."""
    columns = _columns(db, table)
    if "deviceId" not in columns:
        return []
    process = "(globalPid >> 24) & 16777215" if "globalPid" in columns else "0"
    return db.execute(f"SELECT DISTINCT {process}, deviceId FROM {table}").fetchall()


def _known(db: sqlite3.Connection) -> dict[tuple[int, int], int]:
    if not {"gpuId", "cudaId", "pid"} <= _columns(db, _GPUS):
        return {}
    return {(pid, cuda): gpu for gpu, cuda, pid in db.execute(f"SELECT gpuId, cudaId, pid FROM {_GPUS}")}


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
