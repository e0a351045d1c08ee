"""What `compare` found: one verdict a cell, one a lever, the scaling law of each configuration.

Fractions are of the base: +0.467 is +46.7 % vs `versus_name`. An interval is 95 % unless its name says otherwise. The
sign is the metric's own (a TPOT that falls has a negative delta_frac); `better` says what that means.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.claims import ClaimAudit
from dsv4bench.records.codec import Document
from dsv4bench.records.goal import GoalReport
from dsv4bench.records.shares import SharesDocument


class Verdict(StrEnum):
    GAIN = "GAIN"
    LOSS = "LOSS"
    NO_EFFECT = "NO EFFECT"
    TRIVIAL = "TRIVIAL"
    UNRESOLVED = "UNRESOLVED"
    NOT_COMPARABLE = "NOT COMPARABLE"
    CONTRADICTION = "CONTRADICTION"


class Grade(StrEnum):
    """What the data can carry (DESIGN: E0 no verdict … E2 paired launches, P a bound from a profile)."""

    E0 = "E0"
    E1 = "E1"
    E2U = "E2u"
    E2 = "E2"
    P = "P"


Versus = Literal["parent", "baseline"]
BoundSource = Literal["profile", "speculation"]


class CellVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one configuration at one coordinate against one base. `verdict` None: the grade allows none."""

    metric: str
    concurrency: int | None
    rate_req_s: float | None = None
    isl: int
    config: str
    versus: Versus
    versus_name: str
    base: float | None
    new: float | None
    delta_frac: float | None
    better: bool | None = None  # whether the change is in the metric's good direction
    in_points: bool = False  # delta, interval and limit are differences of a metric that is itself a fraction
    ci_frac: tuple[float, float] | None = None
    spread_frac: tuple[float, float] | None = None  # E0 with repeats: sd over mean of base and new
    limit_frac: float | None = None  # δ
    verdict: Verdict | None
    grade: Grade | None
    n_base: int = 0
    n_new: int = 0
    mde_frac: float | None = None  # the smallest effect that could have been seen
    pairs_needed: int | None = None
    bound_frac: float | None = None  # at most, at these coordinates; its sign is the metric's
    bound_note: str | None = None
    bound_source: BoundSource | None = None  # a profile, or the tokens a step of speculation
    reason: str = ""  # what the other fields do not say: they hold the change and its interval


class LeverStatus(StrEnum):
    VERIFIED = "verified"  # the recorded difference is exactly it
    CONTRADICTED = "contradicted"  # other keys differ too
    UNVERIFIED = "unverified"  # the server does not tell
    NOT_LIVE = "not live"  # it was seen not to be in force: no verdict


class BundleLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle at one level: output tok/s over the parent's, of each lever alone, of their product, and together."""

    concurrency: int | None
    rate_req_s: float | None = None
    isl: int
    alone_ratio: dict[str, float]  # lever -> its own configuration over the parent
    product_ratio: float
    together_ratio: float
    over_product_ratio: float  # together over the product
    over_product_ci: tuple[float, float] | None = None  # paired by block; None: the launches are no pairs
    proven: bool = False  # that it is not 1, after Holm over the levels
    text: str


class LeverVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration's step from its parent. `bundle`: taken apart, where each lever was also measured alone."""

    config: str
    parent: str
    levers: list[str]
    bundled: bool
    status: LeverStatus
    differing: dict[str, list[str | int | float | bool | None]] = msgspec.field(
        default_factory=dict
    )  # key -> [parent, new]
    extra_keys: list[str] = msgspec.field(default_factory=list)
    bundle: list[BundleLevel] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


class SpecState(StrEnum):
    PAYS = "pays"
    ACCEPT_LIMITED = "accept-limited"
    SATURATED = "verifier saturated"
    NOT_MEASURED = "cause not measured"


class SpecVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding at one concurrency: throughput = tokens a step x steps a second."""

    config: str
    base: str
    concurrency: int
    isl: int
    throughput_ratio: float
    tokens_per_step_base: float | None
    tokens_per_step: float | None
    step_time_ratio: float | None  # of throughput: with its share of prefill
    step_by_tpot_ratio: float | None = None
    state: SpecState
    reason: str


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    from_concurrency: int
    output_tok_s: float
    ci_tok_s: tuple[float, float] | None
    doublings: float
    proven: bool  # every later growth ratio equivalent to 1 over two doublings or more
    text: str

    @property
    def looks_flat(self) -> bool:
        """Whether it is proven or provisional; else throughput may still grow or fall there."""
        return self.text.startswith(("plateau", "provisional"))


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """Why throughput stops growing, from what was recorded beyond the knee."""

    name: str  # e.g. "admission cap", "per-sequence kernel cost", "client", "not determined"
    evidence: list[str]
    excluded: list[str]


class ScalingLaw(msgspec.Struct, frozen=True, kw_only=True):
    """t(C) = a + b·C: step time of one configuration at one ISL."""

    config: str
    isl: int
    a_s: float | None
    b_s: float | None
    ceiling_tok_s: float | None
    ceiling_ci_tok_s: tuple[float, float] | None
    knee: float | None
    knee_ci: tuple[float, float] | None
    n_launches: int
    levels: list[int]
    residuals_frac: dict[str, float] = msgspec.field(default_factory=dict)  # "8" -> relative residual
    holds: bool | None  # False: a residual above 3 %
    plateau: Plateau | None = None
    mechanism: Mechanism | None = None
    roofline_tok_s: dict[str, float] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)


class SpecPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The spec-decoding law X = C·AL/(a + b·m·C), fitted on the base alone, against what was measured."""

    config: str
    base: str
    concurrency: int
    verified: int
    accept_length: float
    predicted_tok_s: float
    measured_tok_s: float | None


class ScalingReport(msgspec.Struct, frozen=True, kw_only=True):
    laws: list[ScalingLaw] = msgspec.field(default_factory=list)
    predictions: list[SpecPrediction] = msgspec.field(default_factory=list)


class TableFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the results table, as it was given: a mean over valid cells, and what its digits leave open."""

    metric: str
    config: str
    concurrency: int | None
    rate_req_s: float | None = None
    isl: int
    value: float
    half: float = 0.0  # half of the last printed digit; 0 for measured figures
    about: bool = False  # given as "about": shown, enters no verdict
    n: int


class InputNote(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a comparison: where it came from, and the hash of its cells as they were read."""

    name: str
    source: str
    ids: list[str]
    cells_sha256: str


class VerdictDocument(Document, frozen=True, kw_only=True):
    """What `compare --json` prints, and verdicts/<id>.json keeps."""

    schema: str = "dsv4bench.verdict/1"
    id: str | None = None
    created_utc: str | None = None
    baseline: str | None = None
    inputs: list[InputNote] = msgspec.field(default_factory=list)
    campaign: str | None = None  # the name of the campaign whose launches were compared
    across_hardware: bool = False
    sigma_launch_frac: float | None = None
    sigma_source: str | None = None  # calibrated | assumed
    cells: list[CellVerdict] = msgspec.field(default_factory=list)
    levers: list[LeverVerdict] = msgspec.field(default_factory=list)
    speculation: list[SpecVerdict] = msgspec.field(default_factory=list)
    scaling: ScalingReport | None = None
    figures: list[TableFigure] = msgspec.field(default_factory=list)
    shares: SharesDocument | None = None  # the kernel shares that bounds and ceilings were taken from
    goal: GoalReport | None = None
    claims: list[ClaimAudit] = msgspec.field(default_factory=list)
    setup: list[str] = msgspec.field(default_factory=list)  # what was measured, on what, in lines
    notes: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None
