"""The ledger only grows; a torn line costs itself; the newest measurement counts."""

from __future__ import annotations

from pathlib import Path

from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.store import predictions


def prediction(name: str = "p1") -> Prediction:
    return Prediction(
        id=name,
        created_utc="2026-11-29T00:00:00.000Z",
        lever="mtp",
        config="B",
        parent="A",
        metric="output_tok_s",
        concurrency=16,
        low_ratio=1.1,
        high_ratio=1.3,
        basis="stated",
    )


def measured(ratio: float, verdict: str = "v1", of: str = "p1") -> Measured:
    return Measured(
        prediction=of,
        filled_utc="2026-11-30T00:00:00.000Z",
        verdict=verdict,
        versus="A",
        ratio=ratio,
        ci_ratio=None,
        grade="E0",
        hit=1.1 <= ratio <= 1.3,
    )


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    root = tmp_path / "results"
    assert predictions.read(root, []) == []
    written = [prediction("p1"), prediction("p2"), measured(1.2), measured(1.0, "v2")]
    for line in written:
        predictions.append(root, line)
    assert predictions.read(root, []) == written
    assert predictions.ledger(root, []) == [(written[0], written[3]), (written[1], None)]


def test_earlier_bytes_are_never_touched(tmp_path: Path) -> None:
    predictions.append(tmp_path, prediction())
    before = (tmp_path / predictions.NAME).read_bytes()
    predictions.append(tmp_path, measured(1.2))
    assert (tmp_path / predictions.NAME).read_bytes().startswith(before)


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    predictions.append(tmp_path, prediction())
    path = tmp_path / predictions.NAME
    path.write_bytes(path.read_bytes() + b'{"kind":"predic')
    warnings: list[str] = []
    assert predictions.read(tmp_path, warnings) == [prediction()]
    assert "torn" in warnings[0]
    predictions.append(tmp_path, measured(1.2))
    assert predictions.read(tmp_path, []) == [prediction(), measured(1.2)]
