"""`dsv4bench import`: other tools' result files into the results folder."""

from __future__ import annotations

import typer


def import_files(
    files: list[str] = typer.Argument(..., metavar="FILE...", help="Result files, or folders that hold some."),
    out: str = typer.Option("results", help="The results folder."),
    name: str | None = typer.Option(None, help="The configuration's name, when the files are of one configuration."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Store other tools' result files as experiments.

    Of vLLM, SGLang, AIPerf, GuideLLM, inference-perf, InferenceX and the sm_120 harness.

    Exit codes: 0 done, 2 usage, 4 an unknown file, or one in which no request succeeded.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.table import print_sweep
    from dsv4bench.runs.importing import ImportDocument
    from dsv4bench.runs.importing import import_files as run

    stored = run(files, out, name)
    if json_out:
        typer.echo(encode(ImportDocument(experiments=stored)).decode())
        return
    for one in stored:
        typer.echo(f"{one.config}, from {one.tool}: {', '.join(one.files)}")
        print_sweep(one.cells, one.path, wide_console())
        for note in one.notes:
            typer.echo(note)
        typer.echo("")
