"""`dsv4bench selftest`: the tool's own error on this machine."""

from __future__ import annotations

import typer

from dsv4bench.cli.values import integers


def selftest(
    concurrency: str = typer.Option("1,16,64,256", "--concurrency", "-c", help="Streams at once, e.g. 1,64."),
    itl_ms: float = typer.Option(20.0, help="The paced server's interval between tokens, ms."),
    ttft_ms: float = typer.Option(50.0, help="The paced server's time to the first token, ms."),
    tokens: int = typer.Option(100, help="Tokens a request."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Show the load client's own error on this machine.

    It measures a paced server of known TTFT and token interval, at each number of streams.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.selftest import selftest_table
    from dsv4bench.runs.selftest import run_selftest

    levels = integers(concurrency, "--concurrency") or []
    document = run_selftest(levels, ttft_ms / 1e3, itl_ms / 1e3, tokens, lambda text: typer.echo(text, err=True))
    if json_out:
        typer.echo(encode(document).decode())
    else:
        wide_console().print(selftest_table(document))
        for note in document.notes:
            typer.echo(note)
