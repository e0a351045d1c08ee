"""How throughput scales with concurrency: the law of each configuration, and everything that is said beside it.

The law comes from `law`, the plateau from `plateau`, the reason from `mechanism`, the hardware's limit from
`roofline`, and what speculation should have given from `spec_law`. Here they are joined, so that none is read without
the others: a law never names the kernels unless the mechanism does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dsv4bench.compare.ladder import Ladder, ladders, sources
from dsv4bench.compare.law import scaling_law
from dsv4bench.compare.mechanism import HOST, NOT_DETERMINED, PER_SEQUENCE, find_mechanism
from dsv4bench.compare.plateau import find_plateau, growths, three_digits
from dsv4bench.compare.roofline import rooflines
from dsv4bench.compare.spec_law import predictions, verified_tokens
from dsv4bench.errors import UsageError
from dsv4bench.gpus import Gpu
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.verdict import Mechanism, Plateau, ScalingLaw, ScalingReport, SpecPrediction

Idle = Mapping[str, Mapping[int, Mapping[int, float]]]  # configuration, ISL, C -> part of the step, GPU idle

DOMINATES = 0.75  # part of the step at the highest level
NO_BATCHING_KNEE = 4.0  # below it, a second and third sequence already cost what they would alone


def scaling_report(
    arms: Sequence[Arm],
    *,
    gpu: Gpu | None = None,
    tp: int | None = None,
    delta: float = 0.03,
    idle: Idle | None = None,
) -> ScalingReport:
    """A law for each configuration and ISL, and what a law without speculation foretells for one with it.

    `gpu` and `tp` are for the roofline; None: as each arm tells. Predictions are made from the arm's parent, or
    from the first arm when it names none that is here. `idle` tells how long the GPU of an arm idles in a step.
    Raises UsageError when two arms share a name.
    """
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise UsageError(f"two configurations have one name: {', '.join(names)}", "name each once")
    common = sources(arms)
    climbs = {arm.name: ladders(arm, common) for arm in arms}
    laws = {(arm.name, climb.isl): scaling_law(climb) for arm in arms for climb in climbs[arm.name]}
    told: list[ScalingLaw] = []
    foretold: list[SpecPrediction] = []
    for arm in arms:
        parent = arm.parent if arm.parent in climbs else arms[0].name
        for climb in climbs[arm.name]:
            base = next((c for c in climbs[parent] if c.isl == climb.isl), None) if parent != arm.name else None
            found, notes = predictions(laws[parent, climb.isl], base, arm, climb) if base else ([], [])
            foretold += found
            law = _completed(laws[arm.name, climb.isl], arm, climb, gpu, tp, delta, _of(idle, arm.name, climb.isl))
            told.append(msgspec.structs.replace(law, notes=[*law.notes, *notes]))
    return ScalingReport(laws=told, predictions=foretold)


def _growing_part(law: ScalingLaw) -> float | None:
    """b·C over a + b·C at the highest level (all of it where a <= 0); None without a law that holds and grows."""
    if not law.holds or law.a_s is None or law.b_s is None or law.ceiling_tok_s is None:
        return None
    grown_s = law.b_s * law.levels[-1]
    return grown_s / (max(law.a_s, 0.0) + grown_s)


def _meaning(law: ScalingLaw, mechanism: Mechanism | None) -> list[str]:
    """What a and b say. That kernels do not batch is said only where the mechanism is theirs."""
    if not law.holds:
        return []
    top, part = law.levels[-1], _growing_part(law)
    if part is None:
        return [f"step time does not grow up to C={top}: no ceiling can be told, more C is free"]
    at_top = f"at C={top} the part of the step that grows with C is {part:.0%}"
    if part <= 1 - DOMINATES:
        return [f"{at_top}: weights or launches bound: more C is free"]
    if part < DOMINATES:
        return [f"{at_top}: neither part dominates"]
    if mechanism is None or mechanism.name == NOT_DETERMINED:
        return [f"{at_top}: per-sequence cost dominates; whether the kernels are its cause is not determined"]
    if mechanism.name != PER_SEQUENCE:
        return [f"{at_top}, but what holds throughput is {mechanism.name}: nothing is concluded about kernels"]
    if (law.knee or 0.0) < NO_BATCHING_KNEE:
        host = "" if any(line.startswith(HOST) for line in mechanism.excluded) else ", unless the host is the limit"
        return [f"{at_top}: per-sequence cost dominates: kernels do not batch{host}"]
    return [f"{at_top}: per-sequence cost dominates past the knee"]


def _of(idle: Idle | None, config: str, isl: int) -> Mapping[int, float]:
    return (idle or {}).get(config, {}).get(isl, {})


def _completed(
    law: ScalingLaw,
    arm: Arm,
    ladder: Ladder,
    gpu: Gpu | None,
    tp: int | None,
    delta: float,
    idle: Mapping[int, float],
) -> ScalingLaw:
    """The law with plateau, mechanism and roofline."""
    plateau, notes = find_plateau(ladder, delta)
    verified = verified_tokens(arm.server)
    if verified is not None and ladder.accept_length == 1:
        notes.append(
            "the server speculates and its acceptance length was not recorded: times are per token, not per step"
        )
    roofs, about_roof = rooflines(arm, ladder, gpu=gpu, tp=tp, verified=verified)
    mechanism = _mechanism(law, arm, ladder, plateau, delta, idle)
    if plateau is not None:
        plateau = msgspec.structs.replace(plateau, text=plateau.text + _beside(law, mechanism))
    return msgspec.structs.replace(
        law,
        plateau=plateau,
        mechanism=mechanism,
        roofline_tok_s=roofs,
        notes=[*law.notes, *_meaning(law, mechanism), *notes, *about_roof],
    )


def _beside(law: ScalingLaw, mechanism: Mechanism | None) -> str:
    """What belongs in the same sentence as a plateau."""
    text = ""
    if law.holds and law.ceiling_tok_s is not None:
        text = f"; fitted ceiling {three_digits(law.ceiling_tok_s)} tok/s"
        text += f" [{', '.join(map(three_digits, law.ceiling_ci_tok_s))}]" if law.ceiling_ci_tok_s else ""
    return text + (f"; mechanism: {mechanism.name}" if mechanism else "")


def _mechanism(
    law: ScalingLaw, arm: Arm, ladder: Ladder, plateau: Plateau | None, delta: float, idle: Mapping[int, float]
) -> Mechanism | None:
    """Asked where growth stops, where a higher level was spoilt by the client, and where b·C rules the step.

    While throughput grows, only a cap that the highest level shows is told: levels above it are not what they say.
    """
    cells = [c for c in arm.cells if c.isl == ladder.isl and c.concurrency is not None]
    levels, spoilt = ladder.levels, _spoilt(cells)
    if spoilt and levels and spoilt > levels[-1]:
        return find_mechanism(cells, levels[-1], spoilt, arm.server, idle, ladder.figures)
    stop = plateau.from_concurrency if plateau else _stop(ladder, delta)
    if stop is None and (_growing_part(law) or 0) >= DOMINATES:
        stop = levels[-2]
    if stop is not None:
        return find_mechanism(cells, stop, levels[-1], arm.server, idle, ladder.figures)
    if len(levels) < 2:
        return None
    found = find_mechanism(cells, levels[-2], levels[-1], arm.server, idle, ladder.figures)
    return found if "cap" in found.name else None


def _spoilt(cells: Sequence[Cell]) -> int | None:
    stamps = (Invalid.CLIENT_SATURATED, Invalid.CONCURRENCY_NOT_HELD)
    return max((c.concurrency or 0 for c in cells if c.invalid in stamps), default=None)


def _stop(ladder: Ladder, delta: float) -> int | None:
    """The lowest level after which no growth is seen: a cliff stops growth as a plateau does."""
    found = growths(ladder, delta)
    later = [(c, [g for g in found if g.low >= c]) for c in ladder.levels[:-1]]
    return next((c for c, after in later if after and all(g.trend != "grows" for g in after)), None)
