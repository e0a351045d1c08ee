"""`dsv4bench bundle`: one experiment in one file."""

from __future__ import annotations

import typer


def bundle(
    name: str = typer.Argument(..., help="An id, or its beginning, or a configuration's name."),
    to: str | None = typer.Option(None, "--to", help="The file to write. Default ID.bundle.json."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Pack one experiment into one file that others can repeat.

    Scenario, command, versions and cells, without secrets.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.runs.bundle import bundle as write_bundle
    from dsv4bench.runs.bundle import reproduce

    made, path = write_bundle(out, name, to)
    for warning in made.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json_out:
        typer.echo(encode(made).decode())
    else:
        typer.echo(f"{path}: {made.id}, {len(made.cells)} cells")
        for line in reproduce(made.experiment, str(path)):
            typer.echo(f"  {line}")
