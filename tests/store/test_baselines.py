"""Pinning a baseline: one entry changes, the rest of the file stays as somebody wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.store import baselines
from dsv4bench.store.baselines import Pin, pin, pins

NOW = "2026-12-01T00:00:00Z"
BY_HAND = """# chosen by the team
main: {id: A, reason: tuned}   # do not move lightly

nightly: B
"""


def text(root: Path) -> str:
    return (root / baselines.NAME).read_text()


def test_the_first_pin_makes_the_file(tmp_path: Path) -> None:
    new = pin(tmp_path, "main", "A", "first  tuned\nlaunch", NOW)
    assert new == Pin(id="A", reason="first tuned launch", set_utc=NOW)
    assert pins(tmp_path) == {"main": new}
    assert baselines.read(tmp_path) == {"main": "A"}


def test_a_moved_pin_says_what_it_was_before(tmp_path: Path) -> None:
    pin(tmp_path, "main", "A", "one", NOW)
    assert pin(tmp_path, "main", "B", "two", NOW).before == "A"
    assert pins(tmp_path)["main"].id == "B"
    assert len(pins(tmp_path)) == 1


def test_comments_and_other_entries_stay(tmp_path: Path) -> None:
    (tmp_path / baselines.NAME).write_text(BY_HAND)
    pin(tmp_path, "nightly", "C", "new: driver #2", NOW)
    pin(tmp_path, "weekly", "D", "'quoted' \"text\"", NOW)
    assert text(tmp_path).startswith(BY_HAND.split("nightly")[0])
    found = pins(tmp_path)
    assert list(found) == ["main", "nightly", "weekly"]
    assert found["main"] == Pin(id="A", reason="tuned")
    assert found["nightly"] == Pin(id="C", reason="new: driver #2", set_utc=NOW, before="B")
    assert found["weekly"].reason == "'quoted' \"text\""


@pytest.mark.parametrize(
    "before", ["{main: A, nightly: B}\n", '"main": A\n? nightly\n: B\n', "main:\n  id: A\nnightly: B"]
)
def test_other_forms_of_the_file_keep_their_entries(tmp_path: Path, before: str) -> None:
    (tmp_path / baselines.NAME).write_text(before)
    pin(tmp_path, "main", "C", "why", NOW)
    assert baselines.read(tmp_path) == {"main": "C", "nightly": "B"}


@pytest.mark.parametrize("broken", ["main: [", "- a\n- b\n", "main: 1\n", "main: {reason: x}\n", "main:\n"])
def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path, broken: str) -> None:
    (tmp_path / baselines.NAME).write_text(broken)
    with pytest.raises(StoreError, match=r"baselines\.yaml"):
        pin(tmp_path, "nightly", "A", "why", NOW)
    assert text(tmp_path) == broken


@pytest.mark.parametrize("name", ["", "1", "0.97", "-x", "a b", "a:b", "../a"])
def test_a_name_must_be_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a baseline"):
        pin(tmp_path, name, "A", "why", NOW)


def test_a_pin_needs_a_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        pin(tmp_path, "main", "A", "  ", NOW)
    assert not (tmp_path / baselines.NAME).exists()
