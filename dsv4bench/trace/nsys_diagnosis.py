"""Why an nsys export shows no kernels, or fewer than ran: one cause in a line, one remedy in a line.

A capture without kernels is the usual failure, and nsys says why only sometimes and only in DIAGNOSTIC_EVENT. The
causes are tried from the most specific to the least. `missing_kernels` gives the cause for a file without a kernel;
`doubts` gives what makes a file with kernels less than the whole truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsv4bench.trace.nsys_facts import Diagnostics

_CAPTURE = (
    "nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none --trace-fork-before-exec=true --cuda-graph-trace=node"
    " SERVER COMMAND"
)


class Cause(StrEnum):
    GRAPH_LEVEL = "graph-level tracing"
    DRIVER_NEWER = "driver newer than nsys"
    NOT_TRACED = "CUDA not traced"
    CLIENT_CAPTURE = "client-side capture"
    LOST_KERNELS = "launches without kernels"
    NO_LAUNCHES = "CUDA calls without launches"
    NOT_STARTED = "profiling not started"
    WRONG_PROCESS = "wrong process"
    MOVES_ONLY = "copies and memsets only"
    SAMPLES_ONLY = "GPU metrics only"
    EMPTY = "empty export"
    LOST_GRAPHS = "graph launches without a device row"
    UNTIMED_GRAPHS = "graph launches without a time"
    EVENTS_MISSING = "events missing"


@dataclass(frozen=True, slots=True)
class Finding:
    cause: Cause
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a file holds, in counts."""

    kernels: int
    moves: int  # copies and memsets
    graph_runs: int
    untimed_graphs: int
    launches: int  # kernel and graph launches of the host
    graph_launches: int
    lost_graph_launches: int
    runtime_calls: int
    profiler_starts: int  # cudaProfilerStart calls
    samples: int  # devices with GPU metrics
    traced: frozenset[str]  # the capture's event types; empty where the file does not tell
    host_events: bool  # anything of the host at all


def missing_kernels(seen: Seen, said: Diagnostics) -> Finding | None:
    """The cause why no kernel is shown; None where there are kernels."""
    if seen.kernels:
        return None
    if seen.graph_runs or seen.untimed_graphs:
        return _graph_level(seen)
    if said.driver:
        known = f", which knows drivers up to CUDA {said.supported}" if said.supported else ""
        return Finding(
            Cause.DRIVER_NEWER,
            f"no kernel was recorded: the CUDA driver ({said.driver}) is newer than this nsys{known}",
            "record again with an nsys at least as new as the driver (`nsys --version`, `nvidia-smi`)",
        )
    if seen.traced and "Cuda" not in seen.traced:
        return Finding(
            Cause.NOT_TRACED,
            "no kernel was recorded: CUDA was not among the traced events",
            f"record with {_CAPTURE}",
        )
    return _by_calls(seen) or _without_calls(seen, said)


def _by_calls(seen: Seen) -> Finding | None:
    """Causes that the host's own CUDA calls tell."""
    if seen.launches:
        return Finding(
            Cause.LOST_KERNELS,
            f"{seen.launches} kernel launches were recorded on the host and no kernel on a device",
            "let the process end, or stop with `nsys stop`, so that the buffers are flushed; use an nsys at least as"
            " new as the driver; run no second profiler (torch, Proton) in the process",
        )
    if seen.profiler_starts:
        return Finding(
            Cause.CLIENT_CAPTURE,
            "no kernel was recorded: the process that called cudaProfilerStart launched nothing",
            "the server's own process must start the range: use its /start_profile (SGLang activities CUDA_PROFILER,"
            ' vLLM --profiler-config \'{"profiler":"cuda"}\'), not cudaProfilerStart in the client',
        )
    if seen.moves:
        return Finding(
            Cause.MOVES_ONLY,
            f"the only device activity is {seen.moves} copies or memsets: no kernel ran inside the capture",
            "record while requests decode: start the load first, then the capture",
        )
    if seen.runtime_calls:
        return Finding(
            Cause.NO_LAUNCHES,
            f"{seen.runtime_calls} CUDA calls were recorded and none of them launches a kernel",
            "record while requests decode, and for longer; follow the workers with --trace-fork-before-exec=true",
        )
    return None


def _without_calls(seen: Seen, said: Diagnostics) -> Finding:
    """Causes of a file without one CUDA call."""
    if seen.samples:
        return Finding(
            Cause.SAMPLES_ONLY,
            "the file holds GPU metrics and no kernel",
            "give it beside a trace with kernels, or record both: -t cuda,nvtx --gpu-metrics-devices=all",
        )
    if said.not_started:
        return Finding(
            Cause.NOT_STARTED,
            "no kernel was recorded: CUDA tracing never started in the traced processes",
            f"the process made no CUDA call inside the capture, or could not load nsys' injection: {_CAPTURE}",
        )
    if said.no_cuda_events or seen.host_events:
        return Finding(
            Cause.WRONG_PROCESS,
            "no kernel was recorded: the traced processes made no CUDA call",
            f"trace the process that launches kernels, and its children: {_CAPTURE}",
        )
    return Finding(Cause.EMPTY, "the export holds no event at all", f"record again: {_CAPTURE}")


def doubts(seen: Seen, said: Diagnostics) -> list[Finding]:
    """What is missing beside the kernels that are there."""
    found = []
    if seen.kernels and (seen.graph_runs or seen.untimed_graphs):
        found.append(_graph_level(seen))
    if seen.untimed_graphs:
        found.append(
            Finding(
                Cause.UNTIMED_GRAPHS,
                f"{seen.untimed_graphs} graph launches have no time",
                "their time is in no figure; record with --cuda-graph-trace=node",
            )
        )
    if seen.lost_graph_launches * 10 > seen.graph_launches:
        found.append(
            Finding(
                Cause.LOST_GRAPHS,
                f"{seen.lost_graph_launches} of {seen.graph_launches} graph launches have no row on a device",
                "the time of their kernels reads as idle here; record with --cuda-graph-trace=node",
            )
        )
    if seen.kernels and said.driver:
        found.append(
            Finding(
                Cause.DRIVER_NEWER,
                f"the CUDA driver ({said.driver}) is newer than this nsys: kernels may be missing",
                "record again with an nsys at least as new as the driver",
            )
        )
    if seen.kernels and said.buffers_left:
        found.append(
            Finding(
                Cause.EVENTS_MISSING,
                "nsys says that CUPTI buffers were not all returned: kernels may be missing at the end",
                "let the process run until it ends, or end the capture with `nsys stop`",
            )
        )
    return found


def _graph_level(seen: Seen) -> Finding:
    return Finding(
        Cause.GRAPH_LEVEL,
        f"{seen.graph_runs + seen.untimed_graphs} CUDA-graph launches are opaque: their kernels were not recorded",
        "record with --cuda-graph-trace=node to see the kernels inside them",
    )
