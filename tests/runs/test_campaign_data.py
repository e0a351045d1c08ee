"""A campaign folder: what the shipped one holds, and the errors of a broken one, with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaign_samples import FOLDER, change_cell, copied

from dsv4bench.errors import SchemaError, UsageError
from dsv4bench.records.request import TokenSource
from dsv4bench.runs.campaign_data import is_campaign, load_campaign

TABLE = {
    "baseline": {1: 10.2, 8: 24.0, 16: 23.2},
    "A": {1: 10.7, 8: 22.6, 16: 23.2},
    "B": {1: 15.7, 8: 23.2, 16: 23.6},
}


def test_the_shipped_folder_holds_the_nine_published_cells() -> None:
    data = load_campaign(FOLDER)
    assert {a.name: {c.concurrency: c.output_tok_s for c in a.cells} for a in data.arms} == TABLE
    assert [(a.parent, a.levers) for a in data.arms] == [
        (None, []),
        ("baseline", ["fp8_cfg", "nccl_ll"]),
        ("A", ["mtp"]),
    ]
    assert data.arms[1].touches == {"fp8_cfg": ["dense"], "nccl_ll": ["comm"]}
    assert {a.source for a in data.arms} == {"published"} and all(a.server is None for a in data.arms)
    cells = [c for a in data.arms for c in a.cells]
    assert all(c.token_source is TokenSource.NONE and c.timestamps == "unknown" for c in cells)
    about = [c for c in cells if c.approximate]
    assert [(c.concurrency, c.rounding) for c in about] == [(8, {"output_tok_s": 0.5})]
    assert all(c.rounding == {"output_tok_s": 0.05} for c in cells if not c.approximate)


def test_only_the_throughput_is_known() -> None:
    from dsv4bench.metrics import BY_NAME

    for arm in load_campaign(FOLDER).arms:
        for cell in arm.cells:
            known = [name for name in BY_NAME if getattr(cell, name, None) is not None]
            assert known == ["output_tok_s"]


def test_the_shipped_shares_are_marked_as_published() -> None:
    shares = load_campaign(FOLDER).shares
    assert shares is not None and shares.published
    assert {s.of for s in shares.shares} == {"unknown"}
    assert {
        s.concurrency: sum(x.share_frac for x in shares.shares if x.concurrency == s.concurrency)
        for s in shares.shares
    } == {
        16: pytest.approx(0.93),
        1: pytest.approx(0.73),
    }
    assert [s.component for s in shares.shares if s.at_most] == ["dense"]


def test_kernels_and_claims_may_be_absent(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "kernels.json").unlink()
    (folder / "claims.yaml").unlink()
    data = load_campaign(folder)
    assert data.shares is None and data.claims == [] and len(data.arms) == 3


def test_what_a_campaign_folder_is(tmp_path: Path) -> None:
    assert is_campaign(FOLDER) and not is_campaign(tmp_path)


def _error(folder: Path) -> str:
    with pytest.raises(UsageError) as e:
        load_campaign(folder)
    assert e.value.hint
    return e.value.message


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("scenario.yaml", "    parent: A", "    parent: C", "scenario.yaml:13: parent C of B is no config above it"),
        ("scenario.yaml", "  - name: B", "  - name: A", "scenario.yaml:12: config A stands there twice"),
        ("scenario.yaml", "{fp8_cfg: [dense]", "{fp8: [dense]", "scenario.yaml:11: fp8 is no lever of A"),
        ("scenario.yaml", "[dense]", "[densest]", "Invalid enum value 'densest'"),
        ("scenario.yaml", "config: baseline}", "config: base}", "target config base is none of baseline, A, B"),
        ("scenario.yaml", "output_tok_s: 1000", "output_tok_s: 0", "scenario.yaml:16: Expected `float` > 0.0"),
        ("scenario.yaml", "    levers: [mtp]", "    lever: mtp", "scenario.yaml:14: Object contains unknown"),
        ("scenario.yaml", "    parent: baseline\n", "", "scenario.yaml:9: A names levers and no parent"),
        ("scenario.yaml", "configs:", "configs: [", "not YAML"),
        ("claims.yaml", "    lever: mtp", "    lever: eagle", "claims.yaml:9: claim S1: eagle is no lever of B"),
        ("claims.yaml", "    config: B\n    lever", "    config: D\n    lever", "claims.yaml:8: claim S1: config D"),
        ("claims.yaml", "id: S2\n", "id: S1\n", "claims.yaml:13: claim S1 stands there twice"),
        ("claims.yaml", "kind: plateau", "kind: plateux", "claims.yaml:44: Invalid value 'plateux'"),
        ("claims.yaml", "    from_concurrency: 8\n", "", "claims.yaml:43: Object missing required"),
        ("cells.jsonl", '"output_tok_s":22.6', '"output_tok_s":"22.6"', "cells.jsonl:5: Expected `float | null`"),
        ("cells.jsonl", '{"config":"A"', '{"config":"Z"', "cells.jsonl:4: config Z is none of baseline, A, B"),
        ("cells.jsonl", '"rounding":{"output', '"rounding":{"outputs', "cells.jsonl:1: rounding or approximate"),
        ("cells.jsonl", '"cell":"r0-c8"', '"cell":"r0-c1"', "cells.jsonl:2: baseline r0-c1 stands on line 1 already"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_line_and_key(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    folder = copied(tmp_path)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    assert said in _error(folder)


def test_missing_empty_and_strange_files(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    kernels = json.loads((folder / "kernels.json").read_text())
    kernels["shares"][0]["config"] = "Q"
    (folder / "kernels.json").write_text(json.dumps(kernels))
    assert "config Q is none of" in _error(folder)
    kernels["shares"][0] |= {"config": "A", "share_frac": 39}
    (folder / "kernels.json").write_text(json.dumps(kernels))
    assert "share 39.0 lies outside 0 to 1" in _error(folder)
    (folder / "kernels.json").write_text('{"schema": "dsv4bench.shares/2", "shares": []}')
    with pytest.raises(SchemaError, match=r"reads dsv4bench\.shares up to version 1"):
        load_campaign(folder)
    (folder / "cells.jsonl").write_text("\n")
    assert "no cells" in _error(folder)
    (folder / "cells.jsonl").unlink()
    assert "cells.jsonl: No such file" in _error(folder)
    (folder / "scenario.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in _error(folder)


def test_a_changed_cell_is_read_as_changed(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    change_cell(folder, "B", 16, output_tok_s=30.5)
    assert load_campaign(folder).arms[2].cells[2].output_tok_s == 30.5
