"""What may be told of a capture: versions and options, by allow-list, and nsys' own diagnostics by pattern.

An export holds each process' whole environment and command line, and diagnostics quote paths; none of that is read
into a fact. A value is kept when its key is listed here and it looks like a version, a number or a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dsv4bench.trace.nsys_database import NsysDatabase

_EXPORT_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the second name until early 2023
_EXPORT_KEYS = {
    "EXPORT_SCHEMA_VERSION": "schema",
    "EXPORT_PRODUCT_VERSION": "nsys",
}
_CAPTURE_KEYS = {
    "CUDA_GRAPH_TRACE_OPTIONS:MODE": "cuda_graph_trace",
    "START_TRIGGER": "start_trigger",
    "STOP_TRIGGER": "stop_trigger",
    "TRACE_AFTER_FORK_BEFORE_EXEC": "trace_fork_before_exec",
    "GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY": "gpu_metrics_hz",
}
_EVENT_TYPE = "CAPTURE_EVENT_TYPE"
_SAFE = re.compile(r"[\w.+-]{1,40}")
_PROCESS = re.compile(r"^PROCESS_\d+:")


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What nsys said of its own capture, reduced to what is known to matter."""

    driver: str | None = None  # installed, and newer than this nsys supports
    supported: str | None = None  # the newest driver it knows
    no_cuda_events: bool = False
    not_started: bool = False
    injected: bool = False  # CUDA tracing came up in a process
    events_missing: bool = False
    buffers_left: bool = False
    other_subscriber: bool = False


def read_facts(db: NsysDatabase) -> dict[str, str]:
    facts: dict[str, str] = {}
    for table in _EXPORT_TABLES:
        for key, value in _pairs(db, table):
            if key in _EXPORT_KEYS and _SAFE.fullmatch(value):
                facts[_EXPORT_KEYS[key]] = value
    events = set()
    for key, value in _pairs(db, "META_DATA_CAPTURE"):
        plain = _PROCESS.sub("", key)
        if plain in _CAPTURE_KEYS and _SAFE.fullmatch(value):
            facts[_CAPTURE_KEYS[plain]] = value
        elif plain == _EVENT_TYPE and _SAFE.fullmatch(value):
            events.add(value)
    if events:
        facts["traced"] = ",".join(sorted(events))
    if "utcEpochNs" in db.columns("TARGET_INFO_SESSION_START_TIME"):
        for (start,) in db.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1"):
            if isinstance(start, int):
                facts["session_start_ns"] = str(start)
    return facts


def read_diagnostics(db: NsysDatabase) -> Diagnostics:
    said = "\n".join(_diagnostic_texts(db))
    driver = re.search(
        r"Installed CUDA driver version \(([\d.]{1,12})\) is not supported(?:.*?driver version ([\d.]{1,12}\d))?",
        said,
    )
    return Diagnostics(
        driver=driver.group(1) if driver else None,
        supported=driver.group(2) if driver else None,
        no_cuda_events="No CUDA events collected" in said,
        not_started="CUDA profiling might have not been started correctly" in said,
        injected="CUDA injection initialized successfully" in said,
        events_missing="Not all CUDA events might have been collected" in said,
        buffers_left="Some CUPTI events might be missing" in said,
        other_subscriber="CUPTI_ERROR_MULTIPLE_SUBSCRIBERS" in said or "another profiler" in said.lower(),
    )


def _diagnostic_texts(db: NsysDatabase) -> list[str]:
    if "text" not in db.columns("DIAGNOSTIC_EVENT"):
        return []
    return [text for (text,) in db.rows("SELECT text FROM DIAGNOSTIC_EVENT LIMIT 10000") if isinstance(text, str)]


def _pairs(db: NsysDatabase, table: str) -> list[tuple[str, str]]:
    if not {"name", "value"} <= set(db.columns(table)):
        return []
    found = db.rows(f"SELECT name, value FROM {table} LIMIT 100000")
    return [(name, str(value)) for name, value in found if isinstance(name, str) and value is not None]
