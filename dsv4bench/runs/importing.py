"""Other tools' result files into the store: one experiment a configuration.

What the file does not tell stays None; the machine that sent the requests is unknown, so no hardware is recorded for
it. `extra` keeps where each number came from: the tool, the files with their SHA-256, and what was said about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.host.tool import tool
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell
from dsv4bench.records.codec import Document
from dsv4bench.records.experiment import Status
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.records.workload import Endpoint, Plan, Workload
from dsv4bench.store.importing import Imported, read_imported
from dsv4bench.store.store import Store

SCENARIO = "imported"
NOT_TOLD = "not told"


class StoredImport(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration as it now lies in the results folder."""

    id: str
    path: str
    config: str
    tool: str
    files: dict[str, str]
    notes: list[str]
    cells: list[Cell]


class ImportDocument(Document, frozen=True, kw_only=True):
    """What `dsv4bench import --json` prints."""

    schema: str = "dsv4bench.imported/1"
    experiments: list[StoredImport]


def import_files(paths: Sequence[str], out: str, name: str | None = None) -> list[StoredImport]:
    """Read everything first, then store. Raises BenchError; then nothing was stored."""
    found = read_imported([Path(p) for p in paths])
    if name is not None and len(found) > 1:
        names = ", ".join(i.arm.name for i in found)
        raise UsageError(
            f"--name {name}: the files hold {len(found)} configurations ({names})", "import one at a time"
        )
    store = Store(out)
    return [_store(store, i, name or i.arm.name) for i in found]


def _store(store: Store, imported: Imported, name: str) -> StoredImport:
    arm = imported.arm
    experiment = store.create(
        scenario=SCENARIO,
        config=name,
        parent=arm.parent,
        lever="+".join(arm.levers) or None,
        workload=_workload(arm),
        plan=_plan(arm.cells),
        server=_server(arm),
        machine=None,
        server_on_this_host=False,
        tool=tool(),
        launches=dict.fromkeys((c.launch for c in arm.cells), None),
        extra={
            "imported_from": arm.source,
            "files": imported.files,
            "workload": arm.workload,
            "hardware": arm.hardware,
            "notes": arm.notes,
        },
    )
    with experiment:
        for cell in arm.cells:
            experiment.append_cell(cell)
        if arm.complete:
            experiment.finish(Status.COMPLETE)
        else:
            experiment.finish(Status.ABORTED, "the file says that the run did not complete")
    return StoredImport(
        id=experiment.id,
        path=str(experiment.path),
        config=name,
        tool=arm.source,
        files=imported.files,
        notes=arm.notes,
        cells=experiment.cells(),
    )


def _workload(arm: Arm) -> Workload:
    told = arm.workload
    heat, ignore = told.get("temperature"), told.get("ignore_eos")
    return Workload(
        endpoint=_endpoint(told.get("endpoint")),
        dataset=_text(told.get("dataset")),
        prompt_kind=None,
        isl=sorted({c.isl for c in arm.cells}),
        osl=None,
        seed=None,
        prefix_share=None,
        temperature=float(heat) if isinstance(heat, int | float) else None,
        ignore_eos=ignore if isinstance(ignore, bool) else None,
    )


def _endpoint(word: Plain) -> Endpoint | None:
    if word == "chat":
        return "chat"
    return "completions" if word == "completions" else None


def _plan(cells: Sequence[Cell]) -> Plan:
    """The levels as they were measured."""
    return Plan(
        concurrency=sorted({c.concurrency for c in cells if c.concurrency is not None}),
        isl=sorted({c.isl for c in cells}),
        repeat=max(c.repeat for c in cells) + 1,
        rates_req_s=sorted({c.rate_req_s for c in cells if c.rate_req_s is not None}),
        warmup=False,
    )


def _server(arm: Arm) -> ServerInfo:
    told = dict(arm.server or {})
    engine, version = told.pop("engine", None), told.pop("version", None)
    return ServerInfo(
        url="",
        engine=Engine(engine) if engine in set(Engine) else Engine.GENERIC,
        version=_text(version),
        model=_text(arm.workload.get("model")) or NOT_TOLD,
        tokenizer=_text(arm.workload.get("tokenizer")),
        args=told or None,
    )


def _text(value: Plain) -> str | None:
    return value if isinstance(value, str) else None
