"""`dsv4bench findings`: stored comparisons and the ledger into PROFILE_FINDINGS.md, people's prose kept.

Of each set of configurations that was compared, the newest comparison counts, unless ids are named. `check` changes
nothing and says what in the file is not what the data give.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import SchemaError, StoreError, UsageError
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.report import findings, markers
from dsv4bench.report.experiments import header_lines
from dsv4bench.store import predictions, verdict_files
from dsv4bench.store.files import write_whole
from dsv4bench.store.store import Store

FILE = "PROFILE_FINDINGS.md"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the file, or with `check` what is wrong with it."""

    path: str
    verdicts: list[str]
    changed: bool
    problems: list[str] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


def write_findings(root: str, file: str = FILE, names: Sequence[str] = ()) -> Outcome:
    """Create or renew the file. Raises UsageError for a block edited by hand, StoreError for no comparison."""
    data, warnings = gather(root, names)
    blocks = findings.blocks(data)
    path = Path(file)
    before = _text(path) if path.exists() else None
    after = markers.merge(findings.new_file(blocks) if before is None else before, blocks, file)
    if after != before:
        write_whole(path, after.encode())
    ids = [d.id or "" for d in data.documents]
    return Outcome(path=file, verdicts=ids, changed=after != before, warnings=warnings)


def check_findings(root: str, file: str = FILE, names: Sequence[str] = ()) -> Outcome:
    """What in the file was edited, is stale, missing or strange. Raises UsageError when there is no such file."""
    path = Path(file)
    if not path.exists():
        raise UsageError(f"{file}: there is no such file to check", "dsv4bench findings writes it")
    data, warnings = gather(root, names)
    found = [p.text for p in markers.problems(_text(path), findings.blocks(data), file)]
    ids = [d.id or "" for d in data.documents]
    return Outcome(path=file, verdicts=ids, changed=False, problems=found, warnings=warnings)


def gather(root: str, names: Sequence[str]) -> tuple[findings.Findings, list[str]]:
    """What the blocks are rendered from, and warnings: what cannot be read is left out and named.

    Raises StoreError when nothing was compared.
    """
    warnings: list[str] = []
    if names:
        documents = [verdict_files.find(root, n) for n in names]
    else:
        newest = {_subject(d): d for d in verdict_files.read_all(root, warnings) if d.error is None}
        documents = sorted(newest.values(), key=lambda d: (d.created_utc or "", d.id or ""), reverse=True)
    if not documents:
        raise StoreError(
            f"{root}: no comparison is stored there", "dsv4bench compare baseline configB, then findings again"
        )
    ledger = predictions.ledger(root, warnings)
    setups: dict[str, list[str]] = {}
    readable = []
    for d in documents:
        try:
            setups[d.id or ""] = _setup(root, d)
        except SchemaError as e:
            warnings.append(f"comparison {d.id} is left out: {e.message}")
        else:
            readable.append(d)
    if not readable:
        raise StoreError(f"{root}: no comparison can be shown: {warnings[-1]}", "compare those that are whole anew")
    documents = readable
    return findings.Findings(documents=documents, ledger=ledger, setups=setups), warnings


def _subject(d: VerdictDocument) -> tuple[str, ...]:
    """Configurations of one name in two campaigns are not the same ones."""
    return d.campaign or "", *sorted(f"{i.source}/{i.name}" for i in d.inputs)


def _setup(root: str, d: VerdictDocument) -> list[str]:
    """The headers of the experiments compared; one that is not here is said to be missing."""
    store, lines = Store(root), list[str]()
    for note in d.inputs:
        for experiment_id in note.ids if note.source == "dsv4bench" else []:
            try:
                lines += header_lines(store.open(experiment_id).experiment)
            except StoreError:
                lines.append(f"{experiment_id}: not in {root}")
    return list(dict.fromkeys(lines))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name the findings file with --file") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})", "is it the findings file?") from e
