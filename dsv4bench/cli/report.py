"""`dsv4bench report ID`: a campaign or an experiment as one HTML page that opens anywhere, and as Markdown."""

from __future__ import annotations

import typer


def report(
    name: str = typer.Argument(
        ..., metavar="ID", help="A campaign or an experiment: its id, its beginning, its folder."
    ),
    file: str | None = typer.Option(None, "--file", help="The HTML file. Default report.html in the folder of ID."),
    out: str = typer.Option("results", "--out", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Write report.html and report.md from what is stored."""
    from dsv4bench.records.codec import encode
    from dsv4bench.runs.report import build_report

    written = build_report(out, name, file)
    for warning in written.warnings:
        typer.echo(f"warning: {warning}", err=True)
    paths = [str(p) for p in (written.html, written.markdown) if p is not None]
    if json_out:
        html = None if written.html is None else str(written.html)
        document = {"schema": "dsv4bench.report/1", "html": html, "markdown": str(written.markdown)}
        typer.echo(encode({**document, "warnings": written.warnings}).decode())
        return
    for path in paths:
        typer.echo(path)
