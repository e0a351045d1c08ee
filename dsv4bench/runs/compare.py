"""`dsv4bench compare`: load the configurations, judge every step, fit the laws, keep the verdict.

The first configuration named is the baseline; in a campaign folder it is the one without a parent. A configuration
whose parent is among those loaded is judged against both. Kernel shares of the campaign bound what a lever can bring.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dsv4bench.compare.bounds import lever_bounds
from dsv4bench.compare.bundles import measured_alone, taken_apart
from dsv4bench.compare.claims import complete
from dsv4bench.compare.comparable import comparable
from dsv4bench.compare.levers import lever_verdict
from dsv4bench.compare.noise import Noise, noise_of
from dsv4bench.compare.scaling import scaling_report
from dsv4bench.compare.soundness import arithmetic
from dsv4bench.compare.speculation import speculates, speculation
from dsv4bench.compare.verdicts import compare_arms
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.gpus import Gpu, find
from dsv4bench.records.arm import Arm
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.records.verdict import LeverStatus, LeverVerdict, VerdictDocument
from dsv4bench.runs.arms import load_arms
from dsv4bench.runs.campaign_arms import load_campaign_run
from dsv4bench.runs.campaign_data import CampaignData, is_campaign, load_campaign
from dsv4bench.runs.idle import idle_of
from dsv4bench.runs.made_from import input_note
from dsv4bench.runs.predictions import fill
from dsv4bench.store import breakdowns, calibration, campaigns, verdict_files

METRICS = ("output_tok_s", "tpot_p50_s", "ttft_p50_s")


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `metrics` are judged together: one Holm correction for all of them."""

    names: list[str]
    root: str = "results"
    metrics: list[str] = msgspec.field(default_factory=lambda: list(METRICS))
    deltas_frac: dict[str, float] = msgspec.field(default_factory=dict)
    across_hardware: bool = False
    allow_partial: bool = False
    pool: bool = False
    gpu: Gpu | None = None
    tp: int | None = None
    keep: bool = True


class Comparison(NamedTuple):
    """The arms as they were loaded, and the verdicts; `refusals` say why one may not be compared at all.

    `again`: the newest stored comparison of these names says the same; `document` is that one, and none was added.
    """

    arms: list[Arm]
    document: VerdictDocument
    refusals: list[str]
    again: bool = False


def run_compare(o: CompareOptions) -> Comparison:
    """Raises UsageError for names that cannot be compared, Unanswerable when the data carry no comparison at all."""
    campaign = _campaign(o)
    arms = campaign.arms if campaign is not None else load_arms(o.names, o.root, o.pool)
    if len(arms) < 2:
        raise UsageError(
            f"{len(arms)} configuration was named, a comparison needs two", "dsv4bench list shows what there is"
        )
    _refuse_partial(arms, o.allow_partial)
    _refuse_unsound(arms)
    noise = noise_of(calibration.read(Path(o.root)))
    if campaign is not None:
        o = _as_asked_there(o, campaign)
    document = judge_all(arms, o, noise, campaign.shares if campaign is not None else None)
    if campaign is not None:
        document = msgspec.structs.replace(
            document, campaign=campaign.run, notes=[*document.notes, *campaign.cautions]
        )
    document = complete(
        document,
        arms,
        claims=campaign.claims if campaign is not None else (),
        shares=campaign.shares if campaign is not None else None,
        goal=campaign.goal if campaign is not None else None,
        setup=campaign.setup if campaign is not None else (),
    )
    before = None
    if o.keep:
        before = verdict_files.stored_alike(o.root, document)
        document = before or verdict_files.write(o.root, document)
        fill(o.root, document)
    return Comparison(arms, document, _refusals(arms, o), again=before is not None)


def judge_all(
    arms: Sequence[Arm], o: CompareOptions, noise: Noise, shares: SharesDocument | None = None
) -> VerdictDocument:
    """Every configuration against its parent and against the baseline; pure but for its name."""
    baseline = next((a for a in arms if a.parent is None), arms[0]) if _is_tree(arms) else arms[0]
    parents = _parents(arms, baseline)
    cells, levers, spec = [], [], []
    metrics = _present(arms, o.metrics)
    deltas = {name: value for name, value in o.deltas_frac.items() if name in metrics}
    for arm in arms:
        if arm is baseline:
            continue
        parent = parents[arm.name]
        siblings = [a for a in arms if a is not arm and parents.get(a.name) is parent]
        alone = measured_alone(parent, arm, siblings, across_hardware=o.across_hardware)
        lever = taken_apart(lever_verdict(parent, arm), parent, arm, alone)
        levers.append(lever)
        bounds = lever_bounds(parent, arm, _shares(parent, o, shares), alone)
        common: dict[str, Any] = {
            "metrics": metrics,
            "sigma_launch_frac": dict(noise.launch_frac) or None,
            "calibrated": noise.source == "calibrated",
            "deltas": deltas,
            "across_hardware": o.across_hardware,
        }
        own = compare_arms(parent, arm, versus="parent", bounds=bounds if arm.levers else None, lever=lever, **common)
        cells += own
        if parent is baseline and lever.status is not LeverStatus.CONTRADICTED:
            cells += [msgspec.structs.replace(v, versus="baseline") for v in own]
        elif lever.status is not LeverStatus.NOT_LIVE:
            # the cumulative change stands even where the lever is contradicted
            cells += compare_arms(baseline, arm, versus="baseline", **common)
        if speculates(arm) or speculates(parent):
            spec += speculation(parent, arm)
    return VerdictDocument(
        baseline=baseline.name,
        inputs=[input_note(a) for a in arms],
        across_hardware=o.across_hardware,
        sigma_launch_frac=max(noise.launch_frac.values(), default=None),
        sigma_source=noise.source,
        cells=cells,
        levers=levers,
        speculation=spec,
        scaling=scaling_report(arms, gpu=o.gpu, tp=o.tp, idle=idle_of(o.root, arms)),
        notes=_notes(arms, levers, noise),
    )


