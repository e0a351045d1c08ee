"""`dsv4bench gate --baseline NAME CANDIDATE`: a verdict, and an exit code that a CI job can rest on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError
    from dsv4bench.records.gate import GateDocument


def gate(
    candidate: str | None = typer.Argument(None, help="What is judged: an id, a configuration's name, a file."),
    baseline: str | None = typer.Option(None, help="A name pinned with `baseline set`, or an experiment's id."),
    campaign: str | None = typer.Option(
        None,
        help="A campaign's name or id: baseline and candidate are configurations of it, judged in pairs of launches.",
    ),
    out: str = typer.Option("results", help="The results folder."),
    delta: list[str] = typer.Option(
        [], help="A metric's limit for this run only, e.g. output_tok_s=0.08; repeatable."
    ),
    max_error_frac: float = typer.Option(0.0, min=0.0, max=1.0, help="Failed requests allowed, as a fraction."),
    junit: Path | None = typer.Option(None, help="A file to write the verdict to as JUnit XML, whatever it is."),
    self_test: bool = typer.Option(False, help="Put known faults before the gate; exit 1 when it misses one."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Say whether a candidate is shown to be as fast as a baseline.

    It never passes because nothing was measured, and it never moves a baseline.

    Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 INCONCLUSIVE, 4 NOT COMPARABLE (unsound, missing or unlike data).
    """
    if self_test:
        _self_test(out, baseline, json_out)
        return
    from dsv4bench.cli.main import print_error
    from dsv4bench.errors import BenchError
    from dsv4bench.records.cell import ErrorNote
    from dsv4bench.records.gate import GateDocument
    from dsv4bench.runs.gate import EXIT_CODES

    error: BenchError | None = None
    try:
        document = _judged(baseline, candidate, out, delta, max_error_frac, campaign)
    except BenchError as e:
        note = ErrorNote(message=e.message, hint=e.hint, exit_code=e.exit_code)
        error, document = e, GateDocument(baseline=baseline, candidate=candidate, error=note)
    code = error.exit_code if error is not None else EXIT_CODES[document.outcome] if document.outcome else 4
    try:
        _publish(document, junit)
    except BenchError as e:
        print_error(e)
        code = code or e.exit_code
    _print(document, json_out, error)
    if code:
        raise typer.Exit(code)


def _judged(
    baseline: str | None,
    candidate: str | None,
    out: str,
    delta: list[str],
    max_error_frac: float,
    campaign: str | None,
) -> GateDocument:
    from dsv4bench.errors import UsageError
    from dsv4bench.runs.gate import run_gate

    if baseline is None or candidate is None:
        missing = "--baseline NAME" if baseline is None else "a candidate"
        raise UsageError(f"gate needs {missing}", "dsv4bench gate --baseline NAME CANDIDATE")
    overrides = [f"--delta {d}" for d in delta]
    overrides += [f"--max-error-frac {max_error_frac:g}"] if max_error_frac else []
    return run_gate(
        baseline,
        candidate,
        out,
        limits_frac=_limits(delta),
        max_error_frac=max_error_frac,
        overrides=overrides,
        campaign=campaign,
    )


def _limits(delta: list[str]) -> dict[str, float]:
    """`output_tok_s=0.08`. Raises UsageError."""
    from dsv4bench.compare.gate import GATING
    from dsv4bench.errors import UsageError

    limits: dict[str, float] = {}
    for text in delta:
        metric, _, value = text.partition("=")
        if metric not in GATING:
            raise UsageError(f"--delta {text}: {metric!r} is no gating metric", f"gated by are {', '.join(GATING)}")
        try:
            limits[metric] = float(value)
        except ValueError:
            raise UsageError(f"--delta {text}: no number", f"for instance --delta {metric}=0.08") from None
        if not 0 < limits[metric] < 1:
            raise UsageError(f"--delta {text}: not between 0 and 1", f"8 % is --delta {metric}=0.08")
    return limits


def _publish(document: GateDocument, junit: Path | None) -> None:
    """JUnit where asked; annotations and step summary where GitHub Actions runs this."""
    from dsv4bench.report.github import summary, workflow_commands
    from dsv4bench.report.junit import junit_xml

    if junit is not None:
        _write(junit, junit_xml(document), append=False)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in workflow_commands(document):
            typer.echo(line, err=True)  # the runner reads both streams; stdout stays one document
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if path:
            _write(Path(path), summary(document).encode(), append=True)


def _write(path: Path, data: bytes, append: bool) -> None:
    from dsv4bench.errors import UsageError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if append else "wb") as f:
            f.write(data)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror}", "choose another place") from e


def _print(document: GateDocument, json_out: bool, error: BenchError | None) -> None:
    from dsv4bench.cli.main import print_error
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.gate import print_gate

    if json_out:
        typer.echo(encode(document).decode())
    elif error is None:
        print_gate(document, wide_console())
    if error is not None:
        print_error(error)


def _self_test(out: str, baseline: str | None, json_out: bool) -> None:
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.gate import print_self_test
    from dsv4bench.runs.gate_selftest import run_self_test

    document = run_self_test(out, baseline)
    if json_out:
        typer.echo(encode(document).decode())
    else:
        print_self_test(document, wide_console())
    if not document.ok:
        raise typer.Exit(1)
