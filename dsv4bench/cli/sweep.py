"""`dsv4bench sweep`: options in, table or one JSON document out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from dsv4bench.cli.values import components, integers, numbers, seconds, slo, slo_from, words

OPTION = {
    "requests": "--requests",
    "duration_s": "--duration",
    "concurrency": "--concurrency",
    "rates_req_s": "--rate",
}
RIVALS = (("requests", "duration_s"), ("concurrency", "rates_req_s"))

if TYPE_CHECKING:
    from dsv4bench.runs.options import SweepOptions
    from dsv4bench.runs.sweep import SweepResult


def sweep(
    url: str | None = typer.Argument(None, help="The server, e.g. http://127.0.0.1:8000 (a path prefix is fine)."),
    concurrency: str | None = typer.Option(None, "--concurrency", "-c", help="Levels, e.g. 1,4,16. Default 1,8,16."),
    isl: str | None = typer.Option(None, help="Prompt tokens; a list gives a cell each. Default 1024."),
    osl: int | None = typer.Option(
        None, help="Output tokens, exact where the server allows. Default 256, or as the dataset's file says."
    ),
    dataset: str | None = typer.Option(
        None, help="random, chat, or a JSONL or ShareGPT file. Default random; chat with --endpoint chat."
    ),
    endpoint: str | None = typer.Option(None, help="completions or chat. Default completions."),
    model: str | None = typer.Option(None, help="The model's name, when the server lists several or none."),
    requests: int | None = typer.Option(None, help="Requests a level. Default max(3·C, 16)."),
    duration: str | None = typer.Option(None, help="Send for this long (60s, 2m), then drain."),
    repeat: int | None = typer.Option(None, help="Times that each level is measured; a verdict needs 5. Default 1."),
    rate: str | None = typer.Option(None, help="Open loop: requests a second, e.g. 0.5,2, instead of levels of C."),
    arrivals: str | None = typer.Option(None, help="Open loop: poisson or constant. Default poisson."),
    slo_text: str | None = typer.Option(None, "--slo", help="Limits for goodput, e.g. ttft=2s,tpot=50ms."),
    scenario: str | None = typer.Option(None, help="A scenario file; options here win over it."),
    name: str | None = typer.Option(None, help="The configuration's name, for compare. Default: default."),
    parent: str | None = typer.Option(None, help="The configuration that this one was made from."),
    lever: str | None = typer.Option(None, help="What was changed against the parent; several are joined by +."),
    lever_keys: str | None = typer.Option(None, help="Server arguments that the lever sets, e.g. speculative*."),
    touches: str | None = typer.Option(None, help="Components that the lever can change, e.g. moe,attention."),
    seed: int | None = typer.Option(None, help="Seed of the prompts. Default: a fresh one, recorded."),
    vocab: int | None = typer.Option(None, help="Vocabulary size, when the server does not tell it."),
    prefix_share: float | None = typer.Option(
        None, help="Part of each prompt that all prompts share, 0 to 1. Default 0."
    ),
    timeout: str | None = typer.Option(None, help="A request silent for this long has stalled. Default 300s."),
    warmup: bool | None = typer.Option(
        None, "--warmup/--no-warmup", help="A short wave of other prompts before each level. Default: yes."
    ),
    ignore_eos: bool = typer.Option(True, "--ignore-eos/--honour-eos", help="Ask for exactly OSL tokens."),
    header: list[str] = typer.Option([], help="A header K:V; repeatable. A key goes into DSV4BENCH_API_KEY instead."),
    insecure: bool = typer.Option(False, help="Do not verify the TLS certificate."),
    out: str = typer.Option("results", help="The results folder."),
    resume: bool = typer.Option(False, help="Go on with the newest unfinished sweep of this name and plan."),
    dry_run: bool = typer.Option(False, help="Probe, estimate the time, and stop."),
    tensor_pipe: bool = typer.Option(
        False, "--tensor-pipe", help="Sample the GPUs' tensor pipe, SMs and DRAM from outside (on the server's host)."
    ),
    tensor_pipe_gpus: str | None = typer.Option(
        None, "--tensor-pipe-gpus", help="These GPUs (nvidia-smi's numbers), e.g. 0,1. Default: all with a process."
    ),
    demo: bool = typer.Option(False, help="Start the embedded server (random weights, CPU) and measure that."),
    demo_kernels: str = typer.Option("fallback", help="Kernels of the embedded server: fallback or optimized."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Measure a running OpenAI-compatible server at each concurrency.

    Exit codes: 0 done, 1 every request of a level failed or the server went away, 2 usage, 130 interrupted.
    """
    from rich.console import Console

    from dsv4bench.errors import EXIT_INTERRUPTED, BenchError, UsageError
    from dsv4bench.report.progress import ProgressDisplay
    from dsv4bench.runs.demo import DEMO_DEFAULTS, check_before_start, demo_server
    from dsv4bench.runs.sweep import SweepResult, run_sweep

    given: dict[str, Any] = {
        "url": url,
        "osl": osl,
        "dataset": dataset,
        "endpoint": endpoint,
        "model": model,
        "requests": requests,
        "repeat": repeat,
        "arrivals": arrivals,
        "name": name,
        "parent": parent,
        "lever": lever,
        "seed": seed,
        "vocab": vocab,
        "prefix_share": prefix_share,
        "warmup": warmup,
    }
    fixed: dict[str, Any] = {
        "headers": header,
        "insecure": insecure,
        "out": out,
        "resume": resume,
        "dry_run": dry_run,
        "ignore_eos": ignore_eos,
        "tensor_pipe": tensor_pipe or tensor_pipe_gpus is not None,
        "command": sys.argv[1:],
    }
    result = SweepResult([], None, None, None, [])
    try:
        if demo and url is not None:
            raise UsageError(f"--demo and the URL {url} were both given", "choose one: --demo starts its own server")
        given["concurrency"] = integers(concurrency, "--concurrency")
        given["isl"] = integers(isl, "--isl")
        fixed["tensor_pipe_gpus"] = integers(tensor_pipe_gpus, "--tensor-pipe-gpus", "0,1")
        given["duration_s"] = seconds(duration, "--duration")
        given["rates_req_s"] = numbers(rate, "--rate")
        given["timeout_s"] = seconds(timeout, "--timeout")
        given["slo"] = slo(slo_text)
        given["lever_keys"] = words(lever_keys)
        given["touches"] = components(touches)
        options = _options(given, fixed, scenario, DEMO_DEFAULTS if demo else {})
        with ProgressDisplay(Console(stderr=True), quiet) as display:
            if demo:
                check_before_start(options)
                with demo_server(demo_kernels, display.say) as demo_url:
                    result = run_sweep(_with_url(options, demo_url), display.show, display.say)
            else:
                result = run_sweep(options, display.show, display.say)
    except BenchError as e:
        result = result._replace(error=e)
    except KeyboardInterrupt:
        result = result._replace(interrupted=True)
    _print(result, json_out)
    if result.error is not None:
        from dsv4bench.cli.main import print_error

        print_error(result.error)
        raise typer.Exit(result.error.exit_code)
    if result.interrupted:
        kept = "; what was measured is kept, --resume goes on" if result.id is not None else "; nothing was measured"
        sys.stderr.write(f"interrupted{kept}\n")
        raise typer.Exit(EXIT_INTERRUPTED)


