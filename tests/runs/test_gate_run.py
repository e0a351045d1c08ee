"""gate, baseline and calibrate on stored experiments, from the command line's functions down to the files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import typer
from gate_store import machine, stored
from typer.testing import CliRunner, Result

from dsv4bench.cli import baseline as cli_baseline
from dsv4bench.cli import calibrate as cli_calibrate
from dsv4bench.cli import gate as cli_gate
from dsv4bench.compare.injection import changed, sample_arm, slowed, with_few_requests, without_a_level
from dsv4bench.errors import BenchError, StoreError, Unanswerable, UsageError
from dsv4bench.records.codec import decode
from dsv4bench.records.experiment import Status
from dsv4bench.records.gate import GateDocument, Outcome
from dsv4bench.runs.baselines import list_baselines, pinned_id, set_baseline
from dsv4bench.runs.calibrate import run_calibrate
from dsv4bench.runs.gate import run_gate
from dsv4bench.runs.gate_selftest import run_self_test
from dsv4bench.store import calibration

app = typer.Typer()
app.command("gate")(cli_gate.gate)
app.command("calibrate")(cli_calibrate.calibrate)
app.add_typer(cli_baseline.app, name="baseline")

BASE = sample_arm("base", seed=1)
OTHER = sample_arm("other", seed=2)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def pinned(tmp_path: Path) -> str:
    """A results folder's baseline, pinned as main."""
    found = stored(tmp_path, BASE, "baseline", start=0)
    set_baseline(str(tmp_path), "main", found, "first tuned launch")
    return found


# --- baselines -------------------------------------------------------------------------------------------------


def test_a_pin_is_what_a_gate_compares_with(tmp_path: Path, pinned: str) -> None:
    assert pinned_id(str(tmp_path), "main") == pinned
    assert pinned_id(str(tmp_path), pinned) == pinned
    assert pinned_id(str(tmp_path), pinned[:-1]) == pinned
    entry = list_baselines(str(tmp_path)).baselines[0]
    assert (entry.name, entry.id, entry.config, entry.reason) == ("main", pinned, "baseline", "first tuned launch")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "a number is no baseline"),
        ("1", "a number is no baseline"),
        ("0.97", "a number is no baseline"),
        ("2026", "a number is no baseline"),  # the beginning of every id
        ("baseline", "it is not pinned"),
        ("nothing", "neither a pinned name nor an id"),
    ],
)
def test_what_nobody_pinned_is_no_baseline(tmp_path: Path, pinned: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_gate(text, pinned, str(tmp_path))
    assert not (tmp_path / "verdicts").exists()


def test_a_pin_whose_experiment_is_gone_is_an_error(tmp_path: Path, pinned: str) -> None:
    (tmp_path / "baselines.yaml").write_text("main: 20200101T000000Z-c16-x-0000\n")
    with pytest.raises(StoreError, match="pinned to 20200101T000000Z-c16-x-0000, which is not there"):
        run_gate("main", pinned, str(tmp_path))
    assert list_baselines(str(tmp_path)).baselines[0].config is None


def test_only_a_sound_and_complete_experiment_can_be_pinned(tmp_path: Path, pinned: str) -> None:
    root = str(tmp_path)
    aborted = stored(tmp_path, OTHER, "b", start=1000, status=Status.ABORTED)
    broken = changed(OTHER, lambda c: msgspec.structs.replace(c, n_err=2, errors={"http_503": 2}))
    with pytest.raises(Unanswerable, match="incomplete"):
        set_baseline(root, "main", aborted, "why")
    with pytest.raises(Unanswerable, match="http_503"):
        set_baseline(root, "main", stored(tmp_path, broken, "c", start=2000), "why")
    with pytest.raises(UsageError, match="not an experiment's id"):
        set_baseline(root, "main", "baseline", "why")
    with pytest.raises(UsageError, match="is an experiment's id"):
        set_baseline(root, pinned, pinned, "why")
    assert pinned_id(root, "main") == pinned


# --- gate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "outcome", "code"),
    [
        (OTHER, Outcome.PASS, 0),
        (changed(OTHER, slowed(1.4)), Outcome.FAIL, 1),
        (changed(OTHER, with_few_requests), Outcome.INCONCLUSIVE, 3),
        (without_a_level(OTHER), Outcome.NOT_COMPARABLE, 4),
    ],
)
def test_every_outcome_has_its_exit_code(tmp_path: Path, pinned: str, new: Any, outcome: Outcome, code: int) -> None:
    before = (tmp_path / "baselines.yaml").read_bytes()
    found = stored(tmp_path, new, "configB", start=1000)
    junit = tmp_path / "out" / "junit.xml"
    done = command("gate", "--baseline", "main", found, "--out", str(tmp_path), "--json", "--junit", str(junit))
    assert done.exit_code == code
    document = decode(done.stdout.encode(), GateDocument, "stdout")
    assert (document.outcome, document.baseline_id) == (outcome, pinned)
    assert (tmp_path / "baselines.yaml").read_bytes() == before  # a gate never moves a baseline
    kept = tmp_path / "verdicts" / f"{document.id}.json"
    assert decode(kept.read_bytes(), GateDocument, "kept") == document
    assert [len(i.cells_sha256) for i in document.inputs] == [16, 16] and document.inputs[1].ids == [found]
    suite = ElementTree.parse(junit).getroot()[0]
    red = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (red == 0) == (outcome is Outcome.PASS)


