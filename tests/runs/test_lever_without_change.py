"""A lever that changes nothing: no verdict in a campaign that starts both alike, a true sentence between sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaign_lab import SCENARIO, Lab
from store_samples import make_cell, make_experiment, make_server

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.verdict import LeverStatus, Verdict, VerdictDocument
from dsv4bench.report.page.levers import not_live
from dsv4bench.runs.compare import CompareOptions, run_compare

WHY = "both starts exactly as baseline: the lever changes nothing that is recorded"
BASE = '{name: baseline, launch: "serve --port {port}"}'
BOTH = '{name: both, parent: baseline, lever: kernels, launch: "serve --port {port}"}'


def campaign(
    folder: Path, monkeypatch: pytest.MonkeyPatch, base: str, both: str, args: dict[str, Any]
) -> VerdictDocument:
    head = SCENARIO.partition("configs:")[0]
    lab = Lab(folder, monkeypatch, f"{head}configs:\n  - {base}\n  - {both}\n")
    lab.args = args
    end = lab.run(blocks=2).conclusion
    assert end is not None and end.document is not None
    return end.document


def told(**differs: Any) -> dict[str, Any]:
    return {"baseline": {"kernels": "slow", "port": 1}, "both": {"kernels": "slow", "port": 2, **differs}}


@pytest.mark.parametrize(
    ("base", "both"),
    [
        (BASE, BOTH),
        (BASE.replace('{port}"', '8001", port: 8001'), BOTH.replace('{port}"', '8002", port: 8002')),
        (BASE.replace(' {port}"', '=8001", port: 8001'), BOTH.replace(' {port}"', '=8002", port: 8002')),
        (BASE[:-1] + ", env: {MODE: a}}", BOTH[:-1] + ", env: {MODE: a}}"),
    ],
)
def test_the_same_start_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, both: str) -> None:
    document = campaign(tmp_path, monkeypatch, base, both, told())
    (lever,) = document.levers
    assert (lever.status, lever.notes[0], lever.differing) == (LeverStatus.NOT_LIVE, WHY, {})
    assert not_live(ReportInput(campaign=None, experiments=[], verdict=document)) == [
        f"Lever kernels has no verdict: {'; '.join(lever.notes)}."
    ]
    assert document.cells
    for cell in document.cells:
        assert (cell.verdict, cell.grade) == (Verdict.NOT_COMPARABLE, None)
        assert cell.reason == f"lever not live in both: {WHY}"


@pytest.mark.parametrize(
    ("both", "args", "status"),
    [
        (BOTH, told(kernels="fast"), LeverStatus.VERIFIED),
        (BOTH.replace("serve", "serve --fast"), told(), LeverStatus.UNVERIFIED),
        (BOTH[:-1] + ", env: {MODE: b}}", told(), LeverStatus.UNVERIFIED),
        (BOTH.replace(", lever: kernels", ""), told(), LeverStatus.VERIFIED),  # the same twice, and said to be
    ],
)
def test_whatever_is_recorded_to_differ_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: str, args: dict[str, Any], status: LeverStatus
) -> None:
    document = campaign(tmp_path, monkeypatch, BASE, both, args)
    assert document.levers[0].status is status
    assert {c.verdict for c in document.cells} != {Verdict.NOT_COMPARABLE}


def sweeps(root: Path, base: dict[str, Any] | None, new: dict[str, Any] | None) -> VerdictDocument:
    for i, (name, args) in enumerate((("A", base), ("B", new))):
        with make_experiment(
            root,
            name,
            "sc",
            server=make_server(args=args),
            launches={"L0": 1000.0 + i},
            **({"parent": "A", "lever": "kernels"} if i else {}),
        ) as experiment:
            experiment.append_cell(make_cell(output_tok_s=100.0 + 10 * i))
            experiment.finish()
    return run_compare(CompareOptions(names=["A", "B"], root=str(root))).document


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        ({"kernels": 1}, {"kernels": 1}, "not visible: the servers' recorded settings are equal"),
        ({"kernels": 1}, None, "the server does not tell its arguments"),
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, "which of the settings that differ are the lever's is not said"),
    ],
)
def test_between_sweeps_it_stays_unverified_and_the_note_is_true(
    tmp_path: Path, base: dict[str, Any] | None, new: dict[str, Any] | None, said: str
) -> None:
    document = sweeps(tmp_path, base, new)
    assert document.levers[0].status is LeverStatus.UNVERIFIED
    (note,) = [n for n in document.notes if n.startswith("levers not verified")]
    assert said in note and note.endswith(": B")
