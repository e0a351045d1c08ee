"""`dsv4bench findings`: stored comparisons and the ledger into PROFILE_FINDINGS.md, people's prose kept.

Of each campaign its own comparison counts, of each set of configurations on one GPU the newest, unless ids are named.
`check` changes nothing and says what in the file is not what the data give.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import SchemaError, StoreError, UsageError
from dsv4bench.report import markers
from dsv4bench.report.findings import sections
from dsv4bench.report.findings.data import Compared, Findings
from dsv4bench.runs.findings_behind import behind
from dsv4bench.runs.findings_choice import newest
from dsv4bench.runs.predictions import as_shown
from dsv4bench.store import predictions, verdict_files
from dsv4bench.store.files import write_whole

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
    blocks = sections.blocks(data)
    path = Path(file)
    before = _text(path) if path.exists() else None
    after = markers.merge(sections.new_file(blocks) if before is None else before, blocks, file)
    if after != before:
        write_whole(path, after.encode())
    ids = [_id(c) for c in data.compared]
    return Outcome(path=file, verdicts=ids, changed=after != before, warnings=warnings)


def check_findings(root: str, file: str = FILE, names: Sequence[str] = ()) -> Outcome:
    """What in the file was edited, is stale, missing or strange. Raises UsageError when there is no such file."""
    path = Path(file)
    if not path.exists():
        raise UsageError(f"{file}: there is no such file to check", "dsv4bench findings writes it")
    data, warnings = gather(root, names)
    found = [p.text for p in markers.problems(_text(path), sections.blocks(data), file)]
    ids = [_id(c) for c in data.compared]
    return Outcome(path=file, verdicts=ids, changed=False, problems=found, warnings=warnings)


def gather(root: str, names: Sequence[str]) -> tuple[Findings, list[str]]:
    """What the blocks are rendered from, and warnings: what cannot be read is left out and named.

    Raises StoreError when nothing was compared.
    """
    warnings: list[str] = []
    if names:
        documents = [verdict_files.find(root, n) for n in names]
    else:
        documents = newest(root, verdict_files.read_all(root, warnings))
    if not documents:
        raise StoreError(
            f"{root}: no comparison is stored there", "dsv4bench compare baseline configB, then findings again"
        )
    ledger = predictions.ledger(root, warnings)
    found = []
    for d in documents:
        try:
            found.append(behind(root, d, warnings))
        except SchemaError as e:
            warnings.append(f"comparison {d.id} is left out: {e.message}")
    if not found:
        raise StoreError(f"{root}: no comparison can be shown: {warnings[-1]}", "compare those that are whole anew")
    ledger = as_shown(ledger, [c.document for c in found])
    return Findings(compared=found, ledger=ledger), list(dict.fromkeys(warnings))


def _id(c: Compared) -> str:
    return c.document.id or ""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name the findings file with --file") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})", "is it the findings file?") from e
