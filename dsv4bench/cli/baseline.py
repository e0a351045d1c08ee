"""`dsv4bench baseline set NAME ID --reason …` and `baseline list`: what a gate compares with, chosen by a person."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Pin a name to an experiment, for gate and compare.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("set")
def set_baseline(
    name: str = typer.Argument(..., help="The baseline's name."),
    experiment: str = typer.Argument(..., help="The id of a complete experiment, or its beginning."),
    reason: str = typer.Option(..., help="Why this one. It is kept beside the id."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Pin NAME to an experiment.

    A gate never does this by itself. What was pinned before is kept beside the reason.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.records.gate import BaselinesDocument
    from dsv4bench.runs.baselines import set_baseline as run_set

    entry = run_set(out, name, experiment, reason)
    if json_out:
        typer.echo(encode(BaselinesDocument(baselines=[entry])).decode())
    else:
        before = f" (was {entry.before})" if entry.before and entry.before != entry.id else ""
        typer.echo(f"{entry.name} is now {entry.id}{before}: {entry.reason}")


@app.command("list")
def list_baselines(
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Show every pinned name."""
    from dsv4bench.records.codec import encode
    from dsv4bench.report.baselines import baselines_table
    from dsv4bench.report.console import wide_console
    from dsv4bench.runs.baselines import list_baselines as run_list

    document = run_list(out)
    if json_out:
        typer.echo(encode(document).decode())
    elif document.baselines:
        wide_console().print(baselines_table(document))
    else:
        typer.echo(f"{out}: nothing is pinned; dsv4bench baseline set NAME ID --reason … pins one")
