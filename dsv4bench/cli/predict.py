"""`dsv4bench predict`: what a lever shall buy, written down before it is run."""

from __future__ import annotations

import typer


def predict(
    lever: str | None = typer.Argument(None, help="What will be changed; leave it out to see the ledger."),
    config: str | None = typer.Option(
        None, "--config", help="The configuration that will hold the lever; not yet measured."
    ),
    parent: str | None = typer.Option(None, "--parent", help="The configuration it is compared with."),
    concurrency: int = typer.Option(16, "--concurrency", "-c", help="The level."),
    low: float | None = typer.Option(None, "--speedup-low", help="New over base, at least; 1.2 is +20 %."),
    high: float | None = typer.Option(None, "--speedup-high", help="New over base, at most."),
    from_shares: str | None = typer.Option(None, "--from-shares", help="A kernels.json: predict by Amdahl's law."),
    component: str | None = typer.Option(None, "--component", help="Which component gets faster, e.g. moe."),
    kernel_speedup: float | None = typer.Option(None, "--kernel-speedup", help="How much faster; 5 is five times."),
    metric: str = typer.Option("output_tok_s", "--metric", help="The metric that shall change."),
    note: str = typer.Option("", "--note", help="Why."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Write down what a lever shall buy, before it is measured.

    `compare` fills in what it bought. Without a lever the ledger is shown.
    """
    from pathlib import Path

    from dsv4bench.errors import UsageError
    from dsv4bench.records.codec import encode
    from dsv4bench.report.predictions import prediction_line
    from dsv4bench.runs import predictions

    if lever is None:
        _show(out, json_out)
        return
    if config is None:
        raise UsageError(f"{lever}: no --config", "name the configuration that will hold the lever")
    shares = None
    if from_shares is not None:
        if component is None or kernel_speedup is None:
            raise UsageError(f"--from-shares {from_shares}", "it needs --component and --kernel-speedup")
        shares = predictions.FromShares(
            path=Path(from_shares), component=component, kernel_speedup=kernel_speedup, config=parent
        )
    made = predictions.predict(
        out,
        lever,
        config,
        concurrency,
        low=low,
        high=high,
        parent=parent,
        metric=metric,
        shares=shares,
        note=note,
    )
    if json_out:
        typer.echo(encode({"schema": "dsv4bench.prediction/1", "prediction": made}).decode())
    else:
        typer.echo(prediction_line(made))


def _show(out: str, json_out: bool) -> None:
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.predictions import ledger_table
    from dsv4bench.runs.predictions import read_ledger

    ledger, warnings = read_ledger(out)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json_out:
        lines = [{"prediction": p, "measured": m} for p, m in ledger]
        typer.echo(encode({"schema": "dsv4bench.predictions/1", "predictions": lines}).decode())
    elif ledger:
        wide_console().print(ledger_table(ledger))
    else:
        typer.echo(f"{out}: no predictions yet; dsv4bench predict LEVER --config NAME writes one")
