"""The results folder: create, list and find experiments.

What a name selects: an id or the only id that begins with it, else a pinned baseline, else the newest complete
experiment of that config name. Nothing here overwrites an experiment, and only `create`, `resume`, `reindex` and
`check_writable` write.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dsv4bench.errors import BenchError, StoreError, UsageError
from dsv4bench.records.experiment import Experiment, IndexEntry, Machine, Status, Tool
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.store import baselines, files, index
from dsv4bench.store.experiment import RUN, ExperimentDir
from dsv4bench.store.lock import held
from dsv4bench.store.naming import experiment_id, iso, utc_now

# named here, for inside the class `list` is its method
Entries = list[IndexEntry]
Names = list[str]

PROBE_BYTES = 1 << 16
MIN_PREFIX = 4
LIST = "dsv4bench list shows what there is"


class Store:
    """`results/`, or the folder given with --out. `warnings` holds what `list` had to leave out."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.warnings: Names = []

    def check_writable(self) -> None:
        """Make the folder if need be and write to it, before anything is measured. Raises StoreError."""
        with files.failing_as("create", self.root):
            if self.root.exists() and not self.root.is_dir():
                raise StoreError(f"cannot write results: {self.root} is not a directory", "choose another --out")
            self.root.mkdir(parents=True, exist_ok=True)
        probe = self.root / f".probe.{os.getpid()}{files.TEMPORARY}"
        files.write_whole(probe, b"\0" * PROBE_BYTES)
        with files.failing_as("delete", probe):
            probe.unlink(missing_ok=True)

    def check_there(self) -> None:
        """Raises StoreError where there is no such folder; an empty one is fine."""
        if not self.root.is_dir():
            what = "a file" if self.root.exists() else "not there"
            raise StoreError(
                f"{self.root} is {what}: no results folder", "dsv4bench sweep makes one; --out names another"
            )

    def create(
        self,
        *,
        scenario: str,
        config: str,
        workload: Workload,
        plan: Plan,
        server: ServerInfo,
        machine: Machine | None,
        server_on_this_host: bool,
        tool: Tool,
        parent: str | None = None,
        lever: str | None = None,
        lever_keys: Sequence[str] = (),
        touches: Sequence[str] = (),
        launches: Mapping[str, float | None] | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        extra: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> ExperimentDir:
        """A new experiment, running, locked and on disk; close or finish it. Raises StoreError."""
        moment = now or utc_now()
        self.check_writable()
        experiment = Experiment(
            id=self._free_id(moment, scenario, config),
            scenario=scenario,
            config=config,
            parent=parent,
            lever=lever,
            lever_keys=list(lever_keys),
            touches=list(touches),
            status=Status.RUNNING,
            started_utc=iso(moment),
            workload=workload,
            workload_fingerprint=workload.fingerprint(),
            plan=plan,
            server=server,
            launches=dict(launches or {}),
            machine=machine,
            server_on_this_host=server_on_this_host,
            tool=tool,
            environment=dict(environment or {}),
            command=list(command),
            extra=dict(extra or {}),
        )
        return ExperimentDir.begin(self.root / experiment.id, experiment)

    def open(self, experiment_id: str) -> ExperimentDir:
        """For reading. Raises StoreError when there is no such id, SchemaError when it cannot be read."""
        if experiment_id not in self._ids():
            raise StoreError(f"{self.root}: no experiment {experiment_id}", self._nearest(experiment_id))
        return ExperimentDir.open(self.root / experiment_id)

    def resume(self, experiment_id: str) -> ExperimentDir:
        """For going on. Raises StoreError when another process is writing there."""
        return ExperimentDir.resume(self.open(experiment_id).path)

    def list(self) -> Entries:
        """Every experiment that can be read, oldest first, from the index and from the folders it does not know."""
        known = index.read(self.root)
        written_ns = index.written_ns(self.root)
        self.warnings = []
        entries = []
        for name in self._ids():
            path = self.root / name
            entry = known.get(name)
            if entry is None or entry.status is Status.RUNNING or _changed_ns(path) >= written_ns:
                entry = self._read_entry(path)
            if entry is not None:
                entries.append(entry)
        return sorted(entries, key=lambda e: (e.started_utc, e.id))

    def reindex(self) -> Entries:
        """Write the index anew from the folders. Raises StoreError."""
        self.warnings = []
        entries = [e for e in (self._read_entry(self.root / name) for name in self._ids()) if e is not None]
        entries.sort(key=lambda e: (e.started_utc, e.id))
        index.rewrite(self.root, entries)
        return entries

    def resolve(self, name: str) -> ExperimentDir:
        """The experiment that a name, an id or an experiment's folder selects.

        Raises UsageError for an ambiguous prefix, StoreError when nothing is found.
        """
        if "/" in name and (Path(name) / RUN).is_file():
            return ExperimentDir.open(Path(name))
        ids = self._ids()
        if name in ids:
            return self.open(name)
        begins = [i for i in ids if len(name) >= MIN_PREFIX and i.startswith(name)]
        if len(begins) == 1:
            return self.open(begins[0])
        pinned = baselines.read(self.root).get(name)
        if pinned is not None:
            return self._open_pinned(name, pinned)
        of_config = [e for e in self.list() if e.config == name]
        complete = [e for e in of_config if e.status is Status.COMPLETE]
        if complete:
            found = self.open(complete[-1].id)
            found.passed_over = [
                f"{e.id} is newer and {e.status}: not used" for e in of_config[of_config.index(complete[-1]) + 1 :]
            ] + [w for w in self.warnings if name in w]
            return found
        if of_config:
            newest = of_config[-1]
            raise StoreError(
                f"{name}: no complete experiment of this config (newest: {newest.id}, {newest.status})",
                "finish it with dsv4bench sweep --resume, or name it by its id",
            )
        if begins:
            raise UsageError(f"{name} begins {len(begins)} ids: {', '.join(begins[:5])}", "give more of the id")
        raise StoreError(f"{self.root}: nothing is called {name}", self._nearest(name))

    def find_resumable(
        self, config: str, scenario: str, workload_fingerprint: str, plan: Plan
    ) -> ExperimentDir | None:
        """The newest unfinished one of the same config, scenario, workload and plan; StoreError while written."""
        for entry in reversed(self.list()):
            wanted = (entry.config, entry.scenario, entry.workload_fingerprint)
            if wanted != (config, scenario, workload_fingerprint) or entry.status is Status.COMPLETE:
                continue
            found = self.open(entry.id)
            if found.experiment.plan == plan:
                if held(found.path):
                    raise StoreError(
                        f"{found.id} is being written by another process",
                        "wait for it, or measure under another --name",
                    )
                return found
        return None

    def _ids(self) -> Names:
        """Folders with a run.json; other folders (campaigns, kernels, verdicts) are not ours to judge."""
        if not self.root.exists():
            return []
        with files.failing_as("read", self.root):
            return sorted(p.parent.name for p in self.root.glob(f"*/{RUN}"))

    def _free_id(self, moment: datetime, scenario: str, config: str) -> str:
        while True:
            name = experiment_id(moment, scenario, config)
            if not (self.root / name).exists():
                return name

    def _read_entry(self, path: Path) -> IndexEntry | None:
        """Of one folder; a folder that cannot be read is left out, and said to be."""
        try:
            return ExperimentDir.open(path).entry()
        except BenchError as e:
            self.warnings.append(f"left out: {e.message}")
            return None

    def _open_pinned(self, name: str, pinned: str) -> ExperimentDir:
        if pinned not in self._ids():
            raise StoreError(
                f"{self.root / baselines.NAME}: {name} is pinned to {pinned}, which is not in {self.root}",
                self._nearest(pinned),
            )
        return self.open(pinned)

    def _nearest(self, name: str) -> str:
        """What the user may have meant."""
        entries = self.list()
        names = [*{e.config for e in entries}, *(e.id for e in entries), *baselines.read(self.root)]
        close = difflib.get_close_matches(name, sorted(set(names)), n=3, cutoff=0.5)
        if close:
            return f"did you mean {' or '.join(close)}? {LIST}"
        return LIST if entries else f"{self.root} holds no experiment yet; dsv4bench sweep makes one"


def _changed_ns(path: Path) -> int:
    try:
        return (path / RUN).stat().st_mtime_ns
    except OSError:
        return 0
