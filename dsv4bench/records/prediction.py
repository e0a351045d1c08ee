"""The prediction ledger, line by line: what a lever was expected to buy, and later what it bought.

A prediction is written before its configuration is measured and never changed; the measurement is a line of its own
that names it. Ratios are new over base: 1.45 is +45 %.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Prediction(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="prediction"):
    """`lever`, as configuration `config`, will change `metric` at this level by a factor from `low` to `high`."""

    id: str
    created_utc: str
    lever: str
    config: str
    parent: str | None
    metric: str
    concurrency: int
    low_ratio: float
    high_ratio: float
    basis: Literal["stated", "shares"]
    component: str | None = None
    share_frac: float | None = None
    share_of: str | None = None
    share_source: str | None = None
    kernel_speedup: float | None = None
    note: str = ""
    scenario: str | None = None  # of the campaign that it was written for; only that one's comparisons answer it


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="measured"):
    """What the comparison `verdict` found for the prediction of that id."""

    prediction: str
    filled_utc: str
    verdict: str
    versus: str
    ratio: float
    ci_ratio: tuple[float, float] | None
    grade: str | None
    hit: bool  # the measured ratio lies in the predicted interval
    note: str = ""  # what else must be known of it


LedgerLine = Prediction | Measured
