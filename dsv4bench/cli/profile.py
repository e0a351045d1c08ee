"""`dsv4bench profile --trace FILE… --kernel-breakdown`: trace files in, where the decode time went out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError
    from dsv4bench.records.breakdown import BreakdownDocument
    from dsv4bench.runs.profile import Profile


def profile(
    url: str | None = typer.Argument(
        None, help="A server; not read yet, the message says how to make a trace of it."
    ),
    trace: list[str] = typer.Option([], "--trace", help="[LABEL=]FILE, repeatable; one label's files are its ranks."),
    kernel_breakdown: bool = typer.Option(True, "--kernel-breakdown", help="Components and kernels; the default."),
    rules: list[str] = typer.Option([], "--rules", help="A YAML file of rules, before the packaged ones."),
    cubins: list[str] = typer.Option(
        [], "--cubins", help="A folder of cubins or a Triton cache: what kernels run on."
    ),
    name: str | None = typer.Option(None, "--name", help="Store the breakdown under this configuration."),
    concurrency: str | None = typer.Option(None, "--concurrency", "-c", help="Of the trace; one a label, e.g. 1,16."),
    isl: int | None = typer.Option(None, help="Input tokens a request, for the roofline and for the store."),
    target: float | None = typer.Option(None, help="Where you want to arrive, output tok/s."),
    measured: float | None = typer.Option(None, help="Output tok/s without a profiler, at the highest concurrency."),
    inflation: float | None = typer.Option(None, help="Step under the profiler over step without; 1.1 is +10 %."),
    accept_length: float = typer.Option(1.0, help="Tokens a step and sequence under speculative decoding."),
    gpu: str | None = typer.Option(None, help="The GPU of the trace, when it does not tell, for the roofline."),
    bandwidth: float | None = typer.Option(None, help="GB/s of a GPU that is not known, for the roofline."),
    model: str | None = typer.Option(
        None, help="flash, flash-layers or tiny: its bytes and FLOPs give the roofline."
    ),
    layers: int | None = typer.Option(None, help="Layers of --model flash-layers."),
    tp: int | None = typer.Option(
        None, help="Tensor parallelism, for the roofline (default: the ranks of the label)."
    ),
    kernel_speedup: list[str] = typer.Option([], help="COMPONENT=K from a measured kernel A/B, e.g. moe=4."),
    top: int = typer.Option(20, min=1, help="How many kernels to print."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Say which kernels, components and units the decode time went to, and what would be worth changing.

    Exit codes: 0 answered, 2 usage, 4 no file can answer (no kernels in it, damaged, of another kind).
    """
    from dsv4bench.cli.values import integers
    from dsv4bench.errors import BenchError
    from dsv4bench.records.breakdown import BreakdownDocument
    from dsv4bench.runs.profile import ProfileOptions, run_profile

    found: Profile | None = None
    error: BenchError | None = None
    try:
        _refuse_live(url, trace)
        found = run_profile(
            ProfileOptions(
                traces=trace,
                rules=rules,
                cubins=cubins,
                config=name,
                concurrency=integers(concurrency, "--concurrency") or [],
                isl=isl,
                target_tok_s=target,
                measured_tok_s=measured,
                inflation_ratio=inflation,
                accept_length=accept_length,
                gpu=gpu,
                bandwidth_gb_s=bandwidth,
                model=model,
                layers=layers,
                tp=tp,
                kernel_speedups=kernel_speedup,
                root=out,
            )
        )
        if not json_out:
            _print(found, top)
    except BenchError as e:
        error = e
    if json_out:
        _print_json(found.document if found is not None else BreakdownDocument(), error)
    if error is not None:
        from dsv4bench.cli.main import print_error

        print_error(error)
        raise typer.Exit(error.exit_code)


def _refuse_live(url: str | None, traces: list[str]) -> None:
    """A server cannot be profiled by this version; how to do it by hand."""
    from dsv4bench.errors import UsageError
    from dsv4bench.runs.profile import how_to_trace

    if url is not None and traces:
        raise UsageError(f"{url} beside --trace", "leave the URL out: profile reads the files alone")
    if url is not None:
        raise UsageError(f"{url}: live capture is not in this version, profile reads trace files", how_to_trace(url))
    if not traces:
        raise UsageError("no trace was named", how_to_trace("http://127.0.0.1:30000"))


def _print(found: Profile, top: int) -> None:
    from dsv4bench.report.breakdown import print_breakdown
    from dsv4bench.report.console import wide_console

    print_breakdown(found.document, wide_console(), top=top, shares=found.shares)
    for path in found.stored:
        typer.echo(f"stored in {path}", err=True)


def _print_json(document: BreakdownDocument, error: BenchError | None) -> None:
    import msgspec

    from dsv4bench.records.cell import ErrorNote
    from dsv4bench.records.codec import encode

    note = None if error is None else ErrorNote(message=error.message, hint=error.hint, exit_code=error.exit_code)
    typer.echo(encode(msgspec.structs.replace(document, error=note)).decode())
