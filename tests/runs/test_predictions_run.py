"""Predict, measure, fill: the interval by Amdahl, and what may and may not answer a prediction."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from campaign_samples import FOLDER

from dsv4bench.errors import StoreError, Unanswerable, UsageError
from dsv4bench.records.prediction import Prediction
from dsv4bench.records.verdict import (
    CellVerdict,
    Grade,
    InputNote,
    LeverStatus,
    LeverVerdict,
    Verdict,
    VerdictDocument,
)
from dsv4bench.runs.predictions import FromShares, as_shown, fill, predict, read_ledger

BEFORE = datetime(2026, 11, 29, 12, tzinfo=UTC)
SHARES = FromShares(path=FOLDER / "kernels.json", component="moe", kernel_speedup=5.0)


def stated(root: Path, **fields: Any) -> Prediction:
    known: dict[str, Any] = {"low": 1.1, "high": 1.3, "parent": "A", "now": BEFORE}
    return predict(str(root), "mtp", "B", 16, **{**known, **fields})


def document(delta: float = 0.2, start: str = "20261129T130000Z", **lever: Any) -> VerdictDocument:
    known: dict[str, Any] = {
        "config": "B",
        "parent": "A",
        "levers": ["mtp"],
        "bundled": False,
        "status": LeverStatus.VERIFIED,
    }
    cell = CellVerdict(
        metric="output_tok_s",
        concurrency=16,
        isl=1024,
        config="B",
        versus="parent",
        versus_name="A",
        base=20.0,
        new=20.0 * (1 + delta),
        delta_frac=delta,
        ci_frac=(delta - 0.01, delta + 0.01),
        verdict=Verdict.GAIN,
        grade=Grade.E2,
    )
    return VerdictDocument(
        id="20261129T140000Z-A-vs-B-1f3a",
        inputs=[InputNote(name="B", source="dsv4bench", ids=[f"{start}-c16-B-0a0b"], cells_sha256="ab")],
        cells=[cell],
        levers=[LeverVerdict(**{**known, **lever})],
    )


def test_a_stated_prediction_is_filled_by_what_came_after(tmp_path: Path) -> None:
    made = stated(tmp_path)
    assert read_ledger(str(tmp_path)) == ([(made, None)], [])
    (filled,) = fill(str(tmp_path), document(0.2))
    assert filled.prediction == made.id and filled.hit and filled.versus == "A"
    assert filled.ratio == pytest.approx(1.2) and filled.ci_ratio == pytest.approx((1.19, 1.21))
    assert fill(str(tmp_path), document(0.2)) == []  # the same comparison fills once
    again = msgspec.structs.replace(document(0.9), id="other-vs-one-0001")
    assert [m.hit for m in fill(str(tmp_path), again)] == [False]
    assert read_ledger(str(tmp_path))[0][0][1].ratio == pytest.approx(1.9)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "answer",
    [
        document(start="20261129T110000Z"),  # measured before
        document(start="campaign_2026/B"),  # when, is not known
        document(levers=["mtp", "nccl_ll"], bundled=True),
        document(levers=["eagle"]),
        document(status=LeverStatus.CONTRADICTED),
        msgspec.structs.replace(document(), levers=[]),
        msgspec.structs.replace(document(), cells=[]),
    ],
)
def test_what_answers_no_prediction(tmp_path: Path, answer: VerdictDocument) -> None:
    stated(tmp_path)
    assert fill(str(tmp_path), answer) == []


def test_levers_predicted_together_are_answered_together(tmp_path: Path) -> None:
    made = predict(str(tmp_path), "mtp+nccl_ll", "B", 16, low=1.1, high=1.3, parent="A", now=BEFORE)
    assert fill(str(tmp_path), document(levers=["mtp"])) == []
    assert fill(str(tmp_path), document(levers=["mtp", "nccl_ll", "eagle"], bundled=True)) == []
    (filled,) = fill(str(tmp_path), document(0.2, levers=["nccl_ll", "mtp"], bundled=True))
    assert filled.prediction == made.id and filled.hit and filled.ratio == pytest.approx(1.2)
    assert filled.note == "bundled: of all its levers together"
    assert read_ledger(str(tmp_path))[0][0][1] == filled


def test_what_the_newest_line_says_already_is_not_written_again(tmp_path: Path) -> None:
    stated(tmp_path)
    (first,) = fill(str(tmp_path), document(0.2123456789))  # a file keeps six digits
    again = msgspec.structs.replace(document(0.2123456789), id="other-vs-one-0001")
    assert fill(str(tmp_path), again) == []
    (changed,) = fill(str(tmp_path), msgspec.structs.replace(document(0.25), id="other-vs-one-0002"))
    (back,) = fill(str(tmp_path), again)
    assert (first.ratio, changed.ratio, back.ratio) == pytest.approx((1.2123456789, 1.25, 1.2123456789))


def test_a_measurement_is_shown_under_the_comparison_that_says_just_the_same(tmp_path: Path) -> None:
    stated(tmp_path)
    fill(str(tmp_path), document(0.2123456789))
    ledger, _ = read_ledger(str(tmp_path))
    same = msgspec.structs.replace(document(0.2123456789), id="other-vs-one-0001")
    other = msgspec.structs.replace(document(0.25), id="other-vs-one-0002")
    ((_, under),) = as_shown(ledger, [other, same])
    assert under is not None and under.verdict == same.id and under.filled_utc == ledger[0][1].filled_utc  # type: ignore[union-attr]
    assert as_shown(ledger, [other]) == ledger and as_shown(ledger, [same, document(0.2123456789)]) == ledger


def test_an_unstored_comparison_fills_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="without an id"):
        fill(str(tmp_path), msgspec.structs.replace(document(), id=None))


def test_from_shares_by_amdahl(tmp_path: Path) -> None:
    made = predict(str(tmp_path), "grouped-moe", "C", 16, shares=SHARES, now=BEFORE)
    bound = 1 / (1 - 0.39 + 0.39 / 5)
    assert made.high_ratio == pytest.approx(bound * 1.03) and made.low_ratio == pytest.approx(1 + (bound - 1) / 2)
    assert (made.basis, made.component, made.share_frac, made.share_of) == ("shares", "moe", 0.39, "unknown")
    slower = msgspec.structs.replace(SHARES, kernel_speedup=0.5)
    lost = predict(str(tmp_path), "slow-moe", "D", 16, shares=slower, now=BEFORE)
    assert lost.low_ratio < 1 / 1.39 < lost.high_ratio < 1


def test_a_share_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match="no share of moe for baseline at C=8"):
        predict(str(tmp_path), "grouped-moe", "C", 8, shares=SHARES)
    with pytest.raises(UsageError, match="No such file"):
        predict(str(tmp_path), "x", "C", 8, shares=msgspec.structs.replace(SHARES, path=tmp_path / "none.json"))
    assert read_ledger(str(tmp_path)) == ([], [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"low": None}, "needs an interval"),
        ({"low": 1.5}, "--speedup-low 1.5"),
        ({"low": 0.0}, "--speedup-low 0.0"),
        ({"high": float("inf")}, "inf"),
        ({"metric": "speed"}, "metric speed"),
    ],
)
def test_a_prediction_without_sense(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        stated(tmp_path, **fields)
    assert read_ledger(str(tmp_path)) == ([], [])


def test_what_was_measured_already_is_no_prediction(tmp_path: Path) -> None:
    from store_samples import make_cell, make_experiment

    experiment = make_experiment(tmp_path, config="B")
    experiment.append_cell(make_cell("r0-c16-i1024", concurrency=16))
    experiment.finish()
    with pytest.raises(UsageError, match="B was measured at C=16 already"):
        stated(tmp_path)
    assert predict(str(tmp_path), "mtp", "B", 32, low=1.0, high=1.1).concurrency == 32
