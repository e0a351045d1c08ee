"""Whole CUDA-graph launches whose kernels the export does not show (`--cuda-graph-trace=graph`, nsys' default).

One row of GRAPH_TRACE is one launch. A row whose start and end are 0 is one that CUPTI could not time: left out, and
counted. `lost_launches` counts graph launches of the host that no row of the device answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsv4bench.records.trace import GraphRuns, Ints, Launches, Small
from dsv4bench.trace.nsys_columns import Intervals, Processes, narrow
from dsv4bench.trace.nsys_database import NsysDatabase

GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


@dataclass(frozen=True, slots=True)
class GraphTrace:
    """GRAPH_TRACE with the file's packed process ids."""

    start_ns: Ints
    end_ns: Ints
    device: Small
    process: Ints
    correlation: Ints
    graph_id: Ints
    untimed: int

    def runs(self, processes: Processes) -> GraphRuns:
        return GraphRuns(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            device=self.device,
            pid=processes.of(self.process),
            graph_id=self.graph_id,
        )


def read_graph_trace(db: NsysDatabase) -> GraphTrace:
    wanted = ("deviceId", "globalPid", "correlationId", "graphId")
    intervals = Intervals(db, GRAPH_TRACE, wanted)
    rows = intervals.gather()
    timed = (rows[:, 0] != 0) | (rows[:, 1] != 0)
    untimed = int(np.count_nonzero(~timed)) + intervals.left_out
    rows = rows[timed]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    device = narrow(rows[:, 2], f"{GRAPH_TRACE}.deviceId")
    return GraphTrace(rows[:, 0], rows[:, 1], device, rows[:, 3], rows[:, 4], rows[:, 5], untimed)


def lost_launches(launches: Launches, *answered: tuple[Ints, Ints]) -> int:
    """Graph launches that no device row answers; `answered` are pids and correlations of such rows."""
    lost = 0
    for pid in np.unique(launches.pid[launches.is_graph]).tolist():
        called = launches.correlation[launches.is_graph & (launches.pid == pid)]
        seen = [correlation[pids == pid] for pids, correlation in answered]
        lost += int(np.count_nonzero(~np.isin(called, np.concatenate(seen))))
    return lost
