"""The folder of a campaign: a new one, or the one that --resume takes up.

--resume finds the newest campaign of the scenario's name that was made from the same text. A changed text is refused
with what differs. A launch that was running when the campaign was killed is to be done again, as a new experiment.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.host.redact import hide_values, redact, redact_text
from dsv4bench.records.campaign import Campaign, CampaignStatus, LaunchNote, LaunchStatus
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.campaign_launch import scenario_secrets
from dsv4bench.runs.campaign_plan import planned
from dsv4bench.runs.campaign_sweep import check_measurable
from dsv4bench.scenario.launched import LaunchedCampaign
from dsv4bench.scenario.launched_reading import HINT, read_launched, variables_of
from dsv4bench.scenario.reading import read_text
from dsv4bench.store import campaigns
from dsv4bench.store.campaigns import CampaignDir

DIFFERENCES = 6
HEADS = ("+++", "---")
DEFAULT_OUT = "results"


class CampaignOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `findings` None: beside the default results folder, inside any other."""

    scenario: str
    out: str = DEFAULT_OUT
    blocks: int | None = None
    resume: bool = False
    dry_run: bool = False
    stop_after_blocks: int | None = None
    stop_after_launches: int | None = None
    only: list[str] = msgspec.field(default_factory=list)
    profile: bool = True
    report: bool = True
    findings: str | None = None
    command: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Raises UsageError."""
        for option, value in (
            ("--blocks", self.blocks),
            ("--stop-after-blocks", self.stop_after_blocks),
            ("--stop-after-launches", self.stop_after_launches),
        ):
            if value is not None and not 1 <= value <= 1000:
                raise UsageError(f"{option} {value}: from 1 to 1000")


class Asked(NamedTuple):
    """The scenario, read and checked, its text, and the campaigns that were made of this name before."""

    spec: LaunchedCampaign
    text: str
    sha: str
    before: list[CampaignDir]
    variables: dict[str, str]  # ${NAME} -> its value now, redacted


def read_asked(o: CampaignOptions, say: MessageCallback) -> Asked:
    """Raises UsageError for a scenario or an option that cannot be used."""
    o.check()
    spec = read_launched(o.scenario)
    text = read_text(Path(o.scenario), HINT)
    warnings: list[str] = []
    before = [d for d in campaigns.list_all(o.out, warnings) if d.campaign.name == spec.name]
    for warning in warnings:
        say(warning)
    _checked(spec, o.only)
    try:
        check_measurable(spec)
    except UsageError as e:
        raise UsageError(f"{o.scenario}: {e.message}", e.hint) from e
    known = scenario_secrets(spec)
    variables = {name: hide_values(value, known) for name, value in redact(variables_of(o.scenario)).items()}
    return Asked(spec, text, campaigns.sha256_of(text), before, variables)


def draft(o: CampaignOptions, asked: Asked) -> Campaign:
    """The new campaign as it would begin."""
    spec = asked.spec
    configs = [c for c in spec.configs if not o.only or c.name in o.only]
    names = [c.name for c in configs]
    blocks = o.blocks or spec.blocks
    seed = spec.workload.seed if spec.workload.seed is not None else secrets.randbits(31)
    return Campaign(
        id=campaigns.campaign_id(spec.name),
        name=spec.name,
        about=spec.about,
        status=CampaignStatus.RUNNING,
        scenario_sha256=asked.sha,
        variables=asked.variables,
        started_utc=campaigns.now_utc(),
        baseline=spec.baseline.name if spec.baseline.name in names else names[0],
        configs=names,
        parents={c.name: c.parent for c in configs if c.parent is not None},
        levers={c.name: c.lever for c in configs if c.lever is not None},
        blocks=blocks,
        seed=seed,
        launches=planned(names, blocks),
        notes=list(spec.notes),
    )


def found_to_resume(o: CampaignOptions, asked: Asked) -> CampaignDir | None:
    """The campaign that --resume means; None when there is none of this name.

    Raises UsageError when the scenario, or what its `${NAME}` stand for, has changed since.
    """
    mine = [d for d in asked.before if set(o.only) <= set(d.campaign.configs)]
    same = [d for d in mine if d.campaign.scenario_sha256 == asked.sha]
    alike = [d for d in same if d.campaign.variables in (None, asked.variables)]
    if alike:
        return alike[-1]
    if same:
        raise UsageError(
            f"{same[-1].id} began with other variables: {_other_values(same[-1].campaign, asked.variables)}",
            "export them as they were to go on with that campaign, or leave --resume out to begin a new one",
        )
    if not mine:
        return None
    there = mine[-1]
    raise UsageError(
        f"{o.scenario} has changed since {there.id} began: {_difference(there.scenario, asked.text)}",
        "put it back to go on with that campaign, or leave --resume out to begin a new one",
    )


def begin(o: CampaignOptions, asked: Asked) -> CampaignDir:
    """A new folder. Raises StoreError."""
    return CampaignDir.begin(o.out, draft(o, asked), clean_scenario(asked.text))


def taken_up(o: CampaignOptions, found: CampaignDir) -> CampaignDir:
    """The same folder, open for writing, its launches as they are to be done now. Raises StoreError."""
    opened = CampaignDir.resume(found.path)
    try:
        opened.write(as_resumed(opened.campaign, found.campaign.status, o.blocks))
    except BaseException:
        opened.close()
        raise
    return opened


def as_resumed(c: Campaign, status: CampaignStatus, blocks: int | None) -> Campaign:
    """A campaign as it is taken up: launches that were cut short wait again, further blocks are added.

    One that had ended with failed launches repeats them; one that was interrupted leaves them. Where launches wait,
    its verdict goes: it is not of them. That it went on is counted, and its end forgotten, once something is launched
    (`begun_again`): to be compared anew is no part of a campaign.
    """
    again = (LaunchStatus.FAILED, LaunchStatus.SKIPPED) if status is CampaignStatus.PARTIAL else ()
    wanted = blocks or c.blocks
    launches = [_waiting(n) if n.status is LaunchStatus.RUNNING or n.status in again else n for n in c.launches]
    kept = [n for n in launches if n.block < wanted or n.status is not LaunchStatus.PENDING]
    there = max((n.block for n in kept), default=-1) + 1
    launches = [*kept, *planned(c.configs, wanted, there)]
    waiting = any(n.status is LaunchStatus.PENDING for n in launches)
    return msgspec.structs.replace(
        c,
        status=CampaignStatus.RUNNING,
        reason=None,
        blocks=wanted,
        launches=launches,
        verdict=None if waiting else c.verdict,
    )


def begun_again(c: Campaign) -> dict[str, Any]:
    """What changes in campaign.json at the first launch of a campaign that was taken up."""
    return {"resumed": c.resumed + 1, "ended_utc": None}


def clean_scenario(text: str) -> str:
    """The text as it is; where it holds secrets, its values without them and without its comments."""
    import yaml

    plain = yaml.safe_load(text)
    clean = redact(plain)
    if clean == plain and redact_text(text) == text:
        return text
    return "# secrets are hidden in this copy\n" + yaml.safe_dump(clean, sort_keys=False, allow_unicode=True)


def _waiting(n: LaunchNote) -> LaunchNote:
    notes = list(n.notes)
    if n.status is LaunchStatus.RUNNING:
        notes.append(f"attempt {n.attempt} was cut short: its part is not used")
    elif n.reason is not None:
        notes.append(f"attempt {n.attempt} {n.status}: {n.reason}")
    return msgspec.structs.replace(
        n, status=LaunchStatus.PENDING, experiment=None, notes=notes, reason=None, cause=None, log_tail=None
    )


def _checked(spec: LaunchedCampaign, only: Sequence[str]) -> None:
    names = [c.name for c in spec.configs]
    for name in only:
        if name not in names:
            raise UsageError(f"--only {name}: no configuration of this scenario", f"it has {', '.join(names)}")
    for c in spec.configs:
        if len(only) > 1 and c.name in only and c.parent is not None and c.parent not in only:
            raise UsageError(
                f"--only {','.join(only)}: {c.name} is judged against {c.parent}, which is left out",
                f"name {c.parent}, too; or {c.name} alone, to see whether it runs",
            )


def _other_values(c: Campaign, now: dict[str, str]) -> str:
    """`MODEL was a, is b`, for one sentence."""
    then = c.variables or {}
    shown = [
        f"{name} was {then.get(name) or 'not set'}, is {now.get(name) or 'not set'}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    return "; ".join(shown)


def _difference(copy: Path, text: str) -> str:
    """The first lines that differ, for one sentence."""
    before, now = read_text(copy, HINT).splitlines(), clean_scenario(text).splitlines()
    lines = [x for x in difflib.unified_diff(before, now, n=0, lineterm="") if x[:1] in "+-" and x[:3] not in HEADS]
    shown = [f"{x[0]} {' '.join(x[1:].split())}" for x in lines if x[1:].strip()]
    more = f" and {len(shown) - DIFFERENCES} more" if len(shown) > DIFFERENCES else ""
    return "; ".join(shown[:DIFFERENCES]) + more if shown else "in its comments, its spaces, or a secret"
