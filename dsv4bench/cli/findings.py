"""`dsv4bench findings`: PROFILE_FINDINGS.md from stored comparisons."""

from __future__ import annotations

import typer


def findings(
    verdicts: list[str] | None = typer.Argument(
        None, help="Comparisons by id. Default: the newest of each campaign and of each set of configurations."
    ),
    check: bool = typer.Option(False, "--check", help="Change nothing; exit 1 when a block was edited or is stale."),
    file: str = typer.Option("PROFILE_FINDINGS.md", "--file", help="The file to write or to check."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Write PROFILE_FINDINGS.md from stored comparisons.

    Text outside the marked blocks is kept as it is.

    Exit codes: 0 done, 1 with --check: a block was edited, is stale, missing or unknown, 2 usage.
    """
    from dsv4bench.errors import EXIT_BAD
    from dsv4bench.records.codec import encode
    from dsv4bench.runs.findings import check_findings, write_findings

    run = check_findings if check else write_findings
    outcome = run(out, file, verdicts or [])
    for warning in outcome.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json_out:
        typer.echo(encode({"schema": "dsv4bench.findings/1", "findings": outcome}).decode())
    elif check:
        for problem in outcome.problems:
            typer.echo(f"{outcome.path}: {problem}")
        typer.echo(f"{outcome.path}: {'NOT up to date' if outcome.problems else 'up to date'}")
    else:
        typer.echo(f"{outcome.path}: {'written' if outcome.changed else 'unchanged'}, {', '.join(outcome.verdicts)}")
    if outcome.problems:
        raise typer.Exit(EXIT_BAD)
