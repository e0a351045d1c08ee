"""What a text claimed about a campaign, and what an audit of it against the data found.

A claim is read from `claims.yaml`: its own words, and the few values in them that data can answer to. It says nothing
of what is true; `compare.claims` does, and writes one `ClaimAudit` a claim.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class _Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    id: str
    text: str  # as it was written


class EffectClaim(_Claim, frozen=True, kw_only=True, tag="effect"):
    """A lever changed a metric by so much. `concurrency` empty: the text does not say where."""

    config: str
    lever: str
    change_frac: float
    rounding_frac: float = 0.005  # half of the last digit of the percentage
    concurrency: list[int] = msgspec.field(default_factory=list)
    quoted: tuple[float, float] | None = None  # the two figures that the text gives with it
    metric: str = "output_tok_s"


class ShareClaim(_Claim, frozen=True, kw_only=True, tag="share"):
    """A component takes so much of the decode time. None: the text does not say at which concurrency."""

    component: str
    share_frac: float
    rounding_frac: float = 0.005
    concurrency: int | None = None
    lever: str | None = None  # the lever whose effect it is meant to explain


class TableClaim(_Claim, frozen=True, kw_only=True, tag="table"):
    """The results table as a whole: what in it does the text not speak of?"""

    metric: str = "output_tok_s"


class KernelTableClaim(_Claim, frozen=True, kw_only=True, tag="kernel_table"):
    """The kernel table as a whole: how much of the time does it name?"""


class ValueClaim(_Claim, frozen=True, kw_only=True, tag="value"):
    """One figure of the table."""

    config: str
    concurrency: int
    metric: str = "output_tok_s"


class PlateauClaim(_Claim, frozen=True, kw_only=True, tag="plateau"):
    """Throughput stops growing from this concurrency on."""

    from_concurrency: int
    metric: str = "output_tok_s"


class CauseClaim(_Claim, frozen=True, kw_only=True, tag="cause"):
    """Speculative decoding buys nothing at these levels, for a stated reason."""

    config: str
    cause: Literal["verifier saturated", "accept-limited"]
    concurrency: list[int]


class TargetClaim(_Claim, frozen=True, kw_only=True, tag="target"):
    """The plan leads to the target."""


Claim = (
    EffectClaim | ShareClaim | TableClaim | KernelTableClaim | ValueClaim | PlateauClaim | CauseClaim | TargetClaim
)


class ClaimState(StrEnum):
    HOLDS = "holds"
    CONTRADICTED = "contradicted"  # the data say otherwise
    NOT_SEPARABLE = "not separable"  # several levers changed at once
    NOT_SHOWN = "not shown"  # the data cannot carry it
    INCOMPLETE = "incomplete"  # the data hold what the text leaves out


class ClaimAudit(msgspec.Struct, frozen=True, kw_only=True):
    """One claim against the data. Every percentage in `found` names its base, every share its concurrency."""

    claim: str
    said: str
    state: ClaimState
    found: list[str]
    action: str = ""  # what would settle it
