"""The application: its verbs, and the one place where an error becomes two lines and an exit code.

Verb modules import only typer at the top; everything else is imported when a verb runs, so that `--help` starts at
once on a laptop without torch.
"""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from dsv4bench import __version__
from dsv4bench.cli import (
    baseline,
    bundle,
    calibrate,
    campaign,
    compare,
    doctor,
    findings,
    gate,
    importing,
    kernels,
    metrics,
    predict,
    profile,
    report,
    results,
    selftest,
    serve,
    sweep,
)

if TYPE_CHECKING:
    from dsv4bench.errors import BenchError

# As a user meets them: measure, explain, judge, campaign; then what surrounds that.
ORDER = (
    *("sweep", "profile", "compare", "gate", "campaign", "predict", "kernels", "report", "findings"),
    *("baseline", "calibrate", "import", "list", "show", "bundle", "reindex"),
    *("serve", "doctor", "selftest", "metrics"),
)


class _Verbs(TyperGroup):
    """The verbs in that order; typer would show groups behind all commands."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    cls=_Verbs,
    name="dsv4bench",
    help="Why does an LLM server decode as slowly as it does, what did each lever buy, what to change next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("sweep")(sweep.sweep)
app.command("profile")(profile.profile)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.add_typer(baseline.app, name="baseline")
app.command("calibrate")(calibrate.calibrate)
app.add_typer(kernels.app, name="kernels")
app.command("campaign")(campaign.campaign)
app.command("predict")(predict.predict)
app.command("findings")(findings.findings)
app.command("report")(report.report)
app.command("import")(importing.import_files)
app.command("serve")(serve.serve)
app.command("selftest")(selftest.selftest)
app.command("metrics")(metrics.metrics)
app.command("list")(results.list_results)
app.command("show")(results.show)
app.command("bundle")(bundle.bundle)
app.command("reindex")(results.reindex)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsv4bench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with an error."),
) -> None:
    """Why does an LLM server decode as slowly as it does, what did each lever buy, what to change next."""


def main() -> None:
    """The console script."""
    from dsv4bench.errors import EXIT_INTERRUPTED, EXIT_USAGE, BenchError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no Δ shows ? and loses nothing
    try:
        app(prog_name="dsv4bench")
    except BenchError as e:
        if "--json" in sys.argv:
            _print_json(e)
        print_error(e)
        sys.exit(e.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout went away (`| head`); nothing to say to it
        sys.exit(0)
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EIO):
            raise
        sys.stderr.write(f"error: stdout cannot be written: {e.strerror}\n")
        sys.exit(EXIT_USAGE)


def _print_json(e: BenchError) -> None:
    """One document on stdout in every case; `sweep` has its own kind."""
    from dsv4bench.records.cell import ErrorNote
    from dsv4bench.records.codec import encode

    note = ErrorNote(message=e.message, hint=e.hint, exit_code=e.exit_code)
    typer.echo(encode({"schema": "dsv4bench.error/1", "error": note}).decode())


def print_error(e: Exception) -> None:
    """`error: …` and `hint: …` on stderr; before it a traceback with --debug."""
    if "--debug" in sys.argv:
        import traceback

        traceback.print_exception(e)
    message, hint = getattr(e, "message", str(e)), getattr(e, "hint", "")
    sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))
