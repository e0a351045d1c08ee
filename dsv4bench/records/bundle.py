"""One experiment in one file, for someone who shall measure it again elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4bench.records.cell import Cell
from dsv4bench.records.codec import Document
from dsv4bench.records.experiment import Experiment


class Bundle(Document, frozen=True, kw_only=True):
    """`scenario` is a scenario file as `sweep --scenario` reads it (JSON is YAML); hosts and secrets are out."""

    schema: str = "dsv4bench.bundle/1"
    id: str
    created_utc: str
    reproduce: list[str]  # commands, in order
    scenario: dict[str, Any]
    command: list[str]  # what was typed
    versions: dict[str, str | None]
    experiment: Experiment
    cells: list[Cell]
    warnings: list[str] = msgspec.field(default_factory=list)
