"""What `gate` found, what its self-test did, and the baselines that it compares with.

Fractions are of the base, intervals as in `verdict`. A gating cell is a metric at a coordinate that may fail a gate.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.codec import Document
from dsv4bench.records.verdict import InputNote


class Outcome(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT COMPARABLE"


class GateCell(msgspec.Struct, frozen=True, kw_only=True):
    metric: str
    concurrency: int | None
    rate_req_s: float | None = None
    isl: int
    base: float | None
    new: float | None
    delta_frac: float | None
    ci_frac: tuple[float, float] | None
    limit_frac: float
    n: int
    outcome: Outcome
    could_see_frac: float | None
    reason: str


class GateDocument(Document, frozen=True, kw_only=True):
    """What `gate --json` prints."""

    schema: str = "dsv4bench.gate/1"
    id: str | None = None
    created_utc: str | None = None
    mode: Literal["stored", "paired"] | None = None
    baseline: str | None = None
    baseline_id: str | None = None
    candidate: str | None = None
    outcome: Outcome | None = None
    integrity: list[str] = msgspec.field(default_factory=list)  # what failed before any statistics
    alpha: float | None = None  # of this look
    looks: int | None = None  # that α was split over
    n_compared: int = 0  # gating cells that statistics were made of
    n_expected: int = 0
    sigma_launch_frac: float | None = None  # of output_tok_s; stored mode
    sigma_day_frac: float | None = None
    sigma_source: str | None = None  # calibrated | assumed
    overrides: list[str] = msgspec.field(default_factory=list)  # what the command line set for this run only
    inputs: list[InputNote] = msgspec.field(default_factory=list)
    cells: list[GateCell] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class SelfTestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One known fault, and what the gate said of it."""

    name: str
    expected: Outcome
    outcome: Outcome | None
    seen: bool
    reason: str


class SelfTestDocument(Document, frozen=True, kw_only=True):
    """What `gate --self-test --json` prints."""

    schema: str = "dsv4bench.gate-selftest/1"
    source: str
    cases: list[SelfTestCase]
    ok: bool
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned name. `config` None: its experiment is not here."""

    name: str
    id: str
    config: str | None
    reason: str | None = None
    set_utc: str | None = None
    before: str | None = None


class BaselinesDocument(Document, frozen=True, kw_only=True):
    """What `baseline list --json` prints."""

    schema: str = "dsv4bench.baselines/1"
    baselines: list[BaselineEntry]
