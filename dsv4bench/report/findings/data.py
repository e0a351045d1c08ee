"""What findings are rendered from: stored comparisons, and what is stored of the experiments that they compare.

A comparison alone says what was found; its experiments, their campaign and their profiles say on what, and under
which reservations. Any of them may be gone: a document is enough, and what is not at hand is said to be missing.
"""

from __future__ import annotations

import msgspec

from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.campaign import Campaign, ExperimentData
from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.verdict import VerdictDocument


class Profiled(msgspec.Struct, frozen=True, kw_only=True):
    """One stored breakdown, and the experiment (or the file) that it lies with."""

    source: str
    breakdown: BreakdownDocument


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. `experiments` are those of its configurations that are at hand, in its order."""

    document: VerdictDocument
    experiments: list[ExperimentData] = msgspec.field(default_factory=list)
    missing: list[str] = msgspec.field(default_factory=list)  # ids of those that are not
    campaign: Campaign | None = None  # that launched all of them
    profiles: list[Profiled] = msgspec.field(default_factory=list)  # one a configuration and level


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is rendered. The first comparison is the newest."""

    compared: list[Compared]
    ledger: list[tuple[Prediction, Measured | None]] = msgspec.field(default_factory=list)
