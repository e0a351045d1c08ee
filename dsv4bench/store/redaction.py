"""Which parts of a record may carry a secret, and their clean copies.

Free text (errors, notes, commands, server arguments, environments, `extra`) goes through `host.redact`; measured
fields do not, for their names (`output_tokens`) look like secrets to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from dsv4bench.host.redact import hide_values, redact
from dsv4bench.records.cell import Cell
from dsv4bench.records.experiment import Experiment
from dsv4bench.records.request import RequestRecord
from dsv4bench.records.server import ServerInfo
from dsv4bench.store import files

BLOCK_BYTES = 1 << 20


def clean_experiment(experiment: Experiment) -> Experiment:
    """As it may be written: server, command, environment, extra and reason without secrets."""
    return msgspec.structs.replace(
        experiment,
        server=msgspec.convert(redact(msgspec.to_builtins(experiment.server)), ServerInfo),
        command=redact(experiment.command),
        environment=redact(experiment.environment),
        extra=redact(experiment.extra),
        reason=redact(experiment.reason),
    )


def clean_cell(cell: Cell) -> Cell:
    return msgspec.structs.replace(
        cell,
        errors={redact(name): count for name, count in cell.errors.items()},
        error_example=redact(cell.error_example),
        invalid_why=redact(cell.invalid_why),
        notes=[redact(note) for note in cell.notes],
        why_null={field: redact(why) for field, why in cell.why_null.items()},
        device=cell.device and msgspec.structs.replace(cell.device, notes=redact(cell.device.notes)),
    )


def clean_request(record: RequestRecord) -> RequestRecord:
    if record.error_text is None and record.error is None:
        return record  # nearly all of them
    return msgspec.structs.replace(record, error=redact(record.error), error_text=redact(record.error_text))


def clean_log(path: Path, known: Sequence[str] = ()) -> None:
    """Rewrite a log without secrets, by whole lines; a log without any is left untouched.

    `known`: values that are hidden wherever they stand. Raises StoreError, and leaves the log as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(3)}{files.TEMPORARY}")
    with files.failing_as("clean", path):
        try:
            changed = False
            with path.open("rb") as source, temporary.open("xb") as target:
                for block in _blocks(source):
                    clean = _clean_text(block, known)
                    changed = changed or clean != block
                    target.write(clean)
            if changed:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    """Pieces of about a megabyte that end where a line ends."""
    while block := source.read(BLOCK_BYTES):
        yield block + source.readline()


def _clean_text(block: bytes, known: Sequence[str]) -> bytes:
    text: Any = redact(hide_values(block.decode("utf-8", "surrogateescape"), known))
    return str(text).encode("utf-8", "surrogateescape")
