"""What the host did, in an nsys export: NVTX ranges, and the calls that put work on a device.

A range is eventType 59 (push/pop) or 60 (start/end) with both ends; marks, categories and domain creations (75) are
none. Its name is `text`, else the string that `textId` names. Ranges of library domains (NCCL, CUB, …) are left out:
their names are not the program's, and read as iterations they are phantoms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsv4bench.errors import SchemaError
from dsv4bench.records.trace import Ints, Launches, Small, Spans
from dsv4bench.trace.nsys_columns import Column, Intervals, Processes, thread_ids
from dsv4bench.trace.nsys_database import NsysDatabase
from dsv4bench.trace.nsys_strings import TABLE, strings

NVTX = "NVTX_EVENTS"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"

_DOMAIN_CREATED = 75
_LIBRARIES = re.compile(r"(?i)(nccl|cub|cccl|thrust|cu(blas|dnn|sparse|solver|fft|rand)\w*|nvshmem)\b")
_LAUNCH = re.compile(
    r"(cuda(Launch|LaunchKernel\w*|LaunchCooperativeKernel\w*|GraphLaunch|Memcpy\w*|Memset\w*)"
    r"|cu(Launch|LaunchKernel\w*|LaunchCooperativeKernel\w*|GraphLaunch|Memcpy\w*|Memset\w*))(_ptsz|_ptds)?(_v\d+)?"
)


@dataclass(frozen=True, slots=True)
class HostRanges:
    """NVTX ranges with the file's packed thread ids."""

    start_ns: Ints
    end_ns: Ints
    global_tid: Ints
    name: Small
    names: list[str]
    missing: list[str]
    warnings: list[str]

    def spans(self, processes: Processes) -> Spans:
        return Spans(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            name=self.name,
            pid=processes.of(self.global_tid),
            tid=thread_ids(self.global_tid),
            on_device=np.zeros(len(self.start_ns), np.bool_),
            names=self.names,
        )


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Launches, copies and memsets as the host called them, with the file's packed thread ids."""

    start_ns: Ints
    end_ns: Ints
    global_tid: Ints
    correlation: Ints
    is_graph: npt.NDArray[np.bool_]
    kernel_launches: int  # graph launches among them
    profiler_starts: int
    all_calls: int
    missing: list[str]

    def launches(self, processes: Processes) -> Launches:
        return Launches(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            pid=processes.of(self.global_tid),
            tid=thread_ids(self.global_tid),
            correlation=self.correlation,
            is_graph=self.is_graph,
        )


def read_ranges(db: NsysDatabase) -> HostRanges:
    """The program's NVTX ranges, in order of their start."""
    typed = "eventType IN (59, 60)" if "eventType" in db.columns(NVTX) else "1"
    closed = f'{typed} AND "end" >= "start"'  # in SQL, so that the texts keep step with the numbers
    intervals = Intervals(db, NVTX, ("globalTid", "textId", "domainId"), closed)
    rows = intervals.gather()
    names, number = _range_names(db, rows[:, 3], closed)
    kept = ~np.isin(rows[:, 4], _library_domains(db))
    order = np.argsort(rows[kept, 0], kind="stable")
    start, end, tid = (rows[kept, column][order] for column in range(3))
    left_open = db.number(f'SELECT count(*) FROM {NVTX} WHERE {typed} AND "end" IS NULL') if db.has(NVTX) else 0
    return HostRanges(
        start_ns=start,
        end_ns=end,
        global_tid=tid,
        name=number[kept][order],
        names=names,
        missing=[name for name in intervals.missing if not name.endswith(("textId", "domainId"))],
        warnings=[f"{left_open} NVTX ranges are open at the end of the capture: left out"] if left_open else [],
    )


def read_calls(db: NsysDatabase) -> HostCalls:
    """The launches, in order of their start."""
    names = _call_names(db) if "nameId" in db.columns(RUNTIME) else {}
    launching = [key for key, name in names.items() if _LAUNCH.fullmatch(name)]
    intervals = Intervals(db, RUNTIME, ("globalTid", "correlationId", "nameId"))
    all_calls = db.number(f"SELECT count(*) FROM {RUNTIME}") if db.has(RUNTIME) else 0
    columns = [Column(all_calls) for _ in range(5)]
    count = 0
    for block in intervals:
        kept = np.isin(block[:, 4], launching)
        rows = slice(count, count + int(np.count_nonzero(kept)))
        if rows.stop > all_calls:
            raise SchemaError(
                f"{RUNTIME} has more rows than it counts", "the export is damaged: export the report again"
            )
        count = rows.stop
        for column, values in zip(columns, block.T, strict=True):
            column.put(rows, values if kept.all() else values[kept])
    start, end, tid, correlation, name = (column.take(count) for column in columns)
    is_graph = np.isin(name, [key for key in launching if "GraphLaunch" in names[key]])
    kernel_launches = int(np.isin(name, [key for key in launching if "Launch" in names[key]]).sum())
    del columns, name
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end, tid, correlation, is_graph = (c[order] for c in (start, end, tid, correlation, is_graph))
    starting = [key for key, text in names.items() if "ProfilerStart" in text]
    return HostCalls(
        start_ns=start,
        end_ns=end,
        global_tid=tid,
        correlation=correlation,
        is_graph=is_graph,
        kernel_launches=kernel_launches,
        profiler_starts=db.number(f"SELECT count(*) FROM {RUNTIME} WHERE {_among(starting)}") if starting else 0,
        all_calls=all_calls,
        missing=intervals.missing,
    )


def _among(ids: list[int]) -> str:
    return f"nameId IN ({', '.join(map(str, ids))})" if ids else "0"


def _call_names(db: NsysDatabase) -> dict[int, str]:
    """CUDA calls by their string's id; the length keeps whole environments out, which lie in the same table."""
    if not {"id", "value"} <= set(db.columns(TABLE)):
        return {}
    found = db.rows(f"SELECT id, value FROM {TABLE} WHERE value >= 'cu' AND value < 'cv' AND length(value) < 80")
    return {key: name for key, name in found if isinstance(key, int) and isinstance(name, str)}


def _range_names(db: NsysDatabase, text_ids: Ints, where: str) -> tuple[list[str], Small]:
    """Distinct names, and each row's number among them."""
    ids = text_ids.tolist()
    known = strings(db, ids)
    index: dict[str, int] = {}
    texts = db.texts(f"SELECT text FROM {NVTX} NOT INDEXED WHERE {where}") if "text" in db.columns(NVTX) else iter(())
    number = np.empty(len(ids), np.int32)
    for row, text_id in enumerate(ids):
        text = next(texts, None)
        name = text if isinstance(text, str) else known.get(text_id, "")
        number[row] = index.setdefault(name, len(index))
    return list(index), number


def _library_domains(db: NsysDatabase) -> list[int]:
    present = set(db.columns(NVTX))
    if not {"eventType", "domainId"} <= present:
        return []
    text = "text" if "text" in present else "NULL"
    text_id = "textId" if "textId" in present else "NULL"
    created = f"SELECT domainId, {text}, {text_id} FROM {NVTX} WHERE eventType = {_DOMAIN_CREATED}"
    rows = db.rows(created)
    known = strings(db, (row[2] for row in rows if isinstance(row[2], int)))
    libraries = []
    for domain, name, name_id in rows:
        name = name if isinstance(name, str) else known.get(name_id, "") if isinstance(name_id, int) else ""
        if isinstance(domain, int) and domain != 0 and _LIBRARIES.match(name):
            libraries.append(domain)
    return libraries
