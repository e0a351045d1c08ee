"""An nsys SQLite export, of any schema from 2022 to 2026, as one `KernelTrace`.

One file is one trace: its rows carry device and process, so several ranks in one export stay apart. The trace's
samples are the file's GPU_METRICS. A file that recorded nothing of a device raises Unanswerable with the cause and
the remedy; one with only copies, samples or opaque graph launches is given, with the cause as its first warning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsv4bench.errors import Unanswerable
from dsv4bench.records.trace import DeviceSamples, Ints, KernelTrace, Launches, Small, Source
from dsv4bench.trace.nsys_activity import KERNEL, Activity, read_activity
from dsv4bench.trace.nsys_columns import Processes
from dsv4bench.trace.nsys_database import NsysDatabase
from dsv4bench.trace.nsys_devices import GPUS, Devices, devices_used, read_devices
from dsv4bench.trace.nsys_diagnosis import Finding, Seen, doubts, missing_kernels
from dsv4bench.trace.nsys_facts import read_diagnostics, read_facts
from dsv4bench.trace.nsys_file import is_nsys_sqlite, unpacked
from dsv4bench.trace.nsys_graphs import GraphTrace, lost_launches, read_graph_trace
from dsv4bench.trace.nsys_host import HostCalls, HostRanges, read_calls, read_ranges
from dsv4bench.trace.nsys_metrics import read_samples

__all__ = ["is_nsys_sqlite", "read_nsys_sqlite"]


def read_nsys_sqlite(path: Path, label: str | None = None, shown: str | None = None) -> list[KernelTrace]:
    """The one trace of an export (`.sqlite`, `.sqlite.gz`); `shown` is the name it goes by, its path by default.

    Raises Unanswerable where nothing of a device was recorded, SchemaError where the file is damaged or no export.
    """
    name = shown or str(path)
    with unpacked(path) as file, NsysDatabase(file, name) as db:
        parts = _read(db, label)
        findings = _findings(db, parts)
    return [_trace(parts, name, label, [*db.warnings, *map(str, findings)])]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything read from the file."""

    activity: Activity
    ranges: HostRanges
    calls: HostCalls
    graphs: GraphTrace
    samples: list[DeviceSamples]
    devices: Devices
    facts: dict[str, str]
    missing: list[str]
    processes: Processes
    launches: Launches
    pid: Ints
    correlation: Ints


def _read(db: NsysDatabase, label: str | None) -> _Parts:
    activity, ranges, calls, graphs = read_activity(db), read_ranges(db), read_calls(db), read_graph_trace(db)
    process = activity.take("process")
    processes = Processes(process, ranges.global_tid, calls.global_tid, graphs.process)
    launches = calls.launches(processes)
    pid = processes.of(process)
    missing = [*activity.missing, *ranges.missing, *calls.missing, *([] if db.has(GPUS) else [GPUS])]
    if f"{KERNEL}.globalPid" in missing:
        pid = _only_process(pid, launches)
    return _Parts(
        activity=activity,
        ranges=ranges,
        calls=calls,
        graphs=graphs,
        samples=read_samples(db, db.shown, label),
        devices=read_devices(db),
        facts=read_facts(db),
        missing=missing,
        processes=processes,
        launches=launches,
        pid=pid,
        correlation=activity.take("correlation"),
    )


def _only_process(pid: Ints, launches: Launches) -> Ints:
    """A schema without globalPid: the kernels belong to the one process that launched, where it is one."""
    launchers = np.unique(launches.pid)
    return np.full_like(pid, launchers[0]) if len(launchers) == 1 else pid


def _findings(db: NsysDatabase, parts: _Parts) -> list[Finding]:
    """What the file cannot tell; raises Unanswerable where that is everything."""
    said = read_diagnostics(db)
    seen = _seen(db, parts)
    cause = missing_kernels(seen, said)
    if cause and not (seen.moves or seen.graph_runs or seen.untimed_graphs or parts.samples):
        raise Unanswerable(f"{db.shown}: {cause.message}", cause.hint)
    return [*([cause] if cause else []), *doubts(seen, said)]


def _seen(db: NsysDatabase, parts: _Parts) -> Seen:
    graphs, calls = parts.graphs, parts.calls
    traced = parts.facts.get("traced", "")
    return Seen(
        kernels=parts.activity.kernels,
        moves=parts.activity.rows - parts.activity.kernels,
        graph_runs=len(graphs.start_ns),
        untimed_graphs=graphs.untimed,
        launches=calls.kernel_launches,
        graph_launches=int(np.count_nonzero(calls.is_graph)),
        lost_graph_launches=lost_launches(
            parts.launches,
            (parts.pid, parts.correlation),
            (parts.processes.of(graphs.process), graphs.correlation),
        ),
        runtime_calls=calls.all_calls,
        profiler_starts=calls.profiler_starts,
        samples=len(parts.samples),
        traced=frozenset(traced.split(",")) if traced else frozenset(),
        host_events=any(db.any_rows(table) for table in ("NVTX_EVENTS", "PROCESSES", "OSRT_API", "ThreadNames")),
    )


def _trace(parts: _Parts, name: str, label: str | None, warnings: list[str]) -> KernelTrace:
    activity, devices = parts.activity, parts.devices
    start = activity.take("start")
    order = None if np.all(start[1:] >= start[:-1]) else np.argsort(start, kind="stable")

    def wide(values: Ints) -> Ints:
        return values if order is None else values[order]

    def small(values: Small) -> Small:
        return values if order is None else values[order]

    pid = wide(parts.pid)
    device = devices.numbers(small(activity.take_small("device")), pid)
    runs = parts.graphs.runs(parts.processes)
    runs = replace(runs, device=devices.numbers(runs.device, runs.pid))
    samples = [replace(sample, device=devices.of_gpu(sample.device)) for sample in parts.samples]
    used = devices_used(device, runs.device, np.array([sample.device for sample in samples], np.int32))
    if devices.ambiguous:
        warnings = [*warnings, "one CUDA ordinal means several GPUs in this file: devices are numbered by GPU"]
    return KernelTrace(
        file=name,
        source=Source.NSYS,
        start_ns=wide(start),
        end_ns=wide(activity.take("end")),
        kind=activity.kind if order is None else activity.kind[order],
        device=device,
        stream=wide(activity.take("stream")),
        pid=pid,
        name=small(activity.take_small("name")),
        grid=small(activity.take_small("grid")),
        block=small(activity.take_small("block")),
        registers=small(activity.take_small("registers")),
        shared_bytes=small(activity.take_small("shared")),
        graph_id=wide(activity.take("graph_id")),
        graph_node_id=wide(activity.take("graph_node")),
        correlation=wide(parts.correlation),
        kernel_names=activity.names,
        spans=parts.ranges.spans(parts.processes),
        launches=parts.launches,
        graph_runs=runs,
        devices=devices.facts(used),
        label=label,
        facts=parts.facts,
        missing=parts.missing,
        warnings=[*warnings, *activity.warnings, *parts.ranges.warnings],
        samples=samples,
    )
