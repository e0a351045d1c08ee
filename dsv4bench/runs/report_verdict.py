"""A campaign's comparison for its report: the stored one where it was made from these cells, else made anew.

A comparison notes the experiments and the digest of the cells of every configuration that it was made from. Where
they are not those that the report reads (launches were added since, or a file was edited), its verdicts would stand
beside figures that they are not of. Then it is made again, in memory; where that cannot be, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsv4bench.errors import BenchError
from dsv4bench.records.campaign import Campaign
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.runs.campaign_arms import complete_ids
from dsv4bench.runs.compare import CompareOptions, run_compare
from dsv4bench.runs.experiment_arm import arm_of
from dsv4bench.runs.made_from import input_note
from dsv4bench.store.experiment import ExperimentDir


def is_of_these(stored: VerdictDocument, c: Campaign, opened: Mapping[str, ExperimentDir]) -> bool:
    """Whether it was made from the complete launches of every configuration, and from their cells as they are now.

    `opened`: experiments by id; of one that cannot be read the id alone is compared.
    """
    made_from = {note.name: note for note in stored.inputs}
    launched = {config: ids for config in c.configs if (ids := complete_ids(c, config))}
    if set(made_from) != set(launched):
        return False
    for config, ids in launched.items():
        if made_from[config].ids != ids:
            return False
        found = [opened[i] for i in ids if i in opened]
        if len(found) == len(ids) and input_note(arm_of(found)).cells_sha256 != made_from[config].cells_sha256:
            return False
    return True


def made_anew(root: Path, c: Campaign) -> tuple[VerdictDocument | None, str]:
    """The comparison of what is there now, stored nowhere, and a sentence on it; None where none can be made.

    The sentence is empty where none was stored and none can be made, for nothing was lost then.
    """
    was = "the stored comparison was made from other cells" if c.verdict is not None else "no comparison is stored"
    try:
        compared = run_compare(CompareOptions(names=[str(root / c.id)], root=str(root), keep=False))
    except BenchError as e:
        return None, f"{was}: run dsv4bench compare {c.id} ({e.message})" if c.verdict is not None else ""
    return compared.document, f"{was}; the verdicts here were made for this report (dsv4bench compare {c.id})"
