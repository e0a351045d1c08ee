"""`dsv4bench doctor`: what this machine can measure, and what to do about the rest."""

from __future__ import annotations

import typer


def doctor(
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Say what this machine can measure, and how to get the rest.

    Client, clocks, disk, GPU, profilers, permission to read counters, optional packages.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.runs.doctor import examine

    findings = examine()
    if json_out:
        typer.echo(encode({"schema": "dsv4bench.doctor/1", "findings": findings}).decode())
        return
    for f in findings:
        typer.echo(f"{'ok  ' if f.ok else 'none'}  {f.what}: {f.found}" + (f"  ({f.remedy})" if f.remedy else ""))
