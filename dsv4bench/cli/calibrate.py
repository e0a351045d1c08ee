"""`dsv4bench calibrate NAME…`: how much this rig differs from itself."""

from __future__ import annotations

import typer


def calibrate(
    names: list[str] = typer.Argument(..., help="Relaunches of one configuration: ids, or its name with --pool."),
    pool: bool = typer.Option(False, help="Take every complete experiment of the configuration."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Measure this rig's noise, for compare and gate.

    From relaunches of one configuration; repeats of one launch tell the spread of runs only.

    Exit codes: 0 done, 2 usage, 4 the data cannot tell (unsound, not one configuration, nothing repeated).
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.report.calibration import print_calibration
    from dsv4bench.report.console import wide_console
    from dsv4bench.runs.calibrate import run_calibrate

    found, path = run_calibrate(names, out, pool=pool)
    if json_out:
        typer.echo(encode(found).decode())
    else:
        print_calibration(found, str(path), wide_console())
