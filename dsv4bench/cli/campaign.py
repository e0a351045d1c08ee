"""`dsv4bench campaign`: a scenario in; launches, verdicts, findings and a report out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError
    from dsv4bench.runs.campaign import CampaignResult


def campaign(
    scenario: str = typer.Argument(..., help="A scenario file whose configurations have launch commands."),
    out: str = typer.Option("results", help="The results folder."),
    blocks: int | None = typer.Option(None, help="Launches of each configuration, in pairs; 4 allow full verdicts."),
    resume: bool = typer.Option(False, help="Go on with the newest campaign of this scenario; --blocks extends it."),
    stop_after_blocks: int | None = typer.Option(
        None, "--stop-after-blocks", "--max-blocks-now", help="Do so many blocks now, compare, and end; see --resume."
    ),
    stop_after_launches: int | None = typer.Option(
        None, "--stop-after-launches", help="Do so many launches now, compare, and end; see --resume."
    ),
    only: str | None = typer.Option(None, help="Only these configurations, e.g. baseline,mtp."),
    no_profile: bool = typer.Option(False, "--no-profile", help="Sweeps alone."),
    no_report: bool = typer.Option(False, "--no-report", help="No report.html and report.md."),
    findings: str | None = typer.Option(
        None, "--findings", help="The findings file. Default: PROFILE_FINDINGS.md, with another --out inside it."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be launched and how long it takes."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Launch each configuration in paired blocks, sweep, profile, compare, and write the findings.

    Exit codes: 0 done, 1 launches failed or outputs differ, 2 usage or a disk that is full, 130 interrupted.
    """
    from rich.console import Console

    from dsv4bench.cli.values import words
    from dsv4bench.errors import EXIT_BAD, EXIT_INTERRUPTED, BenchError
    from dsv4bench.report.progress import ProgressDisplay
    from dsv4bench.runs.campaign import CampaignResult, run_campaign
    from dsv4bench.runs.campaign_begin import CampaignOptions

    result = CampaignResult(None, None)
    try:
        options = CampaignOptions(
            scenario=scenario,
            out=out,
            blocks=blocks,
            resume=resume,
            dry_run=dry_run,
            stop_after_blocks=stop_after_blocks,
            stop_after_launches=stop_after_launches,
            only=words(only) or [],
            profile=not no_profile,
            report=not no_report,
            findings=findings,
            command=sys.argv[1:],
        )
        with ProgressDisplay(Console(stderr=True), quiet) as display:
            result = run_campaign(options, display.show, display.say)
    except BenchError as e:
        result = result._replace(error=e)
    except KeyboardInterrupt:
        result = result._replace(interrupted=True)
    _print(result, json_out)
    if result.error is not None:
        from dsv4bench.cli.main import print_error

        print_error(result.error)
        if not result.interrupted:
            raise typer.Exit(result.error.exit_code)
    if result.interrupted:
        typer.echo("interrupted; what was measured is kept, --resume goes on", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.plan is None and result.campaign is not None and is_bad(result):
        raise typer.Exit(EXIT_BAD)


def is_bad(result: CampaignResult) -> bool:
    """Whether a launch failed or was left out, or an output differs that should not."""
    from dsv4bench.records.campaign import LaunchStatus

    c = result.campaign
    if c is None:
        return False
    bad = (LaunchStatus.FAILED, LaunchStatus.SKIPPED)
    return any(n.status in bad for n in c.launches) or any(p.same is False for p in c.parity)


def _print(result: CampaignResult, json_out: bool) -> None:
    if json_out:
        _print_json(result, result.error)
    elif result.campaign is not None and result.plan is not None:
        from dsv4bench.report.campaign import plan_lines

        for line in plan_lines(result.campaign, result.plan):
            typer.echo(line)
    elif result.campaign is not None:
        _print_end(result)


def _print_end(result: CampaignResult) -> None:
    from dsv4bench.report.campaign import ending_lines, launch_table, status_line
    from dsv4bench.report.compare import comparison_lines, configuration_table
    from dsv4bench.report.console import wide_console

    c, end = result.campaign, result.conclusion
    assert c is not None, "a campaign that ended"
    console = wide_console()
    document = end.document if end is not None else None
    if end is not None and document is not None:
        for metric in dict.fromkeys(v.metric for v in document.cells):
            console.print(configuration_table(end.arms, document, metric))
            typer.echo("")
        for line in comparison_lines(document):
            typer.echo(line)
        typer.echo("")
    console.print(launch_table(c))
    typer.echo("")
    for line in ending_lines(c, document):
        typer.echo(line)
    typer.echo(status_line(c))
    if result.path is not None:
        typer.echo(f"stored in {result.path}")
    if end is not None:
        for what, path in (("findings", end.findings), ("report", end.report)):
            if path is not None:
                typer.echo(f"{what}: {path}")


def _print_json(result: CampaignResult, error: BenchError | None) -> None:
    from dsv4bench.records.campaign import CampaignDocument
    from dsv4bench.records.cell import ErrorNote
    from dsv4bench.records.codec import encode

    end = result.conclusion
    document = CampaignDocument(
        campaign=result.campaign,
        plan=result.plan,
        path=result.path,
        report=end.report if end is not None else None,
        findings=end.findings if end is not None else None,
        verdict=end.document if end is not None else None,
        warnings=list(end.warnings) if end is not None else [],
        error=None if error is None else ErrorNote(message=error.message, hint=error.hint, exit_code=error.exit_code),
    )
    typer.echo(encode(document).decode())
