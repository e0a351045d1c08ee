"""`dsv4bench kernels list | check | bench | ab | inspect`: the hot kernels, and what they run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError
    from dsv4bench.records.kernels import ParityDocument

app = typer.Typer(
    help="The hot kernels: right or not, how fast, on which unit.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("list")
def list_kernels(
    names: str | None = typer.Option(None, "--kernels", help="Only these, e.g. slot_gemv,sparse_decode_per_head."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """List the kernels, and what can be loaded here.

    Inputs as typed shapes, architectures, bytes and FLOPs of a call.
    """
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.kernels import kernels_list_lines, kernels_list_table
    from dsv4bench.runs.kernels_list import run_list

    document = run_list(names)
    if json_out:
        typer.echo(encode(document).decode())
        return
    wide_console().print(kernels_list_table(document))
    for line in kernels_list_lines(document):
        typer.echo(line)


@app.command()
def check(
    names: str | None = typer.Option(None, "--kernels", help="Only these; peers are checked when named."),
    device: str = typer.Option("auto", help="auto, cuda, or cpu (Triton's interpreter, small shapes)."),
    small: bool = typer.Option(False, "--small", help="The short list of small shapes, also on a GPU."),
    case: str | None = typer.Option(None, "--case", help="Only cases whose label holds this text."),
    seed: int = typer.Option(0, help="Seed of the generated data."),
    out: str = typer.Option("results", help="The results folder; `kernels bench` reads the parity there."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Compare each kernel with a float64 reference.

    Over generated cases; what is green is recorded, and `kernels bench` times nothing else.

    Exit codes: 0 green, 1 red, 2 usage, 4 nothing could be checked.
    """
    _need_libraries("check")
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.kernels_parity import print_parity
    from dsv4bench.runs.kernels_check import CheckOptions, run_check

    options = CheckOptions(names=names, device=device, small=small, only=case, seed=seed, out=out)
    document = run_check(options, _say)
    error = _outcome(document)
    if json_out:
        typer.echo(encode(_with_error(document, error)).decode())
    else:
        print_parity(document, wide_console())
    if error is not None:
        from dsv4bench.cli.main import print_error

        print_error(error)
        raise typer.Exit(error.exit_code)


@app.command()
def bench(
    batch: str = typer.Option("1,2,4,8,16,32,64", help="Tokens, or requests, of a call."),
    names: str | None = typer.Option(None, "--kernels", help="Only these, e.g. slot_gemv,marlin."),
    component: str | None = typer.Option(None, help="moe or attention. Default both."),
    peers: str | None = typer.Option(None, help="A Python file that defines PEERS: kernels of your own."),
    counters: bool = typer.Option(
        False, "--counters", help="Tensor-pipe and DRAM activity beside the times; needs ncu."
    ),
    seed: int = typer.Option(0, help="Seed of the generated data."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Time all kernels and public peers in one run. Needs a GPU.

    Beside the read ceiling of that run. Only kernels whose parity `kernels check` recorded as green are timed; peers
    are checked within the run.
    """
    _need_libraries("bench")
    from dsv4bench.cli.values import integers
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.kernels_times import print_bench
    from dsv4bench.runs.kernels_bench import BenchOptions, run_bench

    options = BenchOptions(
        names=names,
        batch=integers(batch, "--batch") or [],
        component=component,
        peers=peers,
        counters=counters,
        seed=seed,
        out=out,
    )
    document = run_bench(options, _say)
    if json_out:
        typer.echo(encode(document).decode())
    else:
        print_bench(document, wide_console())


@app.command()
def ab(
    name: str = typer.Argument(..., help="The kernel that is judged."),
    against: str | None = typer.Option(None, help="The other side. Default: the fallback that it replaces."),
    batch: str = typer.Option("1,4,16", help="Tokens, or requests, of a call."),
    pairs: int = typer.Option(6, min=2, help="Pairs of captures a batch, in ABBA order."),
    peers: str | None = typer.Option(None, help="A Python file that defines PEERS: kernels of your own."),
    seed: int = typer.Option(0, help="Seed of the generated data."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Say whether one kernel is faster than another. Needs a GPU.

    Both are timed in turn (ABBA pairs), and `compare`'s statistics judge them.
    """
    _need_libraries("ab")
    from dsv4bench.cli.values import integers
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.kernels_times import print_ab
    from dsv4bench.runs.kernels_ab import AbOptions, run_ab

    sizes = integers(batch, "--batch") or []
    options = AbOptions(name=name, against=against, batch=sizes, pairs=pairs, peers=peers, seed=seed, out=out)
    document = run_ab(options, _say)
    if json_out:
        typer.echo(encode(document).decode())
    else:
        print_ab(document, wide_console())


@app.command()
def inspect(
    arch: str = typer.Option("sm_90,sm_100,sm_120", "--arch", help="Architectures; none of them need be here."),
    names: str | None = typer.Option(None, "--kernels", help="Only these, e.g. slot_gemv,sparse_decode_per_head."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Prove which unit each kernel uses, without the GPU.

    Each is compiled for each architecture, and the MMA instructions of its SASS are counted.

    Exit codes: 0 answered, 2 usage, 4 no kernel could be compiled.
    """
    _need_libraries("inspect")
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.kernels import inspect_lines, inspect_table
    from dsv4bench.runs.kernels_inspect import run_inspect

    document = run_inspect(names, arch, _say)
    if json_out:
        typer.echo(encode(document).decode())
        return
    wide_console().print(inspect_table(document))
    for line in inspect_lines(document):
        typer.echo(line)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _need_libraries(verb: str) -> None:
    """One line instead of an import that fails deep inside. Raises UsageError."""
    import importlib.util

    from dsv4bench.errors import UsageError

    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"kernels {verb} needs {' and '.join(missing)}", "pip install 'dsv4bench[kernels]'")


def _outcome(document: ParityDocument) -> BenchError | None:
    from dsv4bench.errors import MeasuredBad, Unanswerable

    if document.red:
        return MeasuredBad(f"parity is red: {', '.join(document.red)}", "bench refuses these until they are right")
    if not document.green:
        return Unanswerable("no kernel was checked: every case was skipped", "dsv4bench kernels list says why")
    return None


def _with_error(document: ParityDocument, error: BenchError | None) -> ParityDocument:
    import msgspec

    from dsv4bench.records.cell import ErrorNote

    if error is None:
        return document
    note = ErrorNote(message=error.message, hint=error.hint, exit_code=error.exit_code)
    return msgspec.structs.replace(document, error=note)
