"""`findings` on a results folder: created, renewed, checked; prose survives, and a hand in a block is seen."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from campaign_samples import FOLDER, change_cell, compared, copied
from store_samples import make_experiment
from typer.testing import CliRunner

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.verdict import InputNote
from dsv4bench.runs.campaign_data import load_campaign
from dsv4bench.runs.findings import check_findings, write_findings
from dsv4bench.store import verdict_files

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
    assert "+46.7 % no verdict" in text
    file.write_text(text.replace("+46.7 % no verdict", "+47 % GAIN"))
    (problem,) = check_findings(root, str(file)).problems
    assert "block levers" in problem and "was edited by hand" in problem
    with pytest.raises(UsageError, match="edited by hand: block levers"):
        write_findings(root, str(file))
    assert "+47 % GAIN" in file.read_text()  # nothing was lost


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