def _options(
    given: dict[str, Any], fixed: dict[str, Any], scenario: str | None, defaults: dict[str, Any]
) -> SweepOptions:
    """Command line over scenario file over defaults."""
    from dsv4bench.errors import UsageError
    from dsv4bench.runs.options import SweepOptions, default_osl

    values = dict(defaults)
    if scenario is not None:
        values.update(_from_file(scenario))
    given = {k: v for k, v in given.items() if v is not None}
    for one, other in RIVALS:
        if one in given and other in given:
            raise UsageError(
                f"{OPTION[one]} and {OPTION[other]} were both given", "choose one: they exclude each other"
            )
        for here, there in ((one, other), (other, one)):
            if here in given:
                values.pop(there, None)  # an option wins over its rival in the file, too
    values.update(given)
    if values.get("endpoint", "completions") not in ("completions", "chat"):
        raise UsageError(f"--endpoint {values['endpoint']}: not an endpoint", "completions or chat")
    if "osl" not in values:
        values["osl"] = default_osl(values.get("dataset"), values.get("endpoint", "completions"))
    return SweepOptions(**values, **fixed)


def _from_file(path: str) -> dict[str, Any]:
    import msgspec

    from dsv4bench.scenario.file import read_scenario

    s = read_scenario(path)
    values = {
        "scenario": s.name,
        "url": s.server.url,
        "endpoint": s.server.endpoint,
        "model": s.server.model,
        "timeout_s": s.server.timeout_s,
        "isl": s.workload.isl,
        "osl": s.workload.osl,
        "dataset": s.workload.dataset,
        "prefix_share": s.workload.prefix_share,
        "seed": s.workload.seed,
        "vocab": s.workload.vocab,
        "temperature": s.workload.temperature,
        "concurrency": s.levels.concurrency,
        "rates_req_s": s.levels.rates_req_s,
        "arrivals": s.levels.arrivals,
        "requests": s.levels.requests,
        "duration_s": s.levels.duration_s,
        "repeat": s.levels.repeat,
        "slo": slo_from(msgspec.structs.asdict(s.levels.slo), "levels.slo") if s.levels.slo is not None else None,
        "warmup": s.levels.warmup,
        "name": s.config.name,
        "parent": s.config.parent,
        "lever": s.config.lever,
        "lever_keys": s.config.lever_keys,
        "touches": s.config.touches,
    }
    return {k: v for k, v in values.items() if v is not None}


def _with_url(options: SweepOptions, url: str) -> SweepOptions:
    import msgspec

    return msgspec.structs.replace(options, url=url)


def _print(result: SweepResult, json_out: bool) -> None:
    from dsv4bench.records.cell import CellsDocument, ErrorNote
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.table import print_sweep
    from dsv4bench.runs.sweep import largest_within_slo

    if not json_out:
        print_sweep(result.cells, result.path, wide_console())
        within = largest_within_slo(result.cells)
        if within is not None:
            typer.echo(f"largest concurrency within the SLO: {within}")
        return
    e = result.error
    document = CellsDocument(
        id=result.id,
        path=result.path,
        status=result.status,
        cells=result.cells,
        largest_concurrency_within_slo=largest_within_slo(result.cells),
        notes=result.notes,
        error=None if e is None else ErrorNote(message=e.message, hint=e.hint, exit_code=e.exit_code),
    )
    typer.echo(encode(document).decode())
