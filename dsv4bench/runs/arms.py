"""From what the user named to `Arm`s: ids, baselines, configuration names, scenario folders, files of any tool.

One launch is one value of the server's process start time, also across experiments; where the server does not tell
it, each experiment is a launch of its own. Pooling joins the complete experiments of one configuration that share
the workload's fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Experiment, Status
from dsv4bench.runs.campaign_data import is_campaign, load_campaign
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.facts import hardware_facts, server_facts, workload_facts
from dsv4bench.store.importing import read_results
from dsv4bench.store.store import Store

MAX_NAME = 1024


def load_arms(names: Sequence[str], root: str = "results", pool: bool = False) -> list[Arm]:
    """The arms in the order named, each name once. Raises BenchError naming what cannot be found or read."""
    store = Store(root)
    arms: list[Arm] = []
    files: list[Path] = []
    for name in names:
        if len(name) > MAX_NAME:
            raise UsageError(f"{name[:40]}…: no name is that long", "dsv4bench list shows what there is")
        path = Path(name)
        if path.is_file():
            files.append(path)
        elif is_campaign(path):
            arms += load_campaign(path).arms
        elif path.is_dir() and not (path / "run.json").exists():
            arms += read_results([path])
        else:
            found = store.resolve(name)
            arms.append(arm_of(_pooled(store, found) if pool else [found]))
    return _named_apart(arms + (read_results(files) if files else []))


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


def _pooled(store: Store, found: ExperimentDir) -> list[ExperimentDir]:
    """Every complete experiment of the same configuration and workload, oldest first."""
    head = found.experiment
    same = [
        store.open(entry.id)
        for entry in store.list()
        if (entry.config, entry.workload_fingerprint, entry.model, entry.status)
        == (head.config, head.workload_fingerprint, head.server.model, Status.COMPLETE)
    ]
    return same or [found]


def _named_apart(arms: list[Arm]) -> list[Arm]:
    """Two arms of one name get the ends of their ids added, so that every line of a table says which it is."""
    names = [a.name for a in arms]
    return [
        msgspec.structs.replace(a, name=f"{a.name} ({a.ids[0].rpartition('-')[2]})")
        if names.count(a.name) > 1 and a.ids
        else a
        for a in arms
    ]
