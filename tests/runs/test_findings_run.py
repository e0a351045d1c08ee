"""`findings` on a results folder: created, renewed, checked; prose survives, and a hand in a block is seen."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from campaign_samples import FOLDER, change_cell, compared, copied
from gate_store import machine
from store_samples import make_cell, make_experiment
from typer.testing import CliRunner

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.breakdown import BreakdownsDocument
from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.codec import encode
from dsv4bench.records.verdict import InputNote, VerdictDocument
from dsv4bench.runs.campaign_data import load_campaign
from dsv4bench.runs.findings import check_findings, write_findings
from dsv4bench.store import verdict_files
from dsv4bench.store.campaigns import CampaignDir

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "report"))

import report_inputs

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def stored(root: Path, folder: Path = FOLDER, hour: int = 12) -> str:
    document = verdict_files.write(root, compared(load_campaign(folder)), NOW.replace(hour=hour))
    assert document.id is not None
    return document.id


def test_written_checked_renewed(tmp_path: Path) -> None:
    root, file = str(tmp_path / "results"), str(tmp_path / "F.md")
    first = stored(Path(root))
    assert write_findings(root, file).changed
    assert check_findings(root, file).problems == []
    assert not write_findings(root, file).changed
    assert f"[v:{first[-4:]}]" in Path(file).read_text()

    text = (
        Path(file)
        .read_text()
        .replace("## 9 Dead ends\n", "## 9 Dead ends\n\n### 2026-11-29 NCCL (negative)\n\nMine.\n")
    )
    Path(file).write_text(text)
    assert check_findings(root, file).problems == []

    folder = copied(tmp_path)
    change_cell(folder, "B", 16, output_tok_s=30.0)
    second = stored(Path(root), folder, hour=13)
    problems = check_findings(root, file).problems
    assert any("block configs" in p and "is stale" in p for p in problems)
    outcome = write_findings(root, file)
    assert outcome.verdicts == [second]  # the newest of the same configurations
    renewed = Path(file).read_text()
    assert (
        "### 2026-11-29 NCCL (negative)\n\nMine." in renewed
        and "| B | 15.7 ± 0.05 | 23.2 ± 0.05 | 30 ± 0.05" in renewed
    )
    assert check_findings(root, file).problems == [] and check_findings(root, file, [first]).problems != []


def test_an_edited_number_does_not_pass(tmp_path: Path) -> None:
    root, file = str(tmp_path / "results"), tmp_path / "F.md"
    stored(Path(root))
    write_findings(root, str(file))
    text = file.read_text()
    assert "+46.7 % | no verdict" in text
    file.write_text(text.replace("+46.7 % | no verdict", "+47 % | GAIN"))
    (problem,) = check_findings(root, str(file)).problems
    assert "block levers" in problem and "was edited by hand" in problem
    with pytest.raises(UsageError, match="edited by hand: block levers"):
        write_findings(root, str(file))
    assert "+47 % | GAIN" in file.read_text()  # nothing was lost


def test_nothing_compared_and_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no comparison is stored"):
        write_findings(str(tmp_path / "results"), str(tmp_path / "F.md"))
    with pytest.raises(UsageError, match="no such file to check"):
        check_findings(str(tmp_path / "results"), str(tmp_path / "F.md"))
    assert not (tmp_path / "F.md").exists()


def _of_experiment(root: Path, config: str) -> tuple[str, Path]:
    """A stored comparison that names one stored experiment, and its run.json."""
    with make_experiment(root, config, "sc") as experiment:
        experiment.finish()
    document = compared(load_campaign(FOLDER))
    note = InputNote(name=config, source="dsv4bench", ids=[experiment.id], cells_sha256="ab" * 32)
    written = verdict_files.write(root, msgspec.structs.replace(document, inputs=[note]), NOW)
    assert written.id is not None
    return written.id, experiment.path / "run.json"


def test_a_damaged_experiment_leaves_its_comparison_out_and_is_named(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    whole, (damaged, run_json) = stored(root), _of_experiment(root, "mine")
    assert set(write_findings(str(root), file).verdicts) == {whole, damaged}
    run_json.write_text('{"schema": "dsv4bench.experiment/1", "id"')
    outcome = write_findings(str(root), file)
    assert outcome.verdicts == [whole]
    (warning,) = [w for w in outcome.warnings if damaged in w]
    assert str(run_json) in warning and "left out" in warning
    assert check_findings(str(root), file).problems == []
    before = Path(file).read_text()
    with pytest.raises(StoreError, match="no comparison can be shown") as refused:
        write_findings(str(root), file, [damaged])
    assert str(run_json) in refused.value.message and Path(file).read_text() == before


def _experiment(root: Path, config: str, gpu: str = "NVIDIA H200", **fields: object) -> str:
    with make_experiment(root, config, "sc", machine=machine(gpu), **fields) as e:
        e.append_cell(make_cell(gpu_throttle=["sw_power_cap"]))
        e.finish()
    return e.id


def _comparison(root: Path, hour: int, ids: dict[str, list[str]], **fields: object) -> str:
    inputs = [InputNote(name=n, source="dsv4bench", ids=i, cells_sha256="ab" * 8) for n, i in ids.items()]
    document = VerdictDocument(baseline=next(iter(ids)), inputs=inputs, notes=[f"hour {hour}"])
    written = verdict_files.write(root, msgspec.structs.replace(document, **fields), NOW.replace(hour=hour))
    assert written.id is not None
    return written.id


def test_of_one_campaign_only_the_newest_comparison_stands(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    base = [_experiment(root, "baseline") for _ in range(2)]
    mtp, both = _experiment(root, "mtp"), _experiment(root, "both")
    early = _comparison(root, 10, {"baseline": base[:1], "mtp": [mtp]}, campaign="levers")
    late = _comparison(root, 11, {"baseline": base, "mtp": [mtp], "both": [both]}, campaign="levers")
    assert write_findings(str(root), file).verdicts == [late]
    assert early[-4:] not in Path(file).read_text()
    assert write_findings(str(root), file, [early]).verdicts == [early]  # named, it is shown


def test_a_comparison_within_a_newer_one_of_the_same_baseline_is_superseded_and_no_other(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    base, mtp, both, other = (_experiment(root, c) for c in ("baseline", "mtp", "both", "other"))
    _comparison(root, 9, {"baseline": [base], "mtp": [mtp]})
    turned = _comparison(root, 10, {"mtp": [mtp], "both": [both]})  # another question: against mtp
    beyond = _comparison(root, 11, {"baseline": [base], "other": [other]})
    whole = _comparison(root, 12, {"baseline": [base], "mtp": [mtp], "both": [both]})
    assert write_findings(str(root), file).verdicts == [whole, beyond, turned]


def test_the_same_configurations_on_another_gpu_are_another_comparison(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    first = {c: [_experiment(root, c)] for c in ("baseline", "mtp")}
    second = {c: [_experiment(root, c, "NVIDIA GeForce RTX 5090")] for c in ("baseline", "mtp")}
    third = {c: [_experiment(root, c)] for c in ("baseline", "mtp")}
    old, other = _comparison(root, 9, first), _comparison(root, 10, second)
    new = _comparison(root, 11, third)
    assert write_findings(str(root), file).verdicts == [new, other]  # old was on the GPU of new
    text = Path(file).read_text()
    assert "on NVIDIA H200 (sm_90), not sm_120**" in text and "on NVIDIA GeForce RTX 5090 (sm_120)**" in text
    assert "Figures of different GPUs are not comparable" in text and old[-4:] not in text


def test_what_lies_behind_a_comparison_is_read_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    campaign = report_inputs.campaign(notes=["eight of 43 layers"])
    ids = {c: [_experiment(root, c, extra={"campaign": campaign.id})] for c in ("baseline", "mtp")}
    with CampaignDir.begin(root, campaign, "name: x"):
        pass
    stored_breakdown = report_inputs.breakdown("baseline", 1)
    (root / ids["baseline"][0] / "kernels.json").write_bytes(
        encode(BreakdownsDocument(breakdowns=[stored_breakdown]))
    )
    gone = "20261129T000000Z-sc-mtp-00aa"
    _comparison(root, 9, {**ids, "mtp": [*ids["mtp"], gone]}, campaign=campaign.name)
    assert write_findings(str(root), file).warnings == []
    text = Path(file).read_text()
    assert "the campaign's own note: eight of 43 layers" in text and "_mxfp4_slot_gemv_kernel" in text
    assert "sw_power_cap was flagged at" in text
    assert "not in the results folder: 00aa" in text
    (root / campaign.id / "campaign.json").write_text("{")
    (root / ids["baseline"][0] / "kernels.json").write_text("{")
    outcome = write_findings(str(root), file)
    assert ["campaign.json" in w for w in outcome.warnings] == [True, False]
    assert "kernels.json" in outcome.warnings[1] and "eight of 43 layers" not in Path(file).read_text()


def test_the_verb(tmp_path: Path) -> None:
    import typer

    from dsv4bench.cli.findings import findings

    app = typer.Typer()
    app.command()(findings)
    root, file = tmp_path / "results", tmp_path / "F.md"
    stored(root)
    run = CliRunner()
    arguments = ["--file", str(file), "--out", str(root)]
    assert run.invoke(app, arguments).exit_code == 0
    assert run.invoke(app, [*arguments, "--check"]).stdout.endswith("up to date\n")
    file.write_text(file.read_text().replace("258", "1000"))
    done = run.invoke(app, [*arguments, "--check"])
    assert done.exit_code == 1 and "NOT up to date" in done.stdout and "block plan" in done.stdout
    as_json = run.invoke(app, [*arguments, "--check", "--json"])
    assert as_json.exit_code == 1 and as_json.stdout.startswith('{"schema":"dsv4bench.findings/1"')


def test_a_campaign_s_own_comparison_stands_alone_over_parts_of_it_made_by_hand(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    base, both = ([_experiment(root, c) for _ in range(2)] for c in ("baseline", "both"))
    alone = _experiment(root, "alone")
    before = _comparison(root, 9, {"baseline": base[:1], "both": both[:1]})
    assert write_findings(str(root), file).verdicts == [before]
    own = _comparison(root, 10, {"baseline": base, "both": both}, campaign="levers")
    _comparison(root, 11, {"baseline": base[1:], "both": both[1:]})
    turned = _comparison(root, 12, {"both": both, "baseline": base})
    assert write_findings(str(root), file).verdicts == [own]
    assert write_findings(str(root), file, [turned]).verdicts == [turned]  # named, it is shown
    beyond = _comparison(root, 13, {"baseline": base, "alone": [alone]})
    assert write_findings(str(root), file).verdicts == [beyond, own]  # not all of it is the campaign's


def test_of_one_campaign_the_fullest_comparison_stands_and_of_equals_the_newest(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    base, both = ([_experiment(root, c) for _ in range(2)] for c in ("baseline", "both"))
    whole = {"baseline": base, "both": both}
    first = _comparison(root, 9, whole, campaign="levers")
    _comparison(root, 10, {"baseline": base[:1], "both": both[:1]}, campaign="levers")
    assert write_findings(str(root), file).verdicts == [first]
    second = _comparison(root, 11, whole, campaign="levers")
    assert write_findings(str(root), file).verdicts == [second]


def test_a_comparison_that_did_not_end_hides_none(tmp_path: Path) -> None:
    root, file = tmp_path / "results", str(tmp_path / "F.md")
    base, both = _experiment(root, "baseline"), _experiment(root, "both")
    by_hand = _comparison(root, 9, {"baseline": [base], "both": [both]})
    error = ErrorNote(message="no", hint="", exit_code=4)
    _comparison(root, 10, {"baseline": [base], "both": [both]}, campaign="levers", error=error)
    assert write_findings(str(root), file).verdicts == [by_hand]
