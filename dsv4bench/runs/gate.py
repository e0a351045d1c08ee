"""`dsv4bench gate --baseline NAME CANDIDATE`: load, judge, keep the verdict. It never moves a baseline.

The verdict lies in results/verdicts/ whatever the outcome, with the hashes of the cells it was made from.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from dsv4bench.compare.judgement import Rules, judge
from dsv4bench.compare.levels import by_level, mean_of
from dsv4bench.compare.noise import Noise, noise_of
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.arm import Arm
from dsv4bench.records.codec import encode
from dsv4bench.records.gate import GateDocument, Outcome
from dsv4bench.runs.arms import arm_of, load_arms
from dsv4bench.runs.baselines import is_number, pinned_id
from dsv4bench.runs.campaign_arms import load_campaign_run
from dsv4bench.runs.made_from import input_note
from dsv4bench.store import baselines, calibration, campaigns, files
from dsv4bench.store.naming import iso, slug, utc_now
from dsv4bench.store.store import Store

VERDICTS = "verdicts"
MOVED_FRAC = 0.05
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3, Outcome.NOT_COMPARABLE: 4}


def run_gate(
    baseline: str,
    candidate: str,
    root: str,
    *,
    limits_frac: Mapping[str, float] | None = None,
    max_error_frac: float = 0.0,
    overrides: Sequence[str] = (),
    campaign: str | None = None,
) -> GateDocument:
    """The verdict, stored. With `campaign`, both are configurations of it, each with all its launches: in pairs.

    Raises UsageError for what is no pinned baseline, BenchError for what cannot be read.
    """
    store = Store(root)
    if campaign is not None:
        base, new = _of_campaign(root, campaign, baseline, candidate)
        base_id, drifted = base.ids[0], []
    else:
        base_id = pinned_id(root, baseline)
        base, new = arm_of([store.open(base_id)]), _candidate(store, candidate)
        drifted = _drift(store, base, base_id)
    noise, said = _noise(root, base)
    rules = Rules(limits_frac=dict(limits_frac or {}), max_error_frac=max_error_frac, noise=noise)
    moment = utc_now()
    document = judge(base, new, rules)
    document = msgspec.structs.replace(
        document,
        id=_verdict_id(moment, baseline, new.name),
        created_utc=iso(moment),
        baseline=baseline,
        baseline_id=base_id,
        candidate=candidate,
        overrides=list(overrides),
        inputs=[input_note(base), input_note(new)],
        notes=[*document.notes, *said, *drifted],
    )
    keep(root, document)
    return document


def _candidate(store: Store, candidate: str) -> Arm:
    if is_number(candidate):
        raise UsageError(f"{candidate}: a number is no candidate", "name an experiment: its id or its configuration")
    if not Path(candidate).exists() and (over := store.resolve(candidate).passed_over):
        raise Unanswerable(f"{candidate}: {'; '.join(over)}", "name the experiment that is meant by its id")
    arms = load_arms([candidate], str(store.root))
    if len(arms) != 1:
        hint = "a gate judges one; name its id, or with --campaign the configuration"
        raise UsageError(f"{candidate}: holds {len(arms)} configurations", hint)
    return arms[0]


def _of_campaign(root: str, campaign: str, baseline: str, candidate: str) -> tuple[Arm, Arm]:
    """Two configurations of a campaign that was run here. Raises UsageError naming those that it has."""
    folder = campaigns.named(root, campaign)
    if folder is None:
        there = ", ".join(dict.fromkeys(d.campaign.name for d in campaigns.list_all(root, []))) or "none"
        raise UsageError(f"--campaign {campaign}: no campaign of that name or id in {root}", f"there: {there}")
    arms = {a.name: a for a in load_campaign_run(folder).arms}
    for name in (baseline, candidate):
        if name not in arms:
            measured = ", ".join(arms) or "none"
            raise UsageError(f"{name} is no measured configuration of campaign {folder.name}", f"it has: {measured}")
    return arms[baseline], arms[candidate]


def _noise(root: str, base: Arm) -> tuple[Noise, list[str]]:
    """Of this rig; a calibration of other hardware says nothing of it."""
    found = calibration.read(Path(root))
    if found is not None and None not in (found.hardware, base.hardware) and found.hardware != base.hardware:
        return noise_of(None), [f"{calibration.NAME} is of other hardware: the assumed noise is used"]
    return noise_of(found), []


def keep(root: str, document: GateDocument) -> Path:
    """Write the verdict beside the others. Raises StoreError."""
    folder = Path(root) / VERDICTS
    with files.failing_as("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{document.id}.json"
    files.write_whole(path, encode(document, indent=True) + b"\n")
    return path


def _verdict_id(moment: datetime, baseline: str, candidate: str) -> str:
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-gate-{slug(baseline)}-vs-{slug(candidate)}-{secrets.token_hex(2)}"


def _drift(store: Store, base: Arm, base_id: str) -> list[str]:
    """An id given in a pin's place is the base measured again; where it left the pin, the machine moved."""
    said = []
    for name, pinned in baselines.read(store.root).items():
        if pinned == base_id or not (store.root / pinned).is_dir():
            continue
        before = arm_of([store.open(pinned)])
        if before.name != base.name or before.workload != base.workload:
            continue
        then, now = by_level(before.cells), by_level(base.cells)
        for level in then.keys() & now.keys():
            old, new = (mean_of(side[level], lambda c: c.output_tok_s) for side in (then, now))
            if old and new and abs(new / old - 1) > MOVED_FRAC:
                said.append(
                    f"the base itself moved: {base_id} is {new / old - 1:+.1%} vs {name} ({pinned}) at {level}; "
                    "the machine moved, not the code"
                )
    return sorted(said)
