"""What lies behind a stored comparison: its experiments with their cells, the campaign that ran them, their profiles.

All of it is what git holds. An experiment that is gone is named; one that cannot be read leaves its comparison out
(SchemaError), for nothing would say what was compared. Cells, a campaign or a profile that cannot be read cost only
what they would have told, and a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4bench.errors import StoreError
from dsv4bench.records.campaign import Campaign, ExperimentData
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.report.findings.data import Compared, Profiled
from dsv4bench.runs.tried import first_breakdowns, tried
from dsv4bench.store import breakdowns, campaigns
from dsv4bench.store.store import Store


def behind(root: str, d: VerdictDocument, warnings: list[str]) -> Compared:
    """Raises SchemaError when an experiment's header cannot be read."""
    store, missing = Store(root), list[str]()
    found: list[ExperimentData] = []
    for experiment_id in [i for note in d.inputs if note.source == "dsv4bench" for i in note.ids]:
        try:
            opened = store.open(experiment_id)
        except StoreError:
            missing.append(experiment_id)
            continue
        cells = tried(opened.cells, warnings) or []
        warnings += [f"{opened.id}: {w}" for w in opened.warnings]
        found.append(ExperimentData(experiment=opened.experiment, cells=cells))
    return Compared(
        document=d,
        experiments=found,
        missing=missing,
        campaign=_campaign(Path(root), found, warnings),
        profiles=_profiles(Path(root), [x.experiment.id for x in found], warnings),
    )


def _campaign(root: Path, found: Sequence[ExperimentData], warnings: list[str]) -> Campaign | None:
    """The one that ran all of them."""
    ids = {str(x.experiment.extra.get("campaign") or "") for x in found}
    folder = campaigns.find(root, ids.pop()) if len(ids) == 1 else None
    if folder is None:
        return None
    opened = tried(lambda: campaigns.CampaignDir.open(folder), warnings)
    return opened.campaign if opened is not None else None


def _profiles(root: Path, ids: Sequence[str], warnings: list[str]) -> list[Profiled]:
    found = first_breakdowns((root / i for i in ids), warnings)
    return [Profiled(source=f"{folder.name}/{breakdowns.KERNELS}", breakdown=b) for folder, b in found]
