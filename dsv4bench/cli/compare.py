"""`dsv4bench compare`: configurations in, the configuration table and a verdict per lever out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsv4bench.runs.compare import Comparison


def compare(
    names: list[str] = typer.Argument(..., help="Names, ids, folders or result files; the first is the base."),
    out: str = typer.Option("results", help="The results folder."),
    metric: list[str] = typer.Option(
        [], help="A metric to judge; repeatable. Default output_tok_s, tpot_p50_s, ttft_p50_s."
    ),
    delta: list[str] = typer.Option(
        [], help="The smallest change worth a verdict, e.g. output_tok_s=5%; repeatable."
    ),
    across_hardware: bool = typer.Option(False, help="Compare although the hardware differs; every figure says so."),
    allow_partial: bool = typer.Option(False, help="Compare experiments that did not end."),
    pool: bool = typer.Option(False, help="Join all complete experiments of one configuration and workload."),
    gpu: str | None = typer.Option(None, help="The server's GPU, for the roofline, when nothing tells it."),
    tp: int | None = typer.Option(None, help="Tensor parallelism, for the roofline."),
    keep: bool = typer.Option(True, "--keep/--no-keep", help="Store the verdict under results/verdicts/."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Say what each lever really bought, at each concurrency.

    Every verdict carries its grade; what the data cannot carry is said instead.

    Exit codes: 0 compared, 2 usage, 4 nothing could be compared (unlike workloads or hardware, missing data).
    """
    from dsv4bench.errors import BenchError, Unanswerable
    from dsv4bench.records.cell import ErrorNote
    from dsv4bench.records.codec import encode
    from dsv4bench.records.verdict import Verdict, VerdictDocument
    from dsv4bench.runs.compare import CompareOptions, deltas_of, run_compare

    document = VerdictDocument()
    error: BenchError | None = None
    try:
        options = CompareOptions(
            names=names,
            root=out,
            deltas_frac=dict(deltas_of(delta)),
            across_hardware=across_hardware,
            allow_partial=allow_partial,
            pool=pool,
            gpu=_gpu(gpu),
            tp=tp,
            keep=keep,
            **({"metrics": metric} if metric else {}),
        )
        found = run_compare(options)
        document = found.document
        if document.cells and all(v.verdict is Verdict.NOT_COMPARABLE for v in document.cells):
            why = next(iter(found.refusals), document.cells[0].reason)
            error = Unanswerable(why, "measure both with the same workload on the same hardware")
        if not json_out:
            _print(found)
    except BenchError as e:
        error = e
    if json_out:
        import msgspec

        note = None if error is None else ErrorNote(message=error.message, hint=error.hint, exit_code=error.exit_code)
        typer.echo(encode(msgspec.structs.replace(document, error=note)).decode())
    if error is not None:
        from dsv4bench.cli.main import print_error

        print_error(error)
        raise typer.Exit(error.exit_code)


def _gpu(name: str | None):  # type: ignore[no-untyped-def] # the type would import gpus at start
    from dsv4bench.errors import UsageError
    from dsv4bench.gpus import KNOWN, find

    if name is None:
        return None
    gpu = find(name)
    if gpu is None:
        raise UsageError(f"--gpu {name}: not known", f"known: {', '.join(g.name for g in KNOWN)}")
    return gpu


def _print(found: Comparison) -> None:
    from dsv4bench.report.compare import comparison_lines, configuration_table
    from dsv4bench.report.console import wide_console

    console = wide_console()
    for metric in dict.fromkeys(v.metric for v in found.document.cells):
        console.print(configuration_table(found.arms, found.document, metric))
        typer.echo("")
    for line in comparison_lines(found.document):
        typer.echo(line)
    if found.again:
        typer.echo(f"the same as {found.document.id}, which was stored before: nothing was added")
