"""The published campaign, compared with the pure functions alone, and a copy of its folder that a test may change."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from dsv4bench.compare.bounds import lever_bounds
from dsv4bench.compare.claims import complete
from dsv4bench.compare.levers import lever_verdict
from dsv4bench.compare.scaling import scaling_report
from dsv4bench.compare.speculation import speculation
from dsv4bench.compare.verdicts import compare_arms
from dsv4bench.records.claims import ClaimAudit
from dsv4bench.records.verdict import InputNote, VerdictDocument
from dsv4bench.runs.campaign_data import CampaignData, load_campaign

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "scenarios" / "campaign_2026"
sys.path.insert(0, str(ROOT / "tests" / "store"))  # store_samples, for tests that need an experiment


def copied(to: Path) -> Path:
    return Path(shutil.copytree(FOLDER, to / "campaign"))


def change_cell(folder: Path, config: str, concurrency: int, **fields: Any) -> None:
    path = folder / "cells.jsonl"
    cells = [json.loads(line) for line in path.read_text().splitlines()]
    found = [c for c in cells if (c["config"], c["concurrency"]) == (config, concurrency)]
    assert len(found) == 1
    found[0].update(fields)
    path.write_text("".join(json.dumps(c) + "\n" for c in cells))


def compared(data: CampaignData) -> VerdictDocument:
    """The comparison that `dsv4bench compare FOLDER` makes, without a store."""
    arms = {a.name: a for a in data.arms}
    base, shares = data.arms[0], data.shares.shares if data.shares is not None else []
    cells, levers, spec = [], [], []
    for arm in data.arms[1:]:
        parent = arms[arm.parent or base.name]
        lever = lever_verdict(parent, arm)
        bounds = lever_bounds(parent, arm, shares)
        metrics = ["output_tok_s"]
        cells += compare_arms(parent, arm, versus="parent", metrics=metrics, bounds=bounds, lever=lever)
        if parent is not base:
            cells += compare_arms(base, arm, versus="baseline", metrics=metrics)
        levers.append(lever)
        spec += speculation(parent, arm)
    inputs = [InputNote(name=a.name, source=a.source, ids=a.ids, cells_sha256="ab" * 32) for a in data.arms]
    document = VerdictDocument(
        baseline=base.name,
        inputs=inputs,
        cells=cells,
        levers=levers,
        speculation=spec,
        scaling=scaling_report(data.arms),
    )
    return complete(document, data.arms, claims=data.claims, shares=data.shares, goal=data.goal, setup=data.setup)


def audits(folder: Path = FOLDER) -> dict[str, ClaimAudit]:
    return {a.claim: a for a in compared(load_campaign(folder)).claims}


def found(audit: ClaimAudit) -> str:
    return "\n".join(audit.found)
