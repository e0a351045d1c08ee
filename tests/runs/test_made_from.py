"""The digest of what a comparison was made from."""

from __future__ import annotations

import msgspec

from dsv4bench.compare.injection import sample_arm
from dsv4bench.records.cell import Cell
from dsv4bench.runs.made_from import input_note


def digest(cells: list[Cell]) -> str:
    return input_note(msgspec.structs.replace(sample_arm("a", seed=1), cells=cells)).cells_sha256


def test_every_figure_is_in_the_digest() -> None:
    cells = sample_arm("a", seed=1).cells
    before = digest(cells)
    assert len(before) == 16 and digest(list(cells)) == before and digest(cells[:-1]) != before
    assert digest([msgspec.structs.replace(cells[0], output_tok_s=1.0), *cells[1:]]) != before
    assert digest([msgspec.structs.replace(cells[0], full_load_tok_s=1.0), *cells[1:]]) != before


def test_a_field_that_a_later_version_adds_and_an_old_cell_does_not_tell_changes_nothing() -> None:
    class Later(Cell, frozen=True, kw_only=True):
        added_later: float | None = None
        notes_added_later: list[str] = msgspec.field(default_factory=list)

    cells = sample_arm("a", seed=1).cells
    later: list[Cell] = [msgspec.convert(msgspec.to_builtins(c), Later) for c in cells]
    assert digest(later) == digest(cells)
    assert digest([msgspec.structs.replace(later[0], added_later=1.0), *later[1:]]) != digest(cells)