def test_a_configuration_selects_its_newest_experiment_as_candidate(tmp_path: Path, pinned: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000)
    document = run_gate("main", "configB", str(tmp_path))
    assert document.outcome is Outcome.PASS and document.inputs[1].ids == [found]


def test_paired_launches_are_found_in_the_store(tmp_path: Path) -> None:
    base = stored(tmp_path, sample_arm("a", 1, blocks=4), "a", start=0)
    new = stored(tmp_path, changed(sample_arm("b", 2, blocks=4, late_min=20), slowed(1.12)), "b", start=5)
    document = run_gate(base, new, str(tmp_path))
    assert (document.mode, document.outcome) == ("paired", Outcome.FAIL)


def test_a_candidate_that_is_the_baseline_is_no_pass(tmp_path: Path, pinned: str) -> None:
    assert run_gate("main", "baseline", str(tmp_path)).outcome is Outcome.NOT_COMPARABLE


def test_a_damaged_line_is_a_missing_cell(tmp_path: Path, pinned: str) -> None:
    """NaN is no JSON; the line is dropped by the reader, and the gate sees that a cell is gone."""
    found = stored(tmp_path, OTHER, "configB", start=1000)
    cells = tmp_path / found / "cells.jsonl"
    lines = [line for line in cells.read_text().splitlines() if '"concurrency":16' not in line]
    cells.write_text("\n".join([*lines, '{"concurrency":16,"output_tok_s":NaN}']) + "\n")
    document = run_gate("main", found, str(tmp_path))
    assert document.outcome is Outcome.NOT_COMPARABLE
    assert any(b.startswith("missing_cell") for b in document.integrity)
    assert any("damaged line" in n for n in document.notes)


def test_an_aborted_candidate_is_not_comparable(tmp_path: Path, pinned: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000, status=Status.ABORTED)
    document = run_gate("main", found, str(tmp_path))
    assert document.outcome is Outcome.NOT_COMPARABLE and document.integrity[0].startswith("incomplete")


def test_other_hardware_is_not_comparable(tmp_path: Path, pinned: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000, machine=machine("Y"))
    document = run_gate("main", found, str(tmp_path))
    assert document.outcome is Outcome.NOT_COMPARABLE and "gpus: X vs Y" in document.integrity[0]


def test_an_override_is_recorded_and_lasts_one_run(tmp_path: Path, pinned: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000)
    words = ("gate", "--baseline", "main", found, "--out", str(tmp_path), "--json")
    wide = decode(command(*words, "--delta", "output_tok_s=0.2").stdout.encode(), GateDocument, "stdout")
    assert wide.overrides == ["--delta output_tok_s=0.2"]
    assert {c.limit_frac for c in wide.cells if c.metric == "output_tok_s"} == {0.2}
    assert {c.limit_frac for c in run_gate("main", found, str(tmp_path)).cells} == {0.1}


