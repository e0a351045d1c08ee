"""Whose file is it? Decided by what it holds; then that tool's module reads it.

The order matters where one tool's keys are a part of another's: SGLang's and InferenceX's files look like vLLM's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsv4bench.errors import SchemaError
from dsv4bench.store import files
from dsv4bench.store.importing import (
    aiperf,
    guidellm,
    harness,
    inference_perf,
    inferencex,
    one_batch,
    sglang,
    vllm,
)
from dsv4bench.store.importing.documents import Record, documents
from dsv4bench.store.importing.level import ImportedFile, Level

EXPECTED = (
    "a result of vLLM bench serve or sweep, SGLang bench_serving or one_batch_server, AIPerf, GuideLLM v2, "
    "inference-perf, InferenceX, the sm_120 harness, or dsv4bench"
)
Read = Callable[[Record, str], list[Level]]
TOOLS: tuple[tuple[str, Callable[[Record], bool], Read], ...] = (
    (aiperf.TOOL, aiperf.is_mine, aiperf.read),
    (guidellm.TOOL, guidellm.is_mine, guidellm.read),
    (inference_perf.TOOL, inference_perf.is_mine, inference_perf.read),
    (inferencex.TOOL, inferencex.is_mine, inferencex.read),
    (one_batch.TOOL, one_batch.is_mine, one_batch.read),
    (sglang.TOOL, sglang.is_mine, sglang.read),
    (vllm.TOOL, vllm.is_mine, vllm.read),
    (harness.TOOL, harness.is_mine, harness.read),
)


def read_file(path: Path) -> ImportedFile:
    """One file of another tool.

    Raises SchemaError for a file of no known kind, Unanswerable for one whose numbers cannot be used.
    """
    return read_bytes(files.read_bytes(path), str(path))


def read_bytes(data: bytes, where: str) -> ImportedFile:
    found, notes = documents(data, where, EXPECTED)
    records = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    tool, read = _tool(records, where)
    return ImportedFile(
        path=where,
        tool=tool,
        sha256=hashlib.sha256(data).hexdigest(),
        levels=[level for record in records for level in read(record, where)],
        notes=notes,
    )


def _tool(records: list[Any], where: str) -> tuple[str, Read]:
    """The one tool that every record belongs to."""
    if not records:
        raise SchemaError(f"{where}: an empty list", f"expected {EXPECTED}")
    found: dict[str, Read] = {}
    for record in records:
        mine = [(tool, read) for tool, knows, read in TOOLS if isinstance(record, dict) and knows(record)]
        if not mine:
            raise SchemaError(f"{where}: {_unknown(record)}", f"expected {EXPECTED}")
        found[mine[0][0]] = mine[0][1]
    if len(found) > 1:
        raise SchemaError(
            f"{where}: holds records of {' and '.join(sorted(found))}", "give one tool's file at a time"
        )
    return next(iter(found.items()))


def _unknown(record: object) -> str:
    if not isinstance(record, dict):
        return "no result file that is known"
    if "metadata" in record and "metrics" in record:
        return "single requests of AIPerf; its profile_export_aiperf.json holds the levels"
    keys = ", ".join(repr(key)[:40] for key in list(record)[:4]) or "none"
    return f"no result file that is known (its keys: {keys})"
