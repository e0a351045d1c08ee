"""Experiments as a list, and one experiment's header in a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.experiment import Experiment, IndexEntry


def experiments_table(entries: Sequence[IndexEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("id", "config", "status", "cells", "engine", "model"):
        table.add_column(head, no_wrap=True, justify="right" if head == "cells" else "left")
    for e in entries:
        table.add_row(*(Text(v) for v in (e.id, e.config, str(e.status), str(e.n_cells), e.engine, e.model)))
    return table


def header_lines(e: Experiment) -> list[str]:
    """Who was measured, with what, on what, and how it ended."""
    s, w, m = e.server, e.workload, e.machine
    lever = f", lever {e.lever} on {e.parent or 'no parent named'}" if e.lever else ""
    ended = f" ({e.reason})" if e.reason else ""
    gpus = ", ".join(g.name for g in m.gpus) or "no GPU here"
    host = "on this host" if e.server_on_this_host else "on another host"
    isl = ",".join(map(str, w.isl))
    return [
        f"{e.id}: {e.status}{ended}",
        f"config {e.config}{lever}; {s.engine} {s.version or ''} {host}, model {s.model}, {len(e.launches)} launch(es)",
        f"{w.endpoint}, dataset {w.dataset}, ISL {isl}, OSL {w.osl}, seed {w.seed}, workload {e.workload_fingerprint}",
        f"client {m.cpu}, {m.cores} cores, {gpus}; dsv4bench {e.tool.version}",
    ]
