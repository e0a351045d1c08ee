"""The step-time law of one configuration.

    t(C) = a + b·C       ceiling AL/b tok/s       knee a/b, the C at which throughput is half its ceiling

One line a launch, least squares on relative error (see `affine`), over at least three levels; a and b are then
averaged over launches (b on the log scale), with t intervals over launches, and none from one. A residual above 3 %
at any level rejects the law: it is shown, and nothing is concluded from it. The universal scalability law is tried
only then, and only with six levels. Where the law comes from TPOT it speaks of decoding alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from dsv4bench.compare.affine import Line, aicc, fit_line, fit_usl, log_interval, usl_step_s
from dsv4bench.compare.affine import interval as t_interval
from dsv4bench.compare.ladder import Ladder, Rung
from dsv4bench.records.verdict import ScalingLaw

MIN_LEVELS = 3
USL_LEVELS = 6
MAX_RESIDUAL = 0.03
AICC_GAIN = 4.0


def scaling_law(ladder: Ladder) -> ScalingLaw:
    """The affine law of one ladder; where there is none, a_s, b_s and what follows are None and a note says why."""
    launches = [rungs for rungs in map(ladder.of, ladder.launches) if len(rungs) >= MIN_LEVELS]
    if not launches:
        return _no_law(ladder)
    lines = [fit_line([r.concurrency for r in rungs], [r.step_s for r in rungs]) for rungs in launches]
    residuals: dict[int, list[float]] = {}
    for line, rungs in zip(lines, launches, strict=True):
        for r in rungs:
            residuals.setdefault(r.concurrency, []).append(line.step_s(r.concurrency) / r.step_s - 1)
    mean_residuals = {c: fmean(values) for c, values in sorted(residuals.items())}
    holds = all(abs(r) <= MAX_RESIDUAL for r in mean_residuals.values())
    a_s = fmean(line.a_s for line in lines)
    rising = all(_grows(line, max(residuals)) for line in lines)
    b_s = math.exp(fmean(math.log(line.b_s) for line in lines)) if rising else fmean(line.b_s for line in lines)
    law = ScalingLaw(
        config=ladder.config,
        isl=ladder.isl,
        a_s=a_s,
        b_s=b_s,
        ceiling_tok_s=ladder.accept_length / b_s if rising else None,
        ceiling_ci_tok_s=log_interval([ladder.accept_length / line.b_s for line in lines]) if rising else None,
        knee=a_s / b_s if rising and a_s > 0 else None,
        knee_ci=_knee_interval(lines) if rising and a_s > 0 else None,
        n_launches=len(launches),
        levels=sorted(residuals),
        residuals_frac={str(c): r for c, r in mean_residuals.items()},
        holds=holds,
    )
    notes = [*ladder.notes, *_about_launches(ladder, len(launches))]
    if not holds:
        notes += [*_rejected(law), *_other_law(ladder)]
    return msgspec.structs.replace(law, notes=notes)


def _no_law(ladder: Ladder) -> ScalingLaw:
    levels = ladder.levels
    if len(levels) >= MIN_LEVELS:
        why = f"no law: no launch has {MIN_LEVELS} levels of its own, and launches are not mixed in one line"
    else:
        named = ", ".join(map(str, levels)) or "none"
        why = f"no law: {len(levels)} usable levels of concurrency ({named}), a line needs {MIN_LEVELS}"
    return ScalingLaw(
        config=ladder.config,
        isl=ladder.isl,
        a_s=None,
        b_s=None,
        ceiling_tok_s=None,
        ceiling_ci_tok_s=None,
        knee=None,
        knee_ci=None,
        n_launches=0,
        levels=levels,
        holds=None,
        notes=[why, *ladder.notes],
    )


def _knee_interval(lines: Sequence[Line]) -> tuple[float, float] | None:
    knees = [line.a_s / line.b_s for line in lines]
    return log_interval(knees) if all(k > 0 for k in knees) else t_interval(knees)


def _about_launches(ladder: Ladder, fitted: int) -> list[str]:
    short = len(ladder.launches) - fitted
    notes = [f"{short} launches with fewer than {MIN_LEVELS} levels are not in the law"] if short else []
    return [*notes, "one launch: no interval"] if fitted == 1 else notes


def _grows(line: Line, top: int) -> bool:
    """Whether step time grows by more than the residuals that the law is allowed."""
    return line.b_s * top > MAX_RESIDUAL * max(line.a_s, 0.0) and line.b_s > 0


def _rejected(law: ScalingLaw) -> list[str]:
    worst, residual = max(law.residuals_frac.items(), key=lambda item: abs(item[1]))
    off = f"the affine law does not hold: {residual:+.1%} at C={worst}, more than {MAX_RESIDUAL:.0%}"
    return [f"{off}; its ceiling and knee are no findings"]


def _other_law(ladder: Ladder) -> list[str]:
    """The universal scalability law, where six levels allow it and it describes them much better."""
    levels = ladder.levels
    if len(levels) < USL_LEVELS:
        return [f"no other law is tried: that takes {USL_LEVELS} levels, there are {len(levels)}"]
    times = [fmean(r.step_s for r in ladder.at(c)) for c in levels]
    line, usl = fit_line(levels, times), fit_usl(levels, times)
    affine = [line.step_s(c) / t - 1 for c, t in zip(levels, times, strict=True)]
    curved = [usl_step_s(usl, c) / t - 1 for c, t in zip(levels, times, strict=True)]
    if not aicc(curved, 3) < aicc(affine, 2) - AICC_GAIN:
        return ["the universal scalability law describes it no better"]
    text = f"universal scalability law: sigma {usl.sigma:.3g}, kappa {usl.kappa:.3g}, worst residual"
    text += f" {max(map(abs, curved)):.1%}"
    kappas = [fit_usl([r.concurrency for r in rungs], [r.step_s for r in rungs]).kappa for rungs in _whole(ladder)]
    ci = t_interval(kappas)
    if ci is not None and ci[0] > 0:
        return [f"{text}; throughput is retrograde: kappa's interval over {len(kappas)} launches lies above 0"]
    return [f"{text}; that kappa is above 0 is not shown, so no retrograde throughput is claimed"]


def _whole(ladder: Ladder) -> list[list[Rung]]:
    """Launches with the levels that a law of three parameters needs."""
    return [rungs for rungs in map(ladder.of, ladder.launches) if len(rungs) >= USL_LEVELS]
