"""Which host call put a row on the device? Correlation ids, within the process that they are unique in.

All kernels of one graph launch share its id. A file of one process may leave the rows' process out; then the id alone
decides, and in a file of several processes it never does (an id is unique per process at most).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import KernelTrace, Kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def launch_of(trace: KernelTrace) -> Ints:
    """Row by row the index of its launch; -1 where the file does not tell (id 0 stands for none)."""
    calls, rows = _keys(trace)
    if len(calls) == 0:
        return np.full(len(trace), -1, dtype=np.int64)
    order = np.argsort(calls, kind="stable")
    calls = calls[order]
    at = np.minimum(np.searchsorted(calls, rows), len(calls) - 1)
    found: Ints = np.where((calls[at] == rows) & (trace.correlation != 0), order[at], -1)
    return found


def _keys(trace: KernelTrace) -> tuple[Ints, Ints]:
    """One number for (process, correlation) of each launch and each row."""
    launches = trace.launches
    if len(np.unique(launches.pid)) <= 1:
        return launches.correlation, trace.correlation
    ids, code = np.unique(np.concatenate([launches.correlation, trace.correlation]), return_inverse=True)
    _, pid = np.unique(np.concatenate([launches.pid, trace.pid]), return_inverse=True)
    key = pid.astype(np.int64) * len(ids) + code
    return key[: len(launches.pid)], key[len(launches.pid) :]


def from_graph(trace: KernelTrace) -> Bools:
    """Which kernels a CUDA-graph launch put there: by their graph ids, or by their launch."""
    found: Bools = (trace.graph_node_id != 0) | (trace.graph_id != 0)
    if trace.launches.is_graph.any():
        launch = launch_of(trace)
        found |= (launch >= 0) & trace.launches.is_graph[np.maximum(launch, 0)]
    found &= trace.kind == Kind.KERNEL
    return found
