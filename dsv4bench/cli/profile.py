"""`dsv4bench profile`: a running server, or trace files, in; where the decode time went out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError
    from dsv4bench.records.breakdown import BreakdownDocument
    from dsv4bench.runs.live_options import LiveOptions
    from dsv4bench.runs.profile import Profile, ProfileOptions
    from dsv4bench.runs.profile_live import LiveProfile

DEFAULT_CONCURRENCY = [1, 16]
DEFAULT_ISL = 1024

# what only a capture uses, as a user types it: typing it beside --trace is a mistake worth saying
LIVE_ONLY = {
    "launch": "--launch",
    "method": "--with",
    "capture_range": "--range",
    "steps": "--steps",
    "role": "--role",
    "trace_dir": "--trace-dir",
    "keep_trace": "--keep-trace",
    "served_model": "--served-model",
    "endpoint": "--endpoint",
    "dataset": "--dataset",
    "vocab": "--vocab",
    "seed": "--seed",
    "timeout_s": "--timeout",
    "flush_timeout_s": "--flush-timeout",
    "ready_timeout_s": "--ready-timeout",
}


def profile(
    url: str | None = typer.Argument(
        None, help="A running server to capture. Leave it out with --trace or --launch."
    ),
    trace: list[str] = typer.Option(
        [], "--trace", help="[LABEL=]FILE; repeatable. Files of one label are the ranks of one capture."
    ),
    kernel_breakdown: bool = typer.Option(
        True, "--kernel-breakdown", show_default=False, help="Components and kernels. Always on."
    ),
    concurrency: str | None = typer.Option(
        None, "--concurrency", "-c", help="Levels to capture at. Default 1,16. With --trace: the level of each label."
    ),
    isl: int | None = typer.Option(None, help="Prompt tokens. Default 1024 for a capture."),
    name: str | None = typer.Option(None, "--name", help="Store the breakdown under this configuration."),
    method: Literal["torch", "nsys", "ncu", "pm"] | None = typer.Option(
        None,
        "--with",
        help="What records: the server's torch profiler, nsys, PM sampling, or ncu (kernels alone). Default torch.",
    ),
    capture_range: Literal["outside", "server"] | None = typer.Option(
        None,
        "--range",
        help="With nsys: who bounds a window. Default outside (nsys); server: its cudaProfilerStart/Stop.",
    ),
    launch: str | None = typer.Option(
        None, help="A server command to start for the capture; it is ended afterwards."
    ),
    kernels: str | None = typer.Option(
        None, help="With ncu: bundled kernels (see kernels list), or with --launch the functions to count."
    ),
    steps: int | None = typer.Option(None, help="Decode steps in a window. Default 30."),
    role: str | None = typer.Option(None, help="decode=URL[,prefill=URL]: the workers behind a front end."),
    trace_dir: str | None = typer.Option(
        None, help="The folder that the server writes its traces to, when it does not tell."
    ),
    keep_trace: str | None = typer.Option(None, help="With nsys: a folder for its reports, which hold secrets."),
    gpu_only: bool = typer.Option(False, "--gpu-only", help="No CPU events in a torch trace: less inflation."),
    served_model: str | None = typer.Option(None, help="The model's name, when the server lists several."),
    endpoint: Literal["completions", "chat"] | None = typer.Option(
        None, help="What the load uses. Default completions."
    ),
    dataset: str | None = typer.Option(
        None, help="random, chat, or a JSONL or ShareGPT file. Default random; chat with --endpoint chat."
    ),
    vocab: int | None = typer.Option(None, help="Vocabulary size, when the server does not tell it."),
    seed: int | None = typer.Option(None, help="Seed of the prompts. Default: a fresh one."),
    header: list[str] = typer.Option([], help="A header K:V; repeatable. A key goes into DSV4BENCH_API_KEY instead."),
    insecure: bool = typer.Option(False, help="Do not verify the TLS certificate."),
    timeout: str | None = typer.Option(None, help="A request silent for this long has stalled. Default 300s."),
    flush_timeout: str | None = typer.Option(
        None, help="How long the server may take to write its trace. Default 30m."
    ),
    ready_timeout: str | None = typer.Option(
        None, help="How long a launched server may take to answer. Default 30m."
    ),
    rules: list[str] = typer.Option(
        [], "--rules", help="A YAML file of rules, asked before the packaged ones; repeatable."
    ),
    cubins: list[str] = typer.Option(
        [],
        "--cubins",
        help="A folder of cubins, or a Triton cache, that proves what kernels run on; repeatable. With --launch: "
        "the server's own cache.",
    ),
    target: float | None = typer.Option(
        None, help="The output tok/s that you want to reach, at the highest concurrency."
    ),
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
        None, help="Tensor parallelism, for the roofline. Default: the ranks of the label."
    ),
    kernel_speedup: list[str] = typer.Option(
        [], help="COMPONENT=K from a measured kernel A/B, e.g. moe=4; repeatable."
    ),
    top: int = typer.Option(20, min=1, help="How many kernels to print."),
    out: str = typer.Option("results", help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Say where the decode time went, and what is worth changing.

    By kernel, component, unit and decode step: of a running server, captured at each concurrency, or of trace files.

    Exit codes: 0 answered, 1 the load or the server failed, 2 usage, 4 no file can answer (no kernels in it, damaged,
    of another kind, on another host), 130 interrupted.
    """
    from dsv4bench.cli.values import integers, seconds
    from dsv4bench.errors import EXIT_INTERRUPTED, BenchError
    from dsv4bench.records.breakdown import BreakdownDocument
    from dsv4bench.runs.profile import ProfileOptions, run_profile

    found: Profile | None = None
    error: BenchError | None = None
    interrupted = False
    try:
        live = {
            "launch": launch,
            "method": method,
            "capture_range": capture_range,
            "steps": steps,
            "role": role,
            "trace_dir": trace_dir,
            "keep_trace": keep_trace,
            "served_model": served_model,
            "endpoint": endpoint,
            "dataset": dataset,
            "vocab": vocab,
            "seed": seed,
            "timeout_s": seconds(timeout, "--timeout"),
            "flush_timeout_s": seconds(flush_timeout, "--flush-timeout"),
            "ready_timeout_s": seconds(ready_timeout, "--ready-timeout"),
        }
        live = {k: v for k, v in live.items() if v is not None}
        levels = integers(concurrency, "--concurrency") or []
        base = ProfileOptions(
            traces=trace,
            rules=rules,
            cubins=cubins,
            config=name,
            concurrency=levels,
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
        _refuse_rivals(url, trace, live, kernels)
        if method == "ncu":
            found = _count(base, url, launch, kernels, levels, quiet)
        elif trace:
            found = run_profile(base)
        else:
            fixed = {"headers": header, "insecure": insecure, "gpu_only": gpu_only, "root": out, "name": name}
            captured = _capture(_live_options(url, levels, isl, live, fixed), base, quiet)
            found, error, interrupted = captured
        if not json_out:
            _print(found, top)
    except BenchError as e:
        error = e
    except KeyboardInterrupt:
        interrupted = True
    if json_out:
        _print_json(found.document if found is not None else BreakdownDocument(), error)
    if error is not None:
        from dsv4bench.cli.main import print_error

        print_error(error)
        if not interrupted:
            raise typer.Exit(error.exit_code)
    if interrupted:
        kept = "; what was captured is kept" if found is not None else "; nothing was captured"
        typer.echo(f"interrupted{kept}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)


def _refuse_rivals(url: str | None, traces: list[str], live: dict[str, Any], kernels: str | None) -> None:
    """Files and a server exclude each other; with neither, what could be named. ncu goes with either or alone."""
    from dsv4bench.errors import UsageError
    from dsv4bench.runs.by_hand import how_to_trace

    if live.get("method") == "ncu":
        if "capture_range" in live:
            raise UsageError("--range with --with ncu", "it says who bounds a window of nsys")
        return
    if kernels is not None:
        raise UsageError(f"--kernels {kernels} without --with ncu", "a breakdown is of all kernels")
    if url is not None and traces:
        raise UsageError(f"{url} beside --trace", "leave the URL out to read the files, or --trace to capture")
    if traces and live:
        raise UsageError(f"{LIVE_ONLY[next(iter(live))]} beside --trace", "it is for capturing a running server")
    if not traces and url is None and "launch" not in live:
        raise UsageError("neither a server nor a trace was named", how_to_trace("http://127.0.0.1:30000"))


def _live_options(
    url: str | None, levels: list[int], isl: int | None, live: dict[str, Any], fixed: dict[str, Any]
) -> LiveOptions:
    from dsv4bench.runs.live_options import LiveOptions, roles_of

    given = dict(live)
    given["roles"] = roles_of(given.pop("role", None))
    if "served_model" in given:
        given["model"] = given.pop("served_model")
    return LiveOptions(
        url=url, concurrency=levels or DEFAULT_CONCURRENCY, isl=DEFAULT_ISL if isl is None else isl, **given, **fixed
    )


def _count(
    base: ProfileOptions, url: str | None, launch: str | None, kernels: str | None, levels: list[int], quiet: bool
) -> Profile:
    from rich.console import Console

    from dsv4bench.report.progress import ProgressDisplay
    from dsv4bench.runs.profile_counted import run_profile_counted
    from dsv4bench.runs.profile_ncu import NcuOptions

    asked = NcuOptions(kernels=kernels, batches=levels or DEFAULT_CONCURRENCY, launch=launch)
    with ProgressDisplay(Console(stderr=True), quiet) as display:
        return run_profile_counted(base, asked, url, display.say)


def _capture(o: LiveOptions, base: ProfileOptions, quiet: bool) -> LiveProfile:
    from rich.console import Console

    from dsv4bench.report.progress import ProgressDisplay
    from dsv4bench.runs.profile_live import run_profile_live

    with ProgressDisplay(Console(stderr=True), quiet) as display:
        return run_profile_live(o, base, display.say)


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
