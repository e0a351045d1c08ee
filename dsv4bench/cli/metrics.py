"""`dsv4bench metrics`: every metric with its definition."""

from __future__ import annotations

import typer


def metrics(
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Print what each metric means.

    Its unit, its better direction, the smallest change worth a verdict, its definition.
    """
    from rich.console import Console

    from dsv4bench.metrics import METRICS, VERSION
    from dsv4bench.records.codec import encode
    from dsv4bench.report.definitions import metrics_table

    if json_out:
        typer.echo(encode({"schema": f"dsv4bench.metrics/{VERSION}", "metrics": METRICS}).decode())
    else:
        Console().print(metrics_table(METRICS))
