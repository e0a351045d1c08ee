"""`dsv4bench list` and `show` know campaigns, and name the file of one that cannot be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from command import Call

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runs"))

from campaign_lab import OUT_OF_MEMORY, Lab

from dsv4bench.records.campaign import CampaignDocument


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def ran(lab: Lab) -> str:
    lab.fails["both"] = [OUT_OF_MEMORY]
    result = lab.run(blocks=2)
    assert result.campaign is not None
    return result.campaign.id


def test_a_list_has_the_campaigns(call: Call, lab: Lab) -> None:
    name = ran(lab)
    done = call("list")
    (line,) = [x for x in done.out.splitlines() if x.startswith(name)]
    assert done.code == 0 and all(word in line for word in ("partial", "3 of 4", "baseline, both"))
    document = json.loads(call("list", "--json").out)
    assert [c["id"] for c in document["campaigns"]] == [name] and len(document["experiments"]) == 3


def test_a_bundle_takes_one_experiment(call: Call, lab: Lab) -> None:
    name = ran(lab)
    for given in ("lab", name, name[:-2]):
        done = call("bundle", given)
        assert done.code == 2 and done.error.startswith(f"{given} is a campaign; bundle takes one experiment: 20")
    first = done.error.split()[-3].rstrip(",")
    made = call("bundle", first, "--to", "my file.json")
    assert (
        made.code == 0
        and f"my file.json: {first}, 1 cells" in made.out
        and "'my file.json' > scenario.yaml" in made.out
    )


def test_a_damaged_one_is_named(call: Call, lab: Lab) -> None:
    name = ran(lab)
    (lab.out / name / "campaign.json").write_text('{"schema": "dsv4bench.campaign/1", "id"')
    done = call("list")
    assert done.code == 0 and f"{name}/campaign.json" in done.err and name not in done.out
    shown = call("show", name)
    assert shown.code == 4 and f"{name}/campaign.json" in shown.error


def test_show_prints_a_campaign_s_header(call: Call, lab: Lab) -> None:
    name = ran(lab)
    done = call("show", name)
    assert done.code == 0 and f"campaign {name}: partial" in done.out
    assert "2/2 complete" in done.out and "1/2 complete, 1 failed" in done.out
    assert "likely cause: GPU memory ran out" in done.out
    document = msgspec.json.decode(call("show", name, "--json").out, type=CampaignDocument)
    assert document.campaign is not None and document.campaign.id == name
    assert call("show", name, "--csv").out.count("\n") == 4  # the head, and a cell of each complete launch


def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one(call: Call, lab: Lab) -> None:
    name = ran(lab)
    assert f"campaign {name}: " in call("show", name[:-2]).out
    assert "campaign " not in call("show", "baseline").out  # a configuration's newest experiment