def _parents(arms: Sequence[Arm], baseline: Arm) -> dict[str, Arm]:
    """What each configuration but the baseline is judged against: its parent, else the baseline."""
    by_name = {a.name: a for a in arms}
    return {a.name: by_name.get(a.parent or "", baseline) for a in arms if a is not baseline}


def deltas_of(pairs: Sequence[str]) -> Mapping[str, float]:
    """`output_tok_s=0.05`, `tpot_p50_s=5%`. Raises UsageError."""
    found = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise UsageError(f"--delta {pair}: not a limit", "for instance --delta output_tok_s=5%") from None
        if not 0 < value < 1:
            raise UsageError(f"--delta {pair}: not between 0 and 100 %", "for instance --delta output_tok_s=5%")
        found[name.strip()] = value
    return found


def _campaign(o: CompareOptions) -> CampaignData | None:
    """A campaign named alone brings its shares, its target and what it asked of a comparison."""
    if len(o.names) != 1:
        return None
    if is_campaign(o.names[0]):
        return load_campaign(o.names[0])
    run = campaigns.find(o.root, o.names[0])
    return load_campaign_run(run) if run is not None else None


def _as_asked_there(o: CompareOptions, campaign: CampaignData) -> CompareOptions:
    """What the command line leaves open is as the campaign says. Its experiments lie beside its folder."""
    known = find(campaign.gpu) if campaign.gpu is not None else None
    return msgspec.structs.replace(
        o,
        deltas_frac={**campaign.deltas_frac, **o.deltas_frac},
        gpu=o.gpu or known,
        tp=o.tp or campaign.tp,
    )


def _is_tree(arms: Sequence[Arm]) -> bool:
    """Whether all but one name a parent that is here: then the one without is the baseline."""
    names = {a.name for a in arms}
    return sum(a.parent in names for a in arms) == len(arms) - 1


def _refuse_partial(arms: Sequence[Arm], allowed: bool) -> None:
    partial = [a for a in arms if not a.complete]
    if partial and not allowed:
        raise Unanswerable(
            f"{partial[0].name} is not complete: {'; '.join(partial[0].notes)}",
            "finish it with sweep --resume, or compare what there is with --allow-partial",
        )


def _refuse_unsound(arms: Sequence[Arm]) -> None:
    """A throughput that is not tokens over time is another quantity under that name, or an edited figure."""
    for arm in arms:
        for cell in arm.cells:
            for breach in arithmetic(cell, f"{arm.name} {cell.cell}"):
                raise Unanswerable(str(breach), "was the file edited? measure the level again")


def _present(arms: Sequence[Arm], metrics: Sequence[str]) -> list[str]:
    """The metrics that any arm has; all of them when none has any, so that the refusal names them."""
    present = [m for m in metrics if any(getattr(c, m, None) is not None for a in arms for c in a.cells)]
    return present or list(metrics)


def _shares(parent: Arm, o: CompareOptions, shares: SharesDocument | None) -> list[KernelShare]:
    """Of the parent's decode time: published with the campaign, or from a stored breakdown."""
    if shares is not None:
        return shares.shares
    return breakdowns.shares_of(o.root, parent.name, parent.ids).shares


def _refusals(arms: Sequence[Arm], o: CompareOptions) -> list[str]:
    """Unlike workloads or hardware, with the keys that differ."""
    found = []
    for arm in arms[1:]:
        verdict = comparable(arms[0], arm, across_hardware=o.across_hardware)
        if not verdict.ok:
            found.append(f"{arm.name} is not comparable with {arms[0].name}: {verdict.why()}")
    return found


def _notes(arms: Sequence[Arm], levers: Sequence[LeverVerdict], noise: Noise) -> list[str]:
    found = [f"{a.name}: {note}" for a in arms for note in a.notes]
    silent = {a.name for a in arms if a.server is None}
    unverified: dict[str, list[str]] = {}
    for x in levers:
        if x.status is LeverStatus.UNVERIFIED and x.levers:
            unverified.setdefault(_why_unverified(x, silent), []).append(x.config)
    found += [f"levers not verified ({why}): {', '.join(names)}" for why, names in unverified.items()]
    if noise.source == "assumed":
        found.append("launch noise is assumed (1.5 %); dsv4bench calibrate measures this rig's")
    return found


def _why_unverified(lever: LeverVerdict, silent: Collection[str]) -> str:
    if lever.config in silent or lever.parent in silent:
        return "the server does not tell its arguments"
    if not lever.differing:
        return "not visible: the servers' recorded settings are equal"
    return "which of the settings that differ are the lever's is not said, or none of them is"
