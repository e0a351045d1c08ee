"""One configuration's experiments as one `Arm`.

One launch is one value of the server's process start time, also across experiments; where the server does not tell
it, each experiment is a launch of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Experiment, Status
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.facts import hardware_facts, server_facts, workload_facts


def arm_of(experiments: Sequence[ExperimentDir]) -> Arm:
    """One configuration from one or more of its experiments; the first one speaks for all."""
    head = experiments[0].experiment
    cells, notes, complete = [], [], True
    for e in experiments:
        cells += [_with_launch(c, e.experiment) for c in e.cells()]
        notes += [f"{e.id}: {warning}" for warning in e.warnings] + e.passed_over
        if e.experiment.status is not Status.COMPLETE:
            complete = False
            notes.append(f"{e.id} is {e.experiment.status}: {e.experiment.reason or 'no reason recorded'}")
    levers = [part.strip() for part in (head.lever or "").split("+") if part.strip()]
    return Arm(
        name=head.config,
        ids=[e.id for e in experiments],
        source=str(head.extra.get("imported_from", "dsv4bench")),
        parent=head.parent,
        levers=levers,
        touches=dict.fromkeys(levers, head.touches) if head.touches else {},
        lever_keys=dict.fromkeys(levers, head.lever_keys) if head.lever_keys else {},
        cells=cells,
        workload=workload_facts(head.workload, head.server),
        hardware=hardware_facts(head.machine) if head.server_on_this_host else None,
        server=server_facts(head.server),
        complete=complete,
        notes=notes,
    )


def _with_launch(c: Cell, e: Experiment) -> Cell:
    start = e.launches.get(c.launch)
    if start is None:
        return msgspec.structs.replace(c, launch=f"{e.id} {c.launch}")
    host = e.machine.hostname_sha256[:8] if e.machine is not None and e.server_on_this_host else "remote"
    return msgspec.structs.replace(c, launch=f"{e.server.url} on {host}, start {start:.2f}")
