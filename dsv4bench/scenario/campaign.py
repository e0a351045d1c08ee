"""A campaign that was measured elsewhere, as data: `scenario.yaml` and `claims.yaml` of its folder.

    name: campaign_2026
    configs:
      - {name: baseline}
      - {name: A, parent: baseline, levers: [fp8_cfg], touches: {fp8_cfg: [dense]}}
    target: {output_tok_s: 1000, concurrency: 16, config: baseline}
    plan:
      - {name: a grouped GEMM, components: [moe]}

Checked before anything is compared: parents exist and do not turn in circles, a lever touches what it names. The
numbers lie beside it (`cells.jsonl`, `kernels.json`); `runs.campaign_data` joins them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from dsv4bench.errors import UsageError
from dsv4bench.records.claims import Claim
from dsv4bench.records.goal import Goal, PlanItem
from dsv4bench.records.rules import Component
from dsv4bench.scenario.reading import line_of, read_text, read_yaml

SCENARIO, CLAIMS = "scenario.yaml", "claims.yaml"
HINT = "docs/findings.md shows a campaign folder"

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0, lt=1e12)]
Plain = str | int | float | bool | None


class ConfigData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    parent: Name | None = None
    levers: list[Name] = msgspec.field(default_factory=list)
    touches: dict[str, list[Component]] = msgspec.field(default_factory=dict)


class TargetData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    output_tok_s: Positive
    concurrency: Count
    config: Name


class PlanData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    components: Annotated[list[Component], Meta(min_length=1)]
    kernel_speedup: Annotated[float, Meta(ge=1)] | None = None
    effort: str | None = None


class CampaignFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """scenario.yaml."""

    name: Name
    source: str
    configs: Annotated[list[ConfigData], Meta(min_length=1)]
    workload: dict[str, Plain] = msgspec.field(default_factory=dict)
    hardware: dict[str, Plain] | None = None
    setup: list[str] = msgspec.field(default_factory=list)
    target: TargetData | None = None
    plan: list[PlanData] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def goal(self) -> Goal | None:
        """Target and plan; None when no target is set."""
        if self.target is None:
            return None
        items = [
            PlanItem(name=p.name, components=list(p.components), kernel_speedup=p.kernel_speedup, effort=p.effort)
            for p in self.plan
        ]
        t = self.target
        return Goal(config=t.config, concurrency=t.concurrency, output_tok_s=t.output_tok_s, plan=items)


class ClaimsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """claims.yaml."""

    source: str
    claims: list[Claim]


def read_campaign(path: Path) -> CampaignFile:
    """Raises UsageError naming file, line, key and what was expected."""
    found = read_yaml(path, CampaignFile, HINT)
    names = [c.name for c in found.configs]
    for i, config in enumerate(found.configs):
        if names.index(config.name) < i:
            raise _error(path, ["configs", i, "name"], f"config {config.name} stands there twice")
        if config.parent is not None and config.parent not in names[:i]:
            raise _error(
                path, ["configs", i, "parent"], f"parent {config.parent} of {config.name} is no config above it"
            )
        strange = sorted(set(config.touches) - set(config.levers))
        if strange:
            raise _error(path, ["configs", i, "touches", strange[0]], f"{strange[0]} is no lever of {config.name}")
        if config.levers and config.parent is None:
            raise _error(path, ["configs", i, "levers"], f"{config.name} names levers and no parent to compare with")
    if found.target is not None and found.target.config not in names:
        raise _error(path, ["target", "config"], f"target config {found.target.config} is none of {', '.join(names)}")
    return found


def read_claims(path: Path, campaign: CampaignFile) -> list[Claim]:
    """Raises UsageError naming file, line and key, also for a config or lever that the campaign does not have."""
    found = read_yaml(path, ClaimsFile, HINT).claims
    levers = {c.name: c.levers for c in campaign.configs}
    every = {lever for names in levers.values() for lever in names}
    ids = [c.id for c in found]
    for i, claim in enumerate(found):
        config, lever = getattr(claim, "config", None), getattr(claim, "lever", None)
        if ids.index(claim.id) < i:
            raise _error(path, ["claims", i, "id"], f"claim {claim.id} stands there twice")
        if config is not None and config not in levers:
            raise _error(path, ["claims", i, "config"], f"claim {claim.id}: config {config} is not in {SCENARIO}")
        if lever is not None and lever not in (every if config is None else levers[config]):
            where = SCENARIO if config is None else config
            raise _error(path, ["claims", i, "lever"], f"claim {claim.id}: {lever} is no lever of {where}")
    return found


def _error(path: Path, keys: list[str | int], message: str) -> UsageError:
    return UsageError(f"{path}:{line_of(read_text(path, HINT), keys)}: {message}", HINT)
