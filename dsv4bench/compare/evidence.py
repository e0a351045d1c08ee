"""What an audit may look at: the arms, the comparison made of them, and the claims beside the one being judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4bench.compare.figures import Change, arm_named, change, levels
from dsv4bench.metrics import BY_NAME
from dsv4bench.records.arm import Arm
from dsv4bench.records.claims import CauseClaim, Claim, EffectClaim
from dsv4bench.records.verdict import CellVerdict, VerdictDocument

DELTA_FRAC = 0.03  # where the registry has none


@dataclass(frozen=True, slots=True)
class Evidence:
    arms: Sequence[Arm]
    document: VerdictDocument
    claims: Sequence[Claim]

    @property
    def baseline(self) -> str | None:
        """The comparison's own, else the first configuration without a parent."""
        first = next((a.name for a in self.arms if a.parent is None), None)
        return self.document.baseline or first

    def parent(self, config: str) -> str | None:
        arm = arm_named(self.arms, config)
        return arm.parent if arm is not None and arm.parent is not None else self.baseline

    def levers(self, config: str) -> list[str]:
        arm = arm_named(self.arms, config)
        return arm.levers if arm is not None else []

    def change(self, config: str, base: str | None, metric: str, concurrency: int) -> Change | None:
        return None if base == config else change(self.arms, config, base, metric, concurrency)

    def bases(self, config: str) -> list[str]:
        """What a change of this configuration can be meant against: its parent, then the baseline."""
        found = [b for b in (self.parent(config), self.baseline) if b is not None and b != config]
        return list(dict.fromkeys(found))

    def levels(self, metric: str) -> list[int]:
        return levels(self.arms, metric)

    def verdict(self, of: Change, metric: str) -> CellVerdict | None:
        """What the comparison says of this change."""
        coordinates = (metric, of.config, of.base, of.concurrency)
        return next(
            (v for v in self.document.cells if (v.metric, v.config, v.versus_name, v.concurrency) == coordinates),
            None,
        )

    def discussed(self) -> set[tuple[str, int]]:
        """Configuration and concurrency of which some sentence states an effect."""
        return {
            (c.config, level)
            for c in self.claims
            if isinstance(c, EffectClaim | CauseClaim)
            for level in c.concurrency
        }


def delta_of(metric: str) -> float:
    """The smallest change worth a word."""
    known = BY_NAME.get(metric)
    return DELTA_FRAC if known is None or known.delta_frac is None else known.delta_frac


def rises(metric: str) -> bool:
    """Whether more of it is better."""
    known = BY_NAME.get(metric)
    return known is None or known.direction != "lower"


def unit_of(metric: str) -> str:
    known = BY_NAME.get(metric)
    return known.unit if known is not None else ""
