"""`dsv4bench profile` at the command line: one document on stdout in every case, exit codes, two error lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from profile_traces import write_cpu_only, write_trace
from typer.testing import CliRunner, Result

from dsv4bench.cli.profile import profile
from dsv4bench.records.breakdown import BreakdownDocument

CAMPAIGN = Path(__file__).resolve().parents[2] / "scenarios" / "campaign_2026" / "kernels.json"
DEVICE = {
    *("device", "label", "rank", "file", "window_ns", "kernel_sum_ns", "kernel_busy_ns", "any_busy_ns"),
    *("copy_only_ns", "idle_ns", "opaque_graph_ns", "kernels", "sm_coverage_frac", "components", "rows"),
}
ROW = {"name", "component", "count", "time_ns", "runs_on", "evidence"}


def run(*args: str | Path) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(profile)
    return CliRunner().invoke(app, [str(a) for a in args])


def document(done: Result) -> dict[str, Any]:
    """The one document on stdout, as any reader of it would take it."""
    assert done.stdout.endswith("\n") and done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == "dsv4bench.breakdown/1"
    msgspec.convert(found, BreakdownDocument)
    assert (found["error"] is None) == (done.exit_code == 0)
    return found


def test_the_document_has_the_fields_that_readers_rest_on(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json")
    done = run("--trace", f"c16={trace}", "--kernel-breakdown", "--json")
    assert done.exit_code == 0
    found = document(done)
    assert set(found) >= {"schema", "devices", "steps", "plan", "warnings"}
    (device,) = found["devices"]
    assert set(device) >= DEVICE and device["label"] == "c16" and device["rank"] is None
    assert device["window_ns"] == device["any_busy_ns"] + device["idle_ns"]
    assert all(set(c) >= {"component", "time_ns", "share_of_busy_frac"} for c in device["components"])
    assert device["rows"] and all(set(r) >= ROW for r in device["rows"])
    assert {r["runs_on"] for r in device["rows"]} <= {"tensor", "cuda", "unknown"}
    assert {r["evidence"] for r in device["rows"]} <= {"counter", "sass", "rule", "none"}
    assert set(found["steps"]) >= {"count", "method", "median_ns", "components"}
    assert found["steps"]["median_ns"] == 100_000 and found["plan"][0]["component"] == "moe"


def test_the_terminal_names_denominators_steps_and_the_plan(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json")
    done = run("--trace", trace, "--measured", "160000", "--target", "1000000")
    assert done.exit_code == 0
    for needed in (
        "of sum",
        "of busy",
        "of window",
        "Decode step",
        "found by annotation",
        "Plan at C=16",
        "unattributed",
    ):
        assert needed in done.stdout
    assert "the target of 1000000 tok/s needs 84.0 % of the step to vanish" in done.stdout


def test_published_shares_print_their_residuals_and_the_plan() -> None:
    done = run("--trace", CAMPAIGN)
    assert done.exit_code == 0
    for needed in ("x1.64", "x1.61", "x4.35", "x11.1", "7.0 %", "27.0 %", "needs 97.7 % of the step to vanish"):
        assert needed in done.stdout
    plan = document(run("--trace", CAMPAIGN, "--json"))["plan"]
    assert [f"{s['joint_ratio']:.1f}" for s in plan] == ["1.6", "4.3", "11.1"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_trace_without_kernels_is_exit_code_4(tmp_path: Path, as_json: bool) -> None:
    trace = write_cpu_only(tmp_path / "cpu.json")
    done = run("--trace", trace, *(["--json"] if as_json else []))
    assert done.exit_code == 4
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ")
    if as_json:
        error = document(done)["error"]
        assert error["exit_code"] == 4 and error["hint"] and f"error: {error['message']}" == lines[0]
    else:
        assert done.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ["http://127.0.0.1:1"],
        [],
        ["http://127.0.0.1:1", "--trace", "x"],
        ["--trace", "nosuch"],
        ["--concurrency", "a", "--trace", "x"],
    ],
)
def test_usage_is_exit_code_2_and_still_one_document(args: list[str]) -> None:
    done = run(*args, "--json")
    assert done.exit_code == 2 and document(done)["error"]["exit_code"] == 2


def test_nothing_named_is_answered_with_what_could_be() -> None:
    done = run("--kernel-breakdown")
    assert done.exit_code == 2 and done.stdout == ""
    for needed in (
        "dsv4bench profile http://127.0.0.1:30000 --kernel-breakdown",
        "curl -X POST http://127.0.0.1:30000/start_profile",
        "--cuda-graph-trace=node",
    ):
        assert needed in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["http://h:1", "--with", "nsys"], "--launch"),
        (["http://h:1", "--with", "ncu", "--kernels", "x"], "cannot attach to a running server"),
        (["--with", "ncu"], "--kernels"),
        (["http://h:1", "--kernels", "x"], "without --with ncu"),
        (["http://h:1", "--steps", "3"], "--steps 3: from 12 to 2000"),
        (["http://h:1", "-c", "0"], "--concurrency 0"),
        (["http://h:1", "-c", "4,4"], "stands twice"),
        (["http://h:1", "--role", "middle=http://w"], "--role middle=http://w: not a role"),
        (["http://h:1", "--role", "decode=a,decode=b"], "--role decode stands twice"),
        (["--launch", "serve it", "--role", "decode=http://w"], "--role beside --launch"),
        (["--launch", "a 'b"], "--launch: No closing quotation"),
        (["--launch", "A=1"], "--launch names no command"),
        (["--launch", "nobody-knows-this"], "names no --port"),
        (["http://h:1", "--timeout", "soon"], "--timeout soon: not a duration"),
        (["--trace", "x", "--steps", "20"], "--steps beside --trace"),
        (["--trace", "x", "--launch", "y"], "--launch beside --trace"),
    ],
)
def test_options_that_cannot_go_on_are_named(args: list[str], words: str) -> None:
    done = run(*args)
    assert done.exit_code == 2 and words in done.stderr
    assert "hint: " in done.stderr or "-c" in args


def test_a_stored_breakdown_says_where_it_lies(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json")
    out = tmp_path / "results"
    done = run("--trace", trace, "--name", "baseline", "--isl", "1024", "--out", out, "--json")
    assert done.exit_code == 0 and document(done)["config"] == "baseline"
    stored = out / "breakdowns" / "baseline-c16.json"
    held = json.loads(stored.read_text(encoding="utf-8"))
    assert held["schema"] == "dsv4bench.breakdowns/1" and held["breakdowns"][0]["isl"] == 1024
    terminal = run("--trace", trace, "--name", "baseline", "--out", out)
    assert str(stored) in terminal.stderr
