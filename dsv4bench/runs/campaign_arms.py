"""A campaign that was run here as arms, kernel shares and a goal: what `compare` needs of results/<campaign>/.

An arm is a configuration with the experiments of its complete launches, in the order of the blocks. Shares come from
the breakdowns that lie with them. The plan is that of the target's own breakdown: its components, in their order.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.compare.levers import differing_settings
from dsv4bench.compare.live import why_not
from dsv4bench.errors import BenchError
from dsv4bench.records.arm import Arm
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.campaign import Campaign, LaunchStatus, OutputParity
from dsv4bench.records.goal import Goal, PlanItem
from dsv4bench.records.shares import SharesDocument
from dsv4bench.runs.campaign_data import CampaignData
from dsv4bench.runs.experiment_arm import arm_of
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign
from dsv4bench.scenario.launched_text import portless
from dsv4bench.scenario.reading import read_yaml
from dsv4bench.store import breakdowns
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store


def load_campaign_run(folder: Path) -> CampaignData:
    """Raises BenchError for a campaign.json or a scenario that cannot be read, or an experiment that is gone."""
    opened = CampaignDir.open(folder)
    campaign, store = opened.campaign, Store(folder.parent)
    spec = read_yaml(opened.scenario, LaunchedCampaign, "it is the campaign's own copy of its scenario")
    experiments = {c: [store.open(i) for i in complete_ids(campaign, c)] for c in campaign.configs}
    arms = _with_dead_levers([arm_of(found) for found in experiments.values() if found], spec, campaign)
    shares, warnings = _shares(store.root, arms, campaign.id)
    return CampaignData(
        name=campaign.id,
        folder=str(folder),
        source="dsv4bench",
        arms=arms,
        shares=shares,
        claims=[],
        goal=_goal(spec, campaign, experiments),
        setup=setup_lines(campaign),
        notes=list(campaign.notes),
        run=campaign.name,
        cautions=[*cautions(campaign), *warnings],
        deltas_frac=dict(spec.delta),
        gpu=spec.gpu,
        tp=spec.tp,
    )


def complete_ids(campaign: Campaign, config: str) -> list[str]:
    """The experiments of a configuration's complete launches, by block."""
    found = [n for n in campaign.launches if n.config == config and n.status is LaunchStatus.COMPLETE]
    return [n.experiment for n in sorted(found, key=lambda n: n.order) if n.experiment is not None]


def _with_dead_levers(arms: Sequence[Arm], spec: LaunchedCampaign, campaign: Campaign) -> list[Arm]:
    """The arms, each with how its lever was seen not to be in force, or that it cannot be."""
    dead = {live.config: why_not(live) for live in campaign.live}
    by_name = {a.name: a for a in arms}
    return [
        msgspec.structs.replace(
            a, not_live=dead.get(a.name) or _changes_nothing(a, by_name.get(a.parent or ""), spec)
        )
        for a in arms
    ]


def _changes_nothing(new: Arm, parent: Arm | None, spec: LaunchedCampaign) -> str | None:
    """Why this lever has no effect to judge: commands, environment and what the servers tell are the parent's."""
    if parent is None or not new.levers or (parent.server is None) is not (new.server is None):
        return None
    configs = {c.name: c for c in spec.configs}
    if new.name not in configs or parent.name not in configs or differing_settings(parent, new)[0]:
        return None
    if _start(spec, configs[new.name]) != _start(spec, configs[parent.name]):
        return None
    return f"{new.name} starts exactly as {parent.name}: the lever changes nothing that is recorded"


def _start(spec: LaunchedCampaign, config: ConfigSpec) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Role -> command and environment, as the scenario has them; ports, which may differ, left out."""
    processes = spec.processes(config)
    ports = {str(p.port) for p in processes.values() if p.port}
    return {role: (portless(_words(p.launch), ports), p.env) for role, p in processes.items()}


def _words(launch: str) -> list[str]:
    """Split as a shell would; where a hidden secret took a quote with it, at spaces."""
    try:
        return shlex.split(launch)
    except ValueError:
        return launch.split()


def cautions(campaign: Campaign) -> list[str]:
    """What a reader of the verdicts must know: outputs that differ, launches that failed, servers that changed."""
    found = [line for parity in campaign.parity if (line := parity_line(parity))]
    for config in campaign.configs:
        own = [n for n in campaign.launches if n.config == config]
        bad = [n for n in own if n.status in (LaunchStatus.FAILED, LaunchStatus.SKIPPED)]
        if bad:
            why = next((n.reason for n in bad if n.status is LaunchStatus.FAILED and n.reason), "no reason recorded")
            found.append(f"{config}: {len(bad)} of {len(own)} launches failed or were left out: {why}")
        odd = dict.fromkeys(note for n in own for note in n.notes if note.startswith(DIFFERENT))
        found += [f"{config}: {note}" for note in odd]
    return found


DIFFERENT = "another server than at the first launch"


def parity_line(parity: OutputParity) -> str:
    """Why this configuration's outputs are no longer the base's; empty where they are, or may differ."""
    if parity.same is not False:
        return ""
    bad = [p for p in parity.pairs if p.first_difference is not None and p.near_tie is False]
    first = min((p.first_difference for p in bad if p.first_difference is not None), default=None)
    where = "" if first is None else f", first at token {first}"
    tail = f" ({parity.why})" if parity.why else ""
    return (
        f"{parity.config}: greedy output differs from {parity.base}'s on {len(bad)} of {len(parity.pairs)} prompts "
        f"beyond near-ties{where}{tail}"
    )


def setup_lines(campaign: Campaign) -> list[str]:
    """The campaign in one line, for findings."""
    done = sum(n.status is LaunchStatus.COMPLETE for n in campaign.launches)
    head = f"campaign {campaign.id}: {done} of {len(campaign.launches)} launches in {campaign.blocks} blocks"
    return [f"{head}, every second block in reverse order, seed {campaign.seed}"]


def _shares(root: Path, arms: Sequence[Arm], source: str) -> tuple[SharesDocument | None, list[str]]:
    shares, warnings = [], []
    for arm in arms:
        found = breakdowns.shares_of(root, arm.name, arm.ids)
        shares += found.shares
        warnings += found.warnings
    return (SharesDocument(source=source, published=False, shares=shares) if shares else None), warnings


def _goal(spec: LaunchedCampaign, campaign: Campaign, experiments: dict[str, list[ExperimentDir]]) -> Goal | None:
    if spec.target is None:
        return None
    config = spec.target.config or campaign.baseline
    found = _breakdown(experiments.get(config, []), spec.target.concurrency)
    steps = found.plan if found is not None else []
    plan = [PlanItem(name=s.component, components=[s.component], kernel_speedup=s.speedup) for s in steps]
    return Goal(config=config, concurrency=spec.target.concurrency, output_tok_s=spec.target.output_tok_s, plan=plan)


def _breakdown(experiments: Sequence[ExperimentDir], concurrency: int) -> BreakdownDocument | None:
    """The first stored breakdown at the target's concurrency."""
    for experiment in experiments:
        path = experiment.path / breakdowns.KERNELS
        if not path.is_file():
            continue
        try:
            found = breakdowns.read(path)
        except BenchError:
            continue  # `shares_of` has said so
        for document in found:
            if document.concurrency == concurrency:
                return document
    return None
