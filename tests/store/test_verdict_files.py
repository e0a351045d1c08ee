"""Stored comparisons: written once, found by what a person remembers of an id, never overwritten."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.codec import encode
from dsv4bench.records.gate import GateDocument
from dsv4bench.records.verdict import InputNote, VerdictDocument
from dsv4bench.store import verdict_files

NOW = datetime(2026, 11, 29, 23, 15, tzinfo=UTC)


def document(*notes: str) -> VerdictDocument:
    inputs = [InputNote(name=n, source="dsv4bench", ids=[], cells_sha256="ab") for n in ("baseline", "A/x", "B")]
    return VerdictDocument(baseline="baseline", inputs=inputs, notes=list(notes))


def test_written_and_read_again(tmp_path: Path) -> None:
    stored = verdict_files.write(tmp_path, document("n"), NOW)
    assert stored.id is not None and stored.id.startswith("20261129T231500Z-baseline-vs-A-x-B-")
    assert verdict_files.read(tmp_path, stored.id) == stored
    assert verdict_files.find(tmp_path, stored.id[:20]) == stored
    assert verdict_files.find(tmp_path, stored.id[-4:]) == stored
    assert verdict_files.write(tmp_path, document("n"), NOW) == stored
    assert len(list((tmp_path / "verdicts").iterdir())) == 1


def test_another_content_never_overwrites(tmp_path: Path) -> None:
    first = verdict_files.write(tmp_path, document("n"), NOW)
    path = tmp_path / "verdicts" / f"{first.id}.json"
    path.write_bytes(encode(msgspec.structs.replace(first, notes=["by hand"])))
    second = verdict_files.write(tmp_path, document("n"), NOW)
    assert second.id != first.id and second.notes == ["n"]
    assert verdict_files.read(tmp_path, first.id or "").notes == ["by hand"]


def test_what_is_not_there_or_not_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such verdict"):
        verdict_files.find(tmp_path, "abcd")
    verdict_files.write(tmp_path, document("n"), NOW)
    verdict_files.write(tmp_path, document("m"), NOW)
    with pytest.raises(UsageError, match="fits 2 verdicts"):
        verdict_files.find(tmp_path, "20261129")


def test_all_of_them_without_gates_and_damage(tmp_path: Path) -> None:
    later = verdict_files.write(tmp_path, document("later"), NOW.replace(year=2027))
    first = verdict_files.write(tmp_path, document("first"), NOW)
    folder = tmp_path / "verdicts"
    (folder / "gate.json").write_bytes(encode(GateDocument()))
    (folder / "torn.json").write_bytes(b'{"schema": "dsv4be')
    (folder / "newer.json").write_bytes(b'{"schema": "dsv4bench.verdict/2"}')
    warnings: list[str] = []
    assert verdict_files.read_all(tmp_path, warnings) == [first, later]
    assert len(warnings) == 2 and all(w.startswith("left out: ") for w in warnings)
    assert verdict_files.read_all(tmp_path / "nowhere", []) == []


def test_the_same_said_again_is_found_whatever_else_was_stored_between(tmp_path: Path) -> None:
    assert verdict_files.stored_alike(tmp_path, document("n")) is None
    first = verdict_files.write(tmp_path, document("n"), NOW)
    other = msgspec.structs.replace(document("x"), baseline="B")
    verdict_files.write(tmp_path, other, NOW.replace(minute=20))
    of_a_campaign = msgspec.structs.replace(document("n"), campaign="levers")
    verdict_files.write(tmp_path, of_a_campaign, NOW.replace(minute=25))
    assert verdict_files.stored_alike(tmp_path, document("n")) == first
    assert verdict_files.stored_alike(tmp_path, document("m")) is None
    newer = verdict_files.write(tmp_path, document("m"), NOW.replace(minute=30))
    assert verdict_files.stored_alike(tmp_path, document("m")) == newer
    assert verdict_files.stored_alike(tmp_path, document("n")) is None  # the newest says something else
    (tmp_path / "verdicts" / f"{newer.id}.json").write_text("{")
    assert verdict_files.stored_alike(tmp_path, document("n")) == first  # what cannot be read is passed over
