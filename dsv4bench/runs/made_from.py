"""What a comparison was made from: the experiments of an arm, and the digest of what its cells tell.

Fields that a cell does not tell are outside the digest, so that a later version, which knows more fields, finds the
cells of an earlier one unchanged.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import InputNote


def input_note(arm: Arm) -> InputNote:
    """`cells_sha256`: the first 16 hexadecimal digits."""
    digest = hashlib.sha256(msgspec.json.encode([_told(c) for c in arm.cells], order="deterministic")).hexdigest()
    return InputNote(name=arm.name, source=arm.source, ids=arm.ids, cells_sha256=digest[:16])


def _told(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(cell).items() if value not in (None, [], {})}
