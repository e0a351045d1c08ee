"""Which stored comparisons belong in the findings: each campaign's own, and the newest of each set of configurations.

A comparison made by hand, all of whose experiments are in a campaign's own comparison, does not stand beside it,
older or newer. Of several comparisons of one run of a campaign (they share an experiment) the fullest stands: that of
the most experiments, then of the most metrics, then the newest.

Else a comparison is superseded by a newer one when all its experiments are in the newer one and the baseline is the
same, or when both compare configurations of the same names on the same GPU. The last is told by the first experiment
of each that can be read; a GPU that nobody tells is taken for the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4bench.errors import BenchError
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.report.findings.gpu import gpu_names
from dsv4bench.store.store import Store


def newest(root: Path | str, documents: Sequence[VerdictDocument]) -> list[VerdictDocument]:
    """Those that no newer one supersedes, the newest first. Those that ended in an error are none."""
    sound = [d for d in documents if d.error is None]
    own = [d for d in sound if d.campaign]
    standing = [d for d in sound if not any(_contains(c, d) if not d.campaign else _fuller(c, d) for c in own)]
    ranked = sorted(standing, key=lambda d: (d.created_utc or "", d.id or ""), reverse=True)
    gpus = _Gpus(root)
    kept: list[VerdictDocument] = []
    for i, d in enumerate(ranked):
        if not any(_supersedes(newer, d, gpus) for newer in ranked[:i]):
            kept.append(d)
    return kept


def _contains(campaign: VerdictDocument, d: VerdictDocument) -> bool:
    """Whether a campaign's own comparison is of all the experiments of another, and so of its question, too."""
    return bool(_experiments(d)) and _experiments(d) <= _experiments(campaign)


def _fuller(one: VerdictDocument, other: VerdictDocument) -> bool:
    """Whether both are of one run of a campaign, and this one is of more."""
    return _one_run(one, other) and _extent(one) > _extent(other)


def _one_run(one: VerdictDocument, other: VerdictDocument) -> bool:
    return bool(one.campaign) and one.campaign == other.campaign and bool(_experiments(one) & _experiments(other))


def _extent(d: VerdictDocument) -> tuple[int, int]:
    return len(_experiments(d)), len({v.metric for v in d.cells})


def _supersedes(newer: VerdictDocument, older: VerdictDocument, gpus: _Gpus) -> bool:
    mine, theirs = _experiments(newer), _experiments(older)
    if _one_run(newer, older):
        return True
    if theirs and theirs <= mine and newer.baseline == older.baseline:
        return True
    return _subject(newer) == _subject(older) and gpus.same(newer, older)


def _experiments(d: VerdictDocument) -> set[tuple[str, str]]:
    return {(note.source, i) for note in d.inputs for i in note.ids}


def _subject(d: VerdictDocument) -> tuple[str, ...]:
    """Configurations of one name in two campaigns are not the same ones."""
    return d.campaign or "", *sorted(f"{i.source}/{i.name}" for i in d.inputs)


class _Gpus:
    """Each comparison's GPUs, read once and only where two might be the same."""

    def __init__(self, root: Path | str) -> None:
        self._store = Store(root)
        self._known: dict[str, frozenset[str]] = {}

    def same(self, one: VerdictDocument, other: VerdictDocument) -> bool:
        a, b = self._of(one), self._of(other)
        return not a or not b or a == b

    def _of(self, d: VerdictDocument) -> frozenset[str]:
        key = d.id or ""
        if key not in self._known:
            self._known[key] = self._read(d)
        return self._known[key]

    def _read(self, d: VerdictDocument) -> frozenset[str]:
        for source, experiment_id in sorted(_experiments(d)):
            if source == "dsv4bench":
                try:
                    return frozenset(gpu_names(self._store.open(experiment_id).experiment))
                except BenchError:
                    continue
        return frozenset()
