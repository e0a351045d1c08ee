"""Speculative decoding foretold from a configuration without it.

    X(C) = C · AL / (a + b·m·C)          ceiling AL/(m·b)

m is the number of tokens a sequence that one step verifies, AL the acceptance length: m sequences' worth of work buy
AL tokens. The law is fitted on the base alone, so agreement is evidence that verified tokens cost what sequences
cost ("the verifier does not batch"), and nothing of the new configuration's speed enters its own prediction.
It assumes that drafting is free and that m tokens of one sequence cost as much as m sequences.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsv4bench.compare.ladder import Ladder, StepSource, mean_known
from dsv4bench.compare.roofline import argument
from dsv4bench.errors import UsageError
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import ScalingLaw, SpecPrediction


def predict(law: ScalingLaw, accept_length: float, verified: int, concurrency: int) -> float:
    """Output tok/s at `concurrency`, from the law of the base.

    Raises UsageError without a law, or unless 1 <= accept_length <= verified.
    """
    if law.a_s is None or law.b_s is None:
        raise UsageError(
            f"{law.config} has no scaling law at ISL {law.isl}", "measure three levels of concurrency or more"
        )
    if not 1 <= accept_length <= verified:
        raise UsageError(
            f"acceptance length {accept_length} with {verified} verified tokens", "it lies between 1 and verified"
        )
    step_s = law.a_s + law.b_s * verified * concurrency
    if concurrency < 1 or step_s <= 0:
        raise UsageError(f"the law of {law.config} gives no step time at C={concurrency}", "stay within its levels")
    return concurrency * accept_length / step_s


def verified_tokens(server: Mapping[str, Plain] | None) -> int | None:
    """m as a server's arguments tell it; None where they do not, or without speculation.

    SGLang's draft tokens and our server's spec_tokens include the token that is certain; vLLM's do not.
    """
    whole = argument(server, "speculative_num_draft_tokens", "spec_tokens")
    if whole is not None:
        return whole if whole > 1 else None
    drafts = argument(server, "num_speculative_tokens")
    return drafts + 1 if drafts else None


def predictions(
    base: ScalingLaw, base_ladder: Ladder, new: Arm, new_ladder: Ladder
) -> tuple[list[SpecPrediction], list[str]]:
    """The law of the base against each level of a speculating configuration; empty where m or AL was not told.

    What is predicted and measured is decode throughput where the base's law came from TPOT, else output tok/s.
    """
    accepted = [mean_known(c.accept_length for c in _cells(new, new_ladder, level)) for level in new_ladder.levels]
    verified = verified_tokens(new.server)
    if verified is None and not any(accepted):
        return [], []  # no speculation, or none that is told: there is nothing to foretell
    why = _why_none(base, base_ladder, new_ladder, verified, accepted)
    if why is not None:
        return [], [f"speculation is not predicted from {base.config}: {why}"]
    assert verified is not None
    notes = [] if base.holds else [f"predicted from {base.config}, whose own law does not hold"]
    beyond = [c for c in new_ladder.levels if verified * c > base.levels[-1]]
    if beyond:
        where = f"{verified * beyond[-1]} sequences of a step, its levels end at {base.levels[-1]}"
        notes.append(f"predicted from {base.config} by extrapolation: C={beyond[-1]} asks for {where}")
    found = []
    for level, accept in zip(new_ladder.levels, accepted, strict=True):
        if accept is None:
            notes.append(f"C={level} is not predicted: no acceptance length was recorded there")
            continue
        try:
            predicted = predict(base, accept, verified, level)
        except UsageError as error:
            notes.append(f"C={level} is not predicted: {error.message}")
            continue
        found.append(
            SpecPrediction(
                config=new.name,
                base=base.config,
                concurrency=level,
                verified=verified,
                accept_length=accept,
                predicted_tok_s=predicted,
                measured_tok_s=_measured(new_ladder, level, base_ladder.source),
            )
        )
    return found, notes


def _why_none(
    base: ScalingLaw, base_ladder: Ladder, new: Ladder, verified: int | None, accepted: list[float | None]
) -> str | None:
    if base.a_s is None:
        return "it has no scaling law"
    if base_ladder.accept_length > 1:
        return "it speculates itself"
    if verified is None:
        return "the server does not tell how many tokens a step verifies"
    if not any(accepted):
        return "no acceptance length was recorded"
    if base_ladder.source is StepSource.TPOT and new.source is not StepSource.TPOT:
        return "its law is of TPOT, which the new configuration lacks"
    return None


def _measured(ladder: Ladder, level: int, source: StepSource) -> float | None:
    if source is StepSource.TPOT:
        return mean_known(r.decode_tok_s for r in ladder.at(level))
    return ladder.measured_tok_s(level)


def _cells(arm: Arm, ladder: Ladder, level: int) -> list[Cell]:
    return [c for c in arm.cells if c.concurrency == level and c.isl == ladder.isl]