@pytest.mark.parametrize(
    "delta", ["output_tok_s=0.01", "output_tok_s=8", "output_tok_s=x", "e2e_p50_s=0.1", "0.05", "output_tok_s=nan"]
)
def test_a_limit_that_says_nothing_is_refused(tmp_path: Path, pinned: str, delta: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000)
    done = command("gate", "--baseline", "main", found, "--out", str(tmp_path), "--delta", delta)
    assert done.exit_code == 2 and done.stdout == ""


def test_an_error_is_red_in_every_output(tmp_path: Path, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that could not even begin must not leave a green or empty report behind."""
    junit, steps = tmp_path / "junit.xml", tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(steps))
    done = command("gate", "--baseline", "1", "x", "--out", str(tmp_path), "--json", "--junit", str(junit))
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 2 and "a number is no baseline" in error["message"] and error["hint"]
    assert ElementTree.parse(junit).getroot()[0].attrib["errors"] == "1"
    assert "gate ERROR" in steps.read_text()
    assert "::error title=gate ERROR::" in done.stderr and "error: --baseline 1" in done.stderr


def test_outside_of_github_nothing_is_annotated(tmp_path: Path, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    done = command("gate", "--baseline", "main", "baseline", "--out", str(tmp_path))
    assert done.exit_code == 4 and "::" not in done.stderr
    assert done.stdout.startswith("NOT COMPARABLE: baseline vs baseline main")


@pytest.mark.parametrize("words", [("x",), ("--baseline", "main")])
def test_a_gate_needs_both_sides(tmp_path: Path, pinned: str, words: tuple[str, ...]) -> None:
    assert command("gate", *words, "--out", str(tmp_path)).exit_code == 2


def test_a_report_that_cannot_be_written_is_no_pass(tmp_path: Path, pinned: str) -> None:
    found = stored(tmp_path, OTHER, "configB", start=1000)
    (tmp_path / "file").write_text("")
    done = command(
        "gate", "--baseline", "main", found, "--out", str(tmp_path), "--junit", str(tmp_path / "file" / "j.xml")
    )
    assert done.exit_code == 2


def test_a_base_measured_again_is_held_against_its_pin(tmp_path: Path, pinned: str) -> None:
    """(36) The machine moved, not the code."""
    again = stored(tmp_path, changed(OTHER, slowed(1.2)), "baseline", start=1000)
    new = stored(tmp_path, changed(sample_arm("c", 3), slowed(1.2)), "configB", start=2000)
    document = run_gate(again, new, str(tmp_path))
    assert document.outcome is Outcome.PASS
    assert any("the base itself moved" in n and f"main ({pinned})" in n for n in document.notes)
    assert not any("itself moved" in n for n in run_gate("main", "configB", str(tmp_path)).notes)


# --- calibrate -------------------------------------------------------------------------------------------------


def test_relaunches_give_the_noise_that_the_gate_uses(tmp_path: Path, pinned: str) -> None:
    ids = [stored(tmp_path, sample_arm(f"r{i}", 10 + i), "baseline", start=1000 * (i + 1)) for i in range(5)]
    found, path = run_calibrate(ids, str(tmp_path))
    assert found.ids == ids and {f.n_launches for f in found.floors} == {5}
    assert calibration.read(tmp_path) == decode(path.read_bytes(), type(found), "file")
    document = run_gate("main", ids[0], str(tmp_path))
    assert document.sigma_source == "calibrated" and document.sigma_launch_frac != 0.015


def test_pooling_takes_every_experiment_of_a_configuration(tmp_path: Path, pinned: str) -> None:
    for i in range(3):
        stored(tmp_path, sample_arm(f"r{i}", 10 + i), "baseline", start=1000 * (i + 1))
    found, _ = run_calibrate(["baseline"], str(tmp_path), pool=True)
    assert {f.n_launches for f in found.floors} == {4} and found.sigma_launch_frac is not None


def test_two_sweeps_of_one_server_are_one_launch(tmp_path: Path, pinned: str) -> None:
    again = stored(tmp_path, OTHER, "baseline", start=0)
    found, _ = run_calibrate([pinned, again], str(tmp_path))
    assert {f.n_launches for f in found.floors} == {1} and {f.n_repeats for f in found.floors} == {10}
    assert found.sigma_launch_frac is None


def test_a_calibration_of_other_hardware_is_not_used(tmp_path: Path, pinned: str) -> None:
    for i in range(4):
        stored(tmp_path, sample_arm(f"r{i}", 10 + i), "other", start=1000 * (i + 1), machine=machine("Y"))
    run_calibrate(["other"], str(tmp_path), pool=True)
    document = run_gate("main", stored(tmp_path, OTHER, "configB", start=9000), str(tmp_path))
    assert document.sigma_source == "assumed" and any("is of other hardware" in n for n in document.notes)


def test_calibrate_on_the_command_line(tmp_path: Path, pinned: str) -> None:
    done = command("calibrate", pinned, "--out", str(tmp_path))
    assert done.exit_code == 0
    assert "σ launch –" in done.stdout and "cannot be told from so few" in done.stdout
    document = json.loads(command("calibrate", pinned, "--out", str(tmp_path), "--json").stdout)
    assert document["schema"] == "dsv4bench.calibration/1"


def test_baseline_on_the_command_line(tmp_path: Path, pinned: str) -> None:
    other = stored(tmp_path, OTHER, "configB", start=1000)
    done = command("baseline", "set", "main", other, "--reason", "newer driver", "--out", str(tmp_path))
    assert done.exit_code == 0 and f"main is now {other} (was {pinned}): newer driver" in done.stdout
    listed = command("baseline", "list", "--out", str(tmp_path))
    assert other in listed.stdout and "newer driver" in listed.stdout
    assert (
        json.loads(command("baseline", "list", "--json", "--out", str(tmp_path)).stdout)["baselines"][0]["before"]
        == pinned
    )
    assert command("baseline", "set", "x", other, "--out", str(tmp_path)).exit_code == 2  # no reason


# --- self-test -------------------------------------------------------------------------------------------------


def test_the_self_test_sees_every_fault(tmp_path: Path) -> None:
    done = command("gate", "--self-test", "--out", str(tmp_path), "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["ok"] and len(document["cases"]) == 10
    assert {c["outcome"] for c in document["cases"]} == {"PASS", "FAIL", "INCONCLUSIVE", "NOT COMPARABLE"}


@pytest.mark.parametrize("always", list(Outcome))
def test_a_blind_gate_is_found_out(tmp_path: Path, always: Outcome) -> None:
    """Whatever it says of everything, it is wrong of something."""
    found = run_self_test(str(tmp_path), judged_by=lambda base, new, rules: GateDocument(outcome=always))
    assert not found.ok
    assert {c.seen for c in found.cases} == {True, False}


def test_a_gate_that_breaks_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(base: Any, new: Any, rules: Any) -> GateDocument:
        raise BenchError("broken")

    monkeypatch.setattr("dsv4bench.runs.gate_selftest.judge", broken)
    found = run_self_test(str(tmp_path), judged_by=broken)
    assert not any(c.seen for c in found.cases) and found.cases[0].reason == "broken"


def test_the_self_test_runs_on_a_stored_baseline(tmp_path: Path, pinned: str) -> None:
    found = run_self_test(str(tmp_path), "main")
    assert found.ok and found.source == pinned


def test_a_baseline_that_is_all_noise_is_no_ground_for_a_gate(tmp_path: Path) -> None:
    rng = random.Random(1)
    noisy = stored(tmp_path, changed(OTHER, lambda c: slowed(rng.uniform(0.5, 2.0))(c)), "noisy", start=0)
    done = command("gate", "--self-test", "--baseline", noisy, "--out", str(tmp_path))
    assert done.exit_code == 1
    assert "MISSED" in done.stdout and "differ too much for a gate to decide anything" in done.stdout


def test_the_self_test_needs_enough_runs(tmp_path: Path) -> None:
    found = stored(tmp_path, sample_arm("few", 1, repeats=2), "few", start=0)
    with pytest.raises(Unanswerable, match="2 runs of a level"):
        run_self_test(str(tmp_path), found)
