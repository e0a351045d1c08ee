"""calibration.json: the noise of this rig, from relaunches or repeats of one configuration."""

from __future__ import annotations

import msgspec

from dsv4bench.records.codec import Document


class NoiseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. Standard deviations of its logarithm; None where the data cannot tell them apart."""

    metric: str
    concurrency: int | None
    isl: int
    sigma_run_frac: float | None
    sigma_launch_frac: float | None
    n_launches: int
    n_repeats: int


class Calibration(Document, frozen=True, kw_only=True):
    """`sigma_launch_frac` is what E1 verdicts use: the largest over gating cells, launch spread upper bound noted."""

    schema: str = "dsv4bench.calibration/1"
    created_utc: str
    config: str
    ids: list[str]
    hardware: dict[str, str | int | float | bool | None] | None = None
    sigma_launch_frac: float | None
    sigma_run_frac: float | None
    floors: list[NoiseFloor]
    n_days: int = 1  # different days on which its launches were measured
    notes: list[str] = msgspec.field(default_factory=list)
