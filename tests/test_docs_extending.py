"""The examples of docs/extending.md are run, and the files that it names exist."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path

import pytest

from dsv4bench.records.request import TokenSource
from dsv4bench.runs.profile import ProfileOptions, run_profile
from dsv4bench.scenario.launched_reading import is_launched, read_launched
from dsv4bench.scenario.rules import read_rules
from dsv4bench.server import crash

TOP = Path(__file__).parents[1]
PAGE = (TOP / "docs" / "extending.md").read_text(encoding="utf-8")
TRACE = TOP / "tests" / "data" / "h200_decode_fallback.pt.trace.json.gz"


def block(section: str, language: str, number: int = 0) -> str:
    found = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None, f"no section {section}"
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```", found.group(1), re.M | re.S)
    return blocks[number]


def test_the_files_that_the_page_names_exist() -> None:
    named = re.findall(r"`((?:dsv4bench|tests|scenarios)/[\w./-]+)`", PAGE)
    assert len(named) > 20
    assert not [name for name in named if not (TOP / name).exists()]


def units(rules: list[str]) -> dict[str, float]:
    (device,) = run_profile(ProfileOptions(traces=[f"C16={TRACE}"], rules=rules)).document.devices
    return {u.runs_on: 100 * (u.share_of_busy_frac or 0.0) for u in device.units}


def test_the_rule_changes_what_the_page_says_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(block("A rule", "yaml"), encoding="utf-8")
    assert read_rules(path).components[0].live == "my-grouped"
    figures = r"CUDA cores ([\d.]+) %, unknown ([\d.]+) %"
    said = re.search(f"{figures}; with it {figures}", PAGE)
    assert said is not None
    before, after = units([]), units([str(path)])
    found = (before["cuda"], before["unknown"], after["cuda"], after["unknown"])
    assert [f"{x:.1f}" for x in found] == list(said.groups())


def test_the_importer_reads_its_sample() -> None:
    tool = types.ModuleType("mytool")
    exec(compile(block("An importer", "python"), "mytool.py", "exec"), tool.__dict__)
    record = json.loads(block("An importer", "json"))
    assert tool.is_mine(record) and not tool.is_mine({"clients": 8})
    (level,) = tool.read(record, "sample.json")
    cell = level.cell
    assert cell.output_tok_s == pytest.approx(400) and cell.request_s == pytest.approx(8)
    assert (cell.n_ok, cell.isl_mean, cell.osl_mean, cell.token_source) == (80, 100, 50, TokenSource.USAGE)
    assert cell.tpot_p50_s == pytest.approx(0.0178) and level.workload == {"model": "m/one"}


def test_the_peer_passes_parity(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from dsv4bench.kernels.cases import SMALL
    from dsv4bench.kernels.parity import green, run_list
    from dsv4bench.kernels.peers.external import load_peers
    from dsv4bench.kernels.shapes import MoeShape

    path = tmp_path / "mine.py"
    path.write_text(block("A kernel", "python"), encoding="utf-8")
    peers = load_peers(path)
    rows = run_list(peers, [c for c in SMALL if isinstance(c, MoeShape)])  # type: ignore[arg-type]
    assert green(rows) == ["slots"], [r.why for r in rows if r.why]


def test_the_crash_rule_leads_to_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = eval(block("A crash cause", "python"), {"_rule": crash._rule})
    line, said = eval(block("A crash cause", "python", 1))
    monkeypatch.setattr(crash, "RULES", (rule, *crash.RULES))
    cause = crash.likely_cause(f"loading\n{line}\n", 1)
    assert cause is not None and said in cause and ";" in cause


def test_the_campaign_validates(tmp_path: Path) -> None:
    text = block("A campaign", "yaml")
    path = tmp_path / "max-running.yaml"
    path.write_text(text, encoding="utf-8")
    assert is_launched(path)
    campaign = read_launched(path, {})
    assert f"scenarios/{campaign.name}.yaml" in text and len(campaign.configs) == 2
