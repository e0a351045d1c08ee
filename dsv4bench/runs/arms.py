"""From what the user named to `Arm`s: ids, baselines, names, campaigns, scenario folders, files of any tool.

Pooling joins the complete experiments of one configuration that share the workload's fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.experiment import Status
from dsv4bench.runs.campaign_arms import load_campaign_run
from dsv4bench.runs.campaign_data import is_campaign, load_campaign
from dsv4bench.runs.experiment_arm import arm_of
from dsv4bench.store import campaigns
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.importing import read_results
from dsv4bench.store.store import Store

__all__ = ["arm_of", "load_arms"]

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
        elif (run := campaigns.find(root, name)) is not None:
            arms += load_campaign_run(run).arms
        elif path.is_dir() and not (path / "run.json").exists():
            arms += read_results([path])
        else:
            found = store.resolve(name)
            arms.append(arm_of(_pooled(store, found) if pool else [found]))
    return _named_apart(arms + (read_results(files) if files else []))


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
