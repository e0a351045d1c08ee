"""Recognised files to arms: the files of one configuration joined, their levels put side by side.

Files belong together when they are of one tool, model, data set and endpoint, lie in one folder, and bear one name
(a label in the file, else the path without its level and repeat). Several levels with the same load are repeats. They
count as repeats of one launch unless the files tell a restart of the server: a date does not, for a server may run
for days, and taking repeats for launches would claim more than the data carry. A record is counted once, however
often it is given. ISLs within 2 % share a coordinate; `isl_mean` keeps the exact figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell
from dsv4bench.store import files
from dsv4bench.store.contents import CELLS
from dsv4bench.store.experiment import RUN
from dsv4bench.store.importing import inference_perf, own
from dsv4bench.store.importing.level import ImportedFile, Level
from dsv4bench.store.importing.naming import path_name
from dsv4bench.store.importing.recognise import EXPECTED, read_file

SAME_ISL = 0.02
ONE_LAUNCH = "the files do not tell when the server was started: repeats are taken as one launch"


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """One level, where it came from, and which configuration it belongs to."""

    level: Level
    file: ImportedFile
    key: tuple[str, ...]
    name: str
    order: tuple[int, str]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """An arm and the files it was made from, name to SHA-256; `place` is the first one's folder and name."""

    arm: Arm
    files: dict[str, str]
    place: str


def read_results(paths: Sequence[Path]) -> list[Arm]:
    """One arm a configuration, in the order first named. A folder stands for the result files in it.

    Raises SchemaError for an unknown file, Unanswerable where no request succeeded, StoreError.
    """
    return [i.arm for i in read_imported(paths)]


def read_imported(paths: Sequence[Path]) -> list[Imported]:
    """As `read_results`, with the files."""
    arms: dict[tuple[str, ...], Imported | None] = {}
    found: list[_Found] = []
    for path in paths:
        for item in _items(path):
            if isinstance(item, Arm):
                arms[own.TOOL, *item.ids, item.name] = Imported(arm=item, files=_hashes(path), place=_place_of(path))
                continue
            here = _found(item)
            found += here
            arms |= {f.key: arms.get(f.key) for f in here}
    groups: dict[tuple[str, ...], list[_Found]] = {}
    for f in found:
        groups.setdefault(f.key, []).append(f)
    isl = _coordinates(f.level for f in found)
    return _named_apart([arm or _imported(groups[key], isl) for key, arm in arms.items()])


def _items(path: Path) -> list[ImportedFile | Arm]:
    """What a path holds; in a folder, files of other kinds lie beside the results and are passed over."""
    if not path.is_dir() or (path / RUN).exists():
        return [_read(path)]
    found: list[ImportedFile | Arm] = []
    for file in sorted(p for p in path.rglob("*") if p.suffix in (".json", ".jsonl") and p.is_file()):
        try:
            found.append(_read(file))
        except SchemaError:
            continue
    if not found:
        raise SchemaError(f"{path}: no result file in this folder", f"expected {EXPECTED}")
    return found


def _read(path: Path) -> ImportedFile | Arm:
    if path.is_dir() or own.is_mine(path):
        return own.read_arm(path)
    read = read_file(path)
    if not any(level.cell.n_ok or level.asked_isl for level in read.levels):
        raise Unanswerable(f"{path}: no successful requests", "look into the server's log, then measure again")
    if any(not level.cell.concurrency and not level.cell.rate_req_s for level in read.levels):
        raise Unanswerable(f"{path}: a level without a concurrency or a rate", "the file may be damaged")
    return read


def _found(file: ImportedFile) -> list[_Found]:
    levels = _without_twins(file.levels)
    datasets = {level.workload.get("dataset") for level in levels}
    loads = {_load(level.cell) for level in levels}
    return [_place(file, level, len(datasets) > 1, len(loads) > 1) for level in levels]


def _place(file: ImportedFile, level: Level, datasets: bool, loads: bool) -> _Found:
    """`datasets`, `loads`: the file holds several."""
    path = Path(file.path)
    told = path_name(path, None if loads else level.cell)
    name, where = told.name, told.key
    if level.label is not None:
        name, where = level.label, f"{path.absolute().parent.as_posix()}/{level.label}"
    if datasets:
        name = f"{name} {level.workload.get('dataset') or 'other'}"
    facts = tuple(f"{k}={level.workload.get(k)}" for k in ("model", "tokenizer", "dataset", "endpoint"))
    run = level.run if level.run is not None else told.repeat
    order = (run if run is not None else -1, level.cell.started_utc)
    return _Found(level=level, file=file, key=(file.tool, where, *facts), name=name, order=order)


def _without_twins(levels: Iterable[Level]) -> list[Level]:
    return list({level.digest: level for level in levels}.values())


