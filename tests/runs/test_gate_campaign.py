"""`gate --campaign ID`: two configurations of a campaign, judged in pairs of launches."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_lab import Lab

from dsv4bench.errors import UsageError
from dsv4bench.records.gate import Outcome
from dsv4bench.runs.gate import run_gate


def test_four_blocks_are_four_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, monkeypatch)
    lab.tok_s["both"] = 60.0  # of 100
    campaign = lab.run(blocks=4).campaign
    assert campaign is not None
    document = run_gate("baseline", "both", str(lab.out), campaign=campaign.id)
    assert document.mode == "paired" and {c.n for c in document.cells} == {4}
    assert document.outcome is Outcome.FAIL, document.integrity
    assert [len(i.ids) for i in document.inputs] == [4, 4]


def test_what_a_campaign_does_not_have_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, monkeypatch)
    campaign = lab.run(blocks=1).campaign
    assert campaign is not None
    with pytest.raises(UsageError, match=f"fast is no measured configuration of campaign {campaign.id}"):
        run_gate("baseline", "fast", str(lab.out), campaign=campaign.id)
    with pytest.raises(UsageError, match="--campaign nothing: no campaign of that name or id") as refused:
        run_gate("baseline", "both", str(lab.out), campaign="nothing")
    assert refused.value.hint == "there: lab"


def test_a_campaign_is_named_as_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, monkeypatch)
    campaign = lab.run(blocks=1).campaign
    assert campaign is not None
    for name in ("lab", campaign.id, campaign.id[:-2], str(lab.out / campaign.id)):
        assert (
            run_gate("baseline", "both", str(lab.out), campaign=name).baseline_id == campaign.launches[0].experiment
        )
    with pytest.raises(UsageError, match="it is not pinned") as refused:
        run_gate("baseline", "both", str(lab.out))
    assert "--campaign NAME" in refused.value.hint
