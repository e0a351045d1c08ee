"""`dsv4bench report ID`: report.html and report.md of a campaign or of one experiment, from what git holds.

Read are run.json, cells.jsonl, kernels.json, series.json, campaign.json and the stored comparison; bulky files are
not needed. What cannot be read becomes a warning inside the report; only a campaign or experiment that is not there
is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dsv4bench.compare.scaling import scaling_report
from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.campaign import Campaign, ExperimentData, ReportInput
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.report.campaign_markdown import markdown
from dsv4bench.report.page import html
from dsv4bench.runs.arms import arm_of
from dsv4bench.runs.report_verdict import is_of_these, made_anew
from dsv4bench.runs.tried import first_breakdowns, tried
from dsv4bench.store import campaigns, verdict_files
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.files import write_whole
from dsv4bench.store.store import MIN_PREFIX, Store

HTML, MARKDOWN = "report.html", "report.md"


class Written(NamedTuple):
    """Where the report lies. `html` None: it could not be made, and a warning says what to install."""

    html: Path | None
    markdown: Path
    warnings: list[str]


class Gathered(NamedTuple):
    """What a report is drawn from, and the folder that it belongs in."""

    data: ReportInput
    folder: Path


def build_report(root: Path | str, name: str, out: Path | str | None = None) -> Written:
    """Write both files; `out` names the HTML file, and the Markdown file lies beside it.

    Raises StoreError when nothing is called `name` or the folder cannot be written.
    """
    found = gather(root, name)
    page, short = _targets(found.folder, out)
    write_whole(short, markdown(found.data).encode())
    drawn, why = _drawn(found.data)
    if drawn is not None:
        write_whole(page, drawn.encode())
    return Written(page if drawn is not None else None, short, [*found.data.warnings, *found.data.cautions, *why])


def _drawn(data: ReportInput) -> tuple[str | None, list[str]]:
    """The page, or why there is none: a plotting library that is missing or broken costs the page and no more."""
    lacking = html.not_installed()
    if lacking:
        return None, [f"{HTML} was not written: {', '.join(lacking)} not installed; {html.INSTALL}"]
    try:
        return html.page(data), []
    except (ImportError, RuntimeError) as e:
        return None, [f"{HTML} was not written: {str(e).splitlines()[0] if str(e) else type(e).__name__}"]


def gather(root: Path | str, name: str) -> Gathered:
    """Everything stored under a campaign's or an experiment's id, its beginning, or its folder.

    Raises StoreError when there is none, UsageError when several ids begin so, SchemaError when it cannot be read.
    """
    folder = _campaign_folder(Path(root), name)
    if folder is not None:
        return Gathered(_of_campaign(folder.parent, campaigns.CampaignDir.open(folder).campaign), folder)
    opened = Store(root).resolve(name)
    warnings: list[str] = []
    data = _experiment(opened, warnings)
    verdict = _alone(opened, warnings) if data is not None else None
    kernels = [b for _, b in first_breakdowns([opened.path], warnings)]
    experiments = [data] if data is not None else []
    return Gathered(
        ReportInput(
            campaign=None, experiments=experiments, verdict=verdict, breakdowns=kernels, warnings=_once(warnings)
        ),
        opened.path,
    )


def _campaign_folder(root: Path, name: str) -> Path | None:
    found = campaigns.find(root, name)
    if found is not None or len(name) < MIN_PREFIX or "/" in name:
        return found
    begins = sorted(p.parent for p in root.glob(f"*/{campaigns.CAMPAIGN}") if p.parent.name.startswith(name))
    if len(begins) > 1:
        named = ", ".join(p.name for p in begins[:5])
        raise UsageError(f"{name} begins {len(begins)} campaigns: {named}", "give more of the id")
    return begins[0] if begins else None


def _of_campaign(root: Path, c: Campaign) -> ReportInput:
    warnings: list[str] = []
    ids = dict.fromkeys(n.experiment for n in c.launches if n.experiment is not None)
    profiled = dict.fromkeys(p.experiment for p in c.profiles if p.experiment is not None)
    experiments, readable = [], {}
    for experiment_id in ids:
        opened = tried(lambda i=experiment_id: ExperimentDir.open(root / i), warnings)  # type: ignore[misc]
        data = _experiment(opened, warnings) if opened is not None else None
        if opened is not None and data is not None:
            experiments.append(data)
            readable[experiment_id] = opened
    kernels = [b for _, b in first_breakdowns((root / i for i in dict.fromkeys([*profiled, *ids])), warnings)]
    verdict, cautions = None, []
    if c.verdict is not None:
        verdict = tried(lambda: verdict_files.read(root, c.verdict or ""), warnings)
    if c.verdict is None or (verdict is not None and not is_of_these(verdict, c, readable)):
        verdict, said = made_anew(root, c)
        cautions += [said] if said else []
    return ReportInput(
        campaign=c,
        experiments=experiments,
        verdict=verdict,
        breakdowns=kernels,
        warnings=_once(warnings),
        cautions=cautions,
    )


def _experiment(opened: ExperimentDir, warnings: list[str]) -> ExperimentData | None:
    """Its cells, and its series where it has one; None when its cells cannot be read."""
    cells = tried(opened.cells, warnings)
    if cells is None:
        return None
    series = tried(opened.series, warnings)
    warnings += [f"{opened.id}: {w}" for w in opened.warnings]
    return ExperimentData(experiment=opened.experiment, cells=cells, series=series)


def _alone(opened: ExperimentDir, warnings: list[str]) -> VerdictDocument | None:
    """One experiment has no verdict, and a scaling law all the same."""
    scaling = tried(lambda: scaling_report([arm_of([opened])]), warnings)
    return VerdictDocument(scaling=scaling) if scaling is not None else None


def _once(warnings: list[str]) -> list[str]:
    return list(dict.fromkeys(warnings))


def _targets(folder: Path, out: Path | str | None) -> tuple[Path, Path]:
    if out is None:
        return folder / HTML, folder / MARKDOWN
    page = Path(out)
    if page.is_dir():
        return page / HTML, page / MARKDOWN
    if not page.parent.is_dir():
        raise StoreError(f"{page.parent}: there is no such folder", "make it, or choose another --file")
    return page.with_suffix(".html"), page.with_suffix(".md")
