"""A text against its data: one `ClaimAudit` a claim, every sentence of it computed from cells, shares and verdicts.

A percentage is looked for against the parent and against the baseline, and the text's base is named; an effect of one
lever among several is not separable; "no effect" needs an equivalence verdict, a plateau two doublings, a cause its
measurement. Nothing here knows what a particular campaign said.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4bench.compare.claimed_effects import audit_cause, audit_effect, audit_table, audit_value
from dsv4bench.compare.claimed_limits import audit_kernel_table, audit_plateau, audit_share, audit_target
from dsv4bench.compare.evidence import Evidence
from dsv4bench.compare.figures import table
from dsv4bench.compare.goal import reach
from dsv4bench.records.arm import Arm
from dsv4bench.records.claims import (
    CauseClaim,
    Claim,
    ClaimAudit,
    EffectClaim,
    KernelTableClaim,
    PlateauClaim,
    ShareClaim,
    TableClaim,
    ValueClaim,
)
from dsv4bench.records.goal import Goal
from dsv4bench.records.shares import SharesDocument
from dsv4bench.records.verdict import VerdictDocument

SHOWN = ("output_tok_s", "tpot_p50_s", "ttft_p50_s", "accept_length")


def audit(claims: Sequence[Claim], arms: Sequence[Arm], document: VerdictDocument) -> list[ClaimAudit]:
    """In the order of the claims. `document` is the comparison of these arms, its shares and goal included."""
    evidence = Evidence(arms, document, claims)
    return [_audit(c, evidence) for c in claims]


def complete(
    document: VerdictDocument,
    arms: Sequence[Arm],
    *,
    claims: Sequence[Claim] = (),
    shares: SharesDocument | None = None,
    goal: Goal | None = None,
    setup: Sequence[str] = (),
) -> VerdictDocument:
    """The comparison with all that findings need: figures, shares, the ceilings of the goal, audited claims."""
    document = msgspec.structs.replace(
        document,
        figures=table(arms, SHOWN),
        shares=shares,
        goal=reach(goal, arms, shares, document.scaling) if goal is not None else None,
        setup=list(setup),
    )
    return msgspec.structs.replace(document, claims=audit(claims, arms, document))


def _audit(c: Claim, evidence: Evidence) -> ClaimAudit:
    match c:
        case EffectClaim():
            return audit_effect(c, evidence)
        case ShareClaim():
            return audit_share(c, evidence)
        case TableClaim():
            return audit_table(c, evidence)
        case KernelTableClaim():
            return audit_kernel_table(c, evidence)
        case ValueClaim():
            return audit_value(c, evidence)
        case PlateauClaim():
            return audit_plateau(c, evidence)
        case CauseClaim():
            return audit_cause(c, evidence)
        case _:
            return audit_target(c, evidence)
