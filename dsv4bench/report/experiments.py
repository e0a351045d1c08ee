"""Experiments as a list, and one experiment's header in a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.experiment import Experiment, IndexEntry
from dsv4bench.report.captures import activity_line


def experiments_table(entries: Sequence[IndexEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("id", "config", "status", "cells", "engine", "model"):
        table.add_column(head, no_wrap=True, justify="right" if head == "cells" else "left")
    for e in entries:
        table.add_row(*(Text(v) for v in (e.id, e.config, str(e.status), str(e.n_cells), e.engine, e.model)))
    return table


def header_lines(e: Experiment) -> list[str]:
    """Who was measured, with what, on what, and how it ended."""
    s, w = e.server, e.workload
    lever = f", lever {e.lever} on {e.parent or 'no parent named'}" if e.lever else ""
    ended = f" ({e.reason})" if e.reason else ""
    where = "on this host" if e.server_on_this_host else "on another host"
    isl = ",".join(map(str, w.isl))
    sent = f"{w.endpoint or 'endpoint not told'}, {w.dataset or 'dataset not told'}, ISL {isl}"
    told = "" if w.osl is None else f", OSL {w.osl}"
    seed = "" if w.seed is None else f", seed {w.seed}"
    return [
        f"{e.id}: {e.status}{ended}",
        f"config {e.config}{lever}; launches {len(e.launches)}",
        f"{s.engine} {s.version or ''} {where}, model {s.model}",
        f"{sent}{told}{seed}, workload {e.workload_fingerprint}",
        _measured_by(e),
    ]


def profiled_lines(breakdowns: Sequence[BreakdownDocument]) -> list[str]:
    """Which implementations ran at each profiled coordinate, by the names of the kernels; how busy its GPUs were."""
    found = []
    for b in breakdowns:
        where = f"C={b.concurrency}" + (f" ISL {b.isl}" if b.isl is not None else "")
        found += [f"profiled at {where}: {one.text}" for one in b.live if one.moe or one.attention]
        found += [f"sampled at {where}: {activity_line(c.activity)}" for c in b.captures if c.activity is not None]
    return found


def _measured_by(e: Experiment) -> str:
    if e.machine is None:
        return f"imported from a {e.extra.get('imported_from')} file; dsv4bench {e.tool.version}"
    gpus = ", ".join(g.name for g in e.machine.gpus) or "no GPU here"
    return f"client {e.machine.cpu}, {e.machine.cores} cores, {gpus}; dsv4bench {e.tool.version}"
