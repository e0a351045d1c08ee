"""dsv4bench's own files: cells.jsonl, what `sweep --json` prints, and an experiment's folder.

Beside a run.json the configuration's name and the facts come from there; cells alone carry neither.
"""

from __future__ import annotations

from pathlib import Path

from dsv4bench.errors import Unanswerable
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell, CellsDocument
from dsv4bench.records.codec import decode
from dsv4bench.records.experiment import Experiment, Status
from dsv4bench.store import files, lines
from dsv4bench.store.experiment import RUN, ExperimentDir
from dsv4bench.store.facts import hardware_facts, server_facts, workload_facts

TOOL = "dsv4bench"
HEAD_BYTES = 4096


def is_mine(path: Path) -> bool:
    """By the beginning of the file: a schema id of ours, or a cell's own fields."""
    with files.failing_as("read", path), path.open("rb") as f:
        head = f.read(HEAD_BYTES)
    return b'"dsv4bench.' in head or (b'"token_source"' in head and b'"launch"' in head)


def read_arm(path: Path) -> Arm:
    """One arm a file or folder. Raises SchemaError for another document of ours, Unanswerable without cells."""
    folder = path if path.is_dir() else path.parent
    if (folder / RUN).exists() and (path.is_dir() or path.name in (RUN, "cells.jsonl")):
        return _of_experiment(ExperimentDir.open(folder))
    data = files.read_bytes(path)
    notes: list[str] = []
    if b'"dsv4bench.' in data[:HEAD_BYTES]:
        document = decode(data, CellsDocument, str(path))
        cells, notes, name = document.cells, list(document.notes), document.id or path.stem
    else:
        cells, name = lines.parse(data, Cell, str(path), notes), path.stem
    return _checked(Arm(name=name, ids=[path.name], source=TOOL, cells=cells, notes=notes), path)


def _of_experiment(found: ExperimentDir) -> Arm:
    e: Experiment = found.experiment
    notes = [] if e.status is Status.COMPLETE else [f"{e.id} is {e.status}: {e.reason or 'no reason recorded'}"]
    arm = Arm(
        name=e.config,
        ids=[e.id],
        source=str(e.extra.get("imported_from", TOOL)),
        parent=e.parent,
        levers=[part.strip() for part in (e.lever or "").split("+") if part.strip()],
        cells=found.cells(),
        workload=workload_facts(e.workload, e.server),
        hardware=hardware_facts(e.machine) if e.server_on_this_host else None,
        server=server_facts(e.server),
        complete=e.status is Status.COMPLETE,
        notes=notes + found.warnings,
    )
    return _checked(arm, found.path)


def _checked(arm: Arm, path: Path) -> Arm:
    if not any(c.n_ok for c in arm.cells):
        why = "no successful requests" if arm.cells else "no cells"
        raise Unanswerable(f"{path}: {why}", "measure again")
    return arm