def _coordinates(levels: Iterable[Level]) -> dict[float, int]:
    """ISL as the file has it -> the coordinate that it shares with all others within 2 %."""
    values = sorted({v for level in levels if (v := _isl(level)) is not None})
    found: dict[float, int] = {}
    group: list[float] = []
    for value in [*values, float("inf")]:
        if group and value > group[0] * (1 + SAME_ISL):
            found |= dict.fromkeys(group, round(sum(group) / len(group)))
            group = []
        group.append(value)
    return found


def _isl(level: Level) -> float | None:
    return level.cell.isl_mean if level.cell.isl_mean is not None else level.asked_isl


def _arm(found: Sequence[_Found], isl: dict[float, int]) -> Arm:
    first = found[0].level
    given = list({f.file.path: f.file for f in found}.values())
    notes = [note for file in given for note in file.notes]
    distinct = list({f.level.digest: f for f in found}.values())
    if len(distinct) < len(found):
        notes.append("the same run was given more than once; it is counted once")
    stages = [f for f in distinct if not inference_perf.is_summary(f.level)]
    if stages and len(stages) < len(distinct):
        distinct = stages
        notes.append("the summary of the stages is left out: its requests are those of the stages")
    cells = _cells(distinct, isl)
    notes += _launch_notes(cells, distinct)
    for f in distinct:
        notes += [note for note in f.level.notes if note not in notes and not note.startswith("command: ")]
    commands = [note for f in distinct for note in f.level.notes if note.startswith("command: ")]
    return Arm(
        name=found[0].name,
        ids=[Path(file.path).name for file in given],
        source=found[0].file.tool,
        cells=cells,
        workload=first.workload,
        hardware=_common(f.level.hardware for f in distinct),
        server=_common(f.level.server for f in distinct),
        complete=all(f.level.complete for f in distinct),
        notes=notes + commands[:1],
    )


def _cells(found: Sequence[_Found], isl: dict[float, int]) -> list[Cell]:
    """Every level with its coordinates, its launch and its number among the repeats."""
    launches = {k: f"L{i}" for i, k in enumerate(dict.fromkeys(f.level.launch_key for f in found))}
    usual = next((isl[v] for f in found if (v := _isl(f.level)) is not None), 0)
    seen: dict[tuple[object, ...], int] = {}
    cells = []
    for f in sorted(found, key=lambda f: (_load(f.level.cell), f.order)):
        c, launch = f.level.cell, launches[f.level.launch_key]
        own_isl = _isl(f.level)
        at = usual if own_isl is None else isl[own_isl]
        where = (launch, c.concurrency, c.rate_req_s, at)
        repeat = seen[where] = seen.get(where, -1) + 1
        load = f"c{c.concurrency}" if c.concurrency is not None else f"q{c.rate_req_s:g}"
        name = f"r{repeat}-{load}-i{at}" if len(launches) == 1 else f"{launch}-r{repeat}-{load}-i{at}"
        cells.append(msgspec.structs.replace(c, cell=name, launch=launch, repeat=repeat, isl=at))
    return cells


def _load(c: Cell) -> tuple[float, float]:
    return (c.concurrency or 0, c.rate_req_s or 0.0)


def _launch_notes(cells: Sequence[Cell], found: Sequence[_Found]) -> list[str]:
    told = any(f.level.launch_key is not None for f in found)
    return [ONE_LAUNCH] if max((c.repeat for c in cells), default=0) and not told else []


def _common(facts: Iterable[dict[str, Plain] | None]) -> dict[str, Plain] | None:
    """The facts on which every level agrees; None where one does not tell."""
    several = list(facts)
    if not several or any(f is None for f in several):
        return None
    first, *others = [f for f in several if f is not None]
    return {k: v for k, v in first.items() if all(k in o and o[k] == v for o in others)}


def _named_apart(found: Sequence[Imported]) -> list[Imported]:
    """Configurations of one name get folder and file added, and a number where even those are equal."""
    names = [i.arm.name for i in found]
    names = [n if names.count(n) == 1 else f"{n} ({i.place})" for n, i in zip(names, found, strict=True)]
    names = [n if names.count(n) == 1 else f"{n} #{names[:at].count(n) + 1}" for at, n in enumerate(names)]
    return [
        msgspec.structs.replace(i, arm=msgspec.structs.replace(i.arm, name=n))
        for n, i in zip(names, found, strict=True)
    ]


def _imported(found: Sequence[_Found], isl: dict[float, int]) -> Imported:
    hashes = {Path(f.file.path).name: f.file.sha256 for f in found}
    return Imported(arm=_arm(found, isl), files=hashes, place=_place_of(Path(found[0].file.path)))


def _place_of(path: Path) -> str:
    return f"{path.absolute().parent.name}/{path.name}"


def _hashes(path: Path) -> dict[str, str]:
    file = path / CELLS if path.is_dir() else path
    return {file.name: files.note(file).sha256} if file.exists() else {}
