"""The noise of a rig, from one configuration measured again and again: the spread of runs and that of launches.

One-way random effects on logarithms, a level at a time: σ_run² is the variance within launches, σ_launch² =
(MS_between − MS_within)/n₀ ≥ 0. Fewer than four launches tell no σ_launch: by chance two may be equal. From four
or more it is still poorly known, so a note gives its upper 95 % bound, sd·√((k−1)/χ²_0.05,k−1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from dsv4bench.compare.comparable import comparable
from dsv4bench.compare.gate import GATING
from dsv4bench.compare.integrity import breaches_of_arm
from dsv4bench.compare.levels import by_launch, by_level, days
from dsv4bench.compare.noise import ASSUMED_SIGMA_DAY, DAYS_ENOUGH
from dsv4bench.compare.statistics import DEFAULT_SIGMA_LAUNCH
from dsv4bench.errors import Unanswerable
from dsv4bench.records.arm import Arm
from dsv4bench.records.calibration import Calibration, NoiseFloor
from dsv4bench.records.cell import Cell

MIN_LAUNCHES = 4
UPPER_TAIL = 0.05


def calibrate(arms: Sequence[Arm], created_utc: str) -> Calibration:
    """The noise floor of relaunches (or repeats) of one configuration.

    Raises Unanswerable when the arms are not one configuration, are unsound, or repeat nothing.
    """
    _require_one_configuration(arms)
    cells = [c for arm in arms for c in arm.cells]
    floors = [
        floor
        for level, there in by_level(cells).items()
        for metric in GATING
        if (floor := _floor(metric, level.concurrency, level.isl, there)) is not None
    ]
    if not floors:
        raise Unanswerable(
            f"{arms[0].name}: nothing was measured twice, so no noise can be seen",
            "relaunch the server four times and sweep it each time, or sweep --repeat 5",
        )
    launch = [f.sigma_launch_frac for f in floors if f.sigma_launch_frac is not None]
    run = [f.sigma_run_frac for f in floors if f.sigma_run_frac is not None]
    return Calibration(
        created_utc=created_utc,
        config=arms[0].name,
        ids=[i for arm in arms for i in arm.ids],
        hardware=arms[0].hardware,
        sigma_launch_frac=max(launch, default=None),
        sigma_run_frac=max(run, default=None),
        floors=floors,
        n_days=days(cells),
        notes=_notes(cells, floors),
    )


def components(launches: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """(σ_run, σ_launch as seen) from the logarithms of each launch's runs; None where the data cannot tell."""
    n, k = sum(map(len, launches)), len(launches)
    means = [fmean(runs) for runs in launches]
    within = sum((x - m) ** 2 for runs, m in zip(launches, means, strict=True) for x in runs)
    run_variance = within / (n - k) if n > k else None
    if k < 2:
        return _root(run_variance), None
    grand = sum(map(sum, launches)) / n
    between = sum(len(runs) * (m - grand) ** 2 for runs, m in zip(launches, means, strict=True)) / (k - 1)
    size = (n - sum(len(runs) ** 2 for runs in launches) / n) / (k - 1)
    return _root(run_variance), math.sqrt(max(0.0, (between - (run_variance or 0.0)) / size))


def upper_bound(sigma: float, n_launches: int) -> float:
    """What σ_launch may well be, seen from so few launches; 95 % one-sided."""
    from scipy.special import chdtri

    freedom = n_launches - 1
    return sigma * math.sqrt(freedom / float(chdtri(freedom, 1 - UPPER_TAIL)))


def _floor(metric: str, concurrency: int | None, isl: int, cells: Sequence[Cell]) -> NoiseFloor | None:
    launches = [
        [math.log(v) for c in runs if (v := getattr(c, metric)) is not None] for runs in by_launch(cells).values()
    ]
    launches = [runs for runs in launches if runs]
    if sum(map(len, launches)) < 2:
        return None
    run, launch = components(launches)
    told = launch is not None and len(launches) >= MIN_LAUNCHES
    return NoiseFloor(
        metric=metric,
        concurrency=concurrency,
        isl=isl,
        sigma_run_frac=run,
        sigma_launch_frac=launch if told else None,
        n_launches=len(launches),
        n_repeats=min(map(len, launches)),
    )


def _require_one_configuration(arms: Sequence[Arm]) -> None:
    for arm in arms:
        found = breaches_of_arm(arm, arm.name)
        if found:
            raise Unanswerable(f"{found[0]}", "a calibration needs sound cells only; measure it again")
    first = arms[0]
    for other in arms[1:]:
        like = comparable(first, other)
        if not like.ok:
            raise Unanswerable(
                f"{first.name} and {other.name} are not one configuration: {like.why()}",
                "name relaunches of one configuration",
            )
        if first.server is not None and other.server is not None and first.server != other.server:
            keys = sorted(
                k for k in first.server.keys() | other.server.keys() if first.server.get(k) != other.server.get(k)
            )
            raise Unanswerable(
                f"{first.name} and {other.name} were served differently: {', '.join(keys[:8])}",
                "name relaunches of one configuration",
            )


def _notes(cells: Sequence[Cell], floors: Sequence[NoiseFloor]) -> list[str]:
    k, n_days = len(by_launch(cells)), days(cells)
    seen = [f.sigma_launch_frac for f in floors if f.sigma_launch_frac is not None]
    said = []
    if not seen:
        said.append(
            f"{k} launch{'es' if k > 1 else ''}: their spread cannot be told from so few; verdicts on single launches"
            f" assume {DEFAULT_SIGMA_LAUNCH:.1%} until the server was relaunched and swept {MIN_LAUNCHES} times"
        )
    else:
        said.append(f"from {k} launches: their spread may be up to {upper_bound(max(seen), k):.1%} (95 %)")
    if all(f.sigma_run_frac is None for f in floors):
        said.append("one run a launch: the spread of runs is inside that of launches; sweep --repeat 5 parts them")
    if seen and n_days < DAYS_ENOUGH:
        said.append(
            f"launches of {n_days} day{'s' if n_days > 1 else ''}: the drift between days is assumed, "
            f"{ASSUMED_SIGMA_DAY:.0%}; {DAYS_ENOUGH} days hold it"
        )
    return said


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
