"""`dsv4bench list`, `show` and `reindex`: what lies in the results folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from dsv4bench.records.breakdown import BreakdownDocument


DEFAULT = "results"


def list_results(
    out: str = typer.Option(DEFAULT, help="The results folder."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """List the experiments and the campaigns, oldest first."""
    from dsv4bench.records.codec import encode
    from dsv4bench.report.campaign import campaigns_table
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.experiments import experiments_table
    from dsv4bench.store import campaigns
    from dsv4bench.store.store import Store

    store = Store(out)
    if out != DEFAULT or store.root.exists():  # that nothing was measured yet in this folder is no mistake
        store.check_there()
    entries = store.list()
    unread: list[str] = []
    runs = [campaigns.entry_of(d.campaign) for d in campaigns.list_all(out, unread)]
    for warning in [*store.warnings, *unread]:
        typer.echo(f"warning: {warning}", err=True)
    if json_out:
        typer.echo(encode({"schema": "dsv4bench.index/1", "experiments": entries, "campaigns": runs}).decode())
    elif entries:
        wide_console().print(experiments_table(entries))
    else:
        typer.echo(f"{out}: no experiments yet; dsv4bench sweep makes one")
    if runs and not json_out:
        typer.echo("")
        wide_console().print(campaigns_table(runs))


def show(
    name: str = typer.Argument(..., help="An id, or its beginning, or a configuration's name."),
    out: str = typer.Option("results", help="The results folder."),
    csv: bool = typer.Option(False, "--csv", help="Print the cells as CSV."),
    json_out: bool = typer.Option(False, "--json", help="Print one JSON document on stdout, nothing else."),
) -> None:
    """Show one experiment, or one campaign and its launches."""
    from dsv4bench.records.cell import CellsDocument
    from dsv4bench.records.codec import encode
    from dsv4bench.report.console import wide_console
    from dsv4bench.report.experiments import header_lines, profiled_lines
    from dsv4bench.report.table import print_sweep
    from dsv4bench.store import campaigns
    from dsv4bench.store.store import Store

    if (campaign := campaigns.named(out, name)) is not None:
        _show_campaign(campaign, csv, json_out)
        return
    experiment = Store(out).resolve(name)
    cells = experiment.cells()
    for warning in experiment.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json_out:
        head = experiment.experiment
        document = CellsDocument(id=head.id, path=str(experiment.path), status=head.status, cells=cells)
        typer.echo(encode(document).decode())
    elif csv:
        from dsv4bench.store.frames import cells_frame

        typer.echo(cells_frame([experiment.path]).to_csv(index=False), nl=False)
    else:
        for line in [*header_lines(experiment.experiment), *profiled_lines(_profiled(experiment.path))]:
            typer.echo(line)
        print_sweep(cells, str(experiment.path), wide_console())


def _show_campaign(path: Path, csv: bool, json_out: bool) -> None:
    from dsv4bench.records.campaign import CampaignDocument, LaunchStatus
    from dsv4bench.records.codec import encode
    from dsv4bench.report.campaign import ending_lines, launch_table, status_line
    from dsv4bench.report.console import wide_console
    from dsv4bench.store.campaigns import CampaignDir

    c = CampaignDir.open(path).campaign
    if json_out:
        typer.echo(encode(CampaignDocument(campaign=c, path=str(path))).decode())
    elif csv:
        from dsv4bench.store.frames import cells_frame

        done = [path.parent / n.experiment for n in c.launches if n.experiment and n.status is LaunchStatus.COMPLETE]
        typer.echo(cells_frame(done).to_csv(index=False), nl=False)
    else:
        typer.echo(status_line(c))
        blocks = f"{c.blocks} block{'s' if c.blocks > 1 else ''}"
        typer.echo(f"{c.name}: against {c.baseline}, {blocks}, seed {c.seed}, begun {c.started_utc}")
        typer.echo("")
        wide_console().print(launch_table(c))
        typer.echo("")
        for line in ending_lines(c, None):
            typer.echo(line)
        typer.echo(f"stored in {path}")


def _profiled(path: Path) -> list[BreakdownDocument]:
    """The experiment's own breakdowns; none is no reason not to show the rest."""
    from dsv4bench.errors import BenchError
    from dsv4bench.store import breakdowns

    kernels = path / breakdowns.KERNELS
    try:
        return breakdowns.read(kernels) if kernels.is_file() else []
    except BenchError as e:
        typer.echo(f"warning: {e.message}", err=True)
        return []


def reindex(out: str = typer.Option("results", help="The results folder.")) -> None:
    """Make results/index.jsonl anew from the experiments' files."""
    from dsv4bench.store.store import Store

    entries = Store(out).reindex()
    typer.echo(f"{out}/index.jsonl: {len(entries)} experiments")
