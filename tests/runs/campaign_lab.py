"""Campaigns without servers: launches, sweeps and profiles are played, everything between them is real.

lab = Lab(tmp_path, monkeypatch)
lab.tok_s["both"] = 200.0
lab.fails["both"] = [LaunchFailed(...), None]      what its first and second launch raise; later ones succeed
result = lab.run(blocks=4)
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))

from store_samples import make_cell, make_experiment, make_server

from dsv4bench.errors import BenchError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.campaign import ProfileNote
from dsv4bench.records.experiment import Status
from dsv4bench.records.outputs import Output, Outputs
from dsv4bench.runs import campaign_checks, campaign_end, campaign_measure
from dsv4bench.runs.campaign import CampaignResult, run_campaign
from dsv4bench.runs.campaign_begin import CampaignOptions
from dsv4bench.runs.campaign_launch import Planned
from dsv4bench.runs.campaign_profile import Profiled
from dsv4bench.runs.options import SweepOptions
from dsv4bench.runs.report import Written
from dsv4bench.runs.sweep import SweepResult
from dsv4bench.server.group import LaunchFailed
from dsv4bench.server.readiness import Ready
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store

SCENARIO = """
name: lab
workload: {isl: [1024], osl: 256, seed: 7}
levels: {concurrency: [8]}
parity: {prompts: 1, isl: 8, osl: 4}
configs:
  - {name: baseline, launch: "serve --port {port}"}
  - {name: both, parent: baseline, lever: kernels, lever_keys: [kernels], touches: [moe],
     launch: "serve --port {port}"}
"""
OUT_OF_MEMORY = LaunchFailed(
    "the server exited with code 1 before it was ready: serve", "see its log", "GPU memory ran out", "OOM"
)
HANGS = LaunchFailed("the server was not healthy at http://127.0.0.1:1 within 6 s", "see its log")


class Killed(BaseException):
    """Ends us as SIGKILL does: nothing catches it, nothing is tidied up in the campaign's file."""


class Lab:
    """One scenario file and one results folder; the played servers' figures, and what they do wrong."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, scenario: str = SCENARIO) -> None:
        self.out = folder / "results"
        self.scenario = folder / "lab.yaml"
        self.scenario.write_text(scenario)
        self.tok_s = {"baseline": 100.0, "both": 150.0}
        self.args: dict[str, dict[str, Any]] = {"baseline": {"kernels": "slow"}, "both": {"kernels": "fast"}}
        self.texts: dict[str, list[str]] = {}
        self.cells: dict[str, dict[str, Any]] = {}  # further fields of a configuration's cells
        self.experiment: dict[str, Any] = {}  # and of every experiment
        self.fails: dict[str, list[BaseException | None]] = {}  # of a launch, before it is ready
        self.sweep_fails: dict[str, list[BaseException | None]] = {}
        self.profile_error: str | None = None
        self.launched: list[str] = []
        self.planned: list[Planned] = []
        self.stopped: list[str] = []
        self.swept: list[SweepOptions] = []
        self.profiled: list[str] = []
        self.reports: list[str] = []
        self.report_warnings: list[str] = []
        self.said: list[str] = []
        self._clock = itertools.count()
        for module, name, fake in (
            (campaign_measure, "serving", self._serving),
            (campaign_measure, "find_target", lambda url, headers: url),
            (campaign_measure, "detect", self._detect),
            (campaign_measure, "run_sweep", self._sweep),
            (campaign_measure, "profile_running", self._profile_running),
            (campaign_measure, "profile_launched", self._profile_launched),
            (campaign_checks.campaign_outputs, "outputs_of", self._outputs),
            (campaign_end.report, "build_report", self._report),
        ):
            monkeypatch.setattr(module, name, fake)

    def run(self, **options: Any) -> CampaignResult:
        given = {"scenario": str(self.scenario), "out": str(self.out), **options}
        return run_campaign(CampaignOptions(**given), lambda _: None, self.said.append)

    def experiments(self) -> list[ExperimentDir]:
        store = Store(self.out)
        return [store.open(e.id) for e in store.list()]

    # --- what is played ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _serving(self, spec: Any, config: Any, planned: Any, say: Any) -> Iterator[Any]:
        self.launched.append(config.name)
        self.planned.append(planned)
        self._now = config.name
        try:
            _raise_next(self.fails, config.name)
            group = SimpleNamespace(pids={}, log_text=lambda: "a line", exited=lambda: None, failure=_failure)
            ready = Ready(ready_s=2.0, first_generation_s=0.1, second_generation_s=0.1)
            yield SimpleNamespace(group=group, url="http://127.0.0.1:9", env={}, workers={}, ready=ready)
        finally:
            self.stopped.append(config.name)

    def _detect(self, target: Any, model: Any) -> Any:
        return make_server(args=self.args.get(self._now))

    def _sweep(self, o: SweepOptions, on_progress: Any, say: Any) -> SweepResult:
        self.swept.append(o)
        n = next(self._clock)
        experiment = make_experiment(
            self.out,
            o.name,
            o.scenario,
            parent=o.parent,
            lever=o.lever,
            lever_keys=o.lever_keys,
            touches=o.touches,
            server=make_server(args=self.args.get(o.name)),
            launches={"L0": 1000.0 + n},
            extra={"campaign": o.campaign, "block": o.block},
            **self.experiment,
        )
        wrong = _next(self.sweep_fails, o.name)
        if isinstance(wrong, Killed):
            experiment.close()
            raise wrong
        if wrong is not None:
            experiment.finish(Status.ABORTED, "cut short")
            interrupted = isinstance(wrong, KeyboardInterrupt)
            error = wrong if isinstance(wrong, BenchError) else None
            return SweepResult([], experiment.id, None, Status.ABORTED, [], error, interrupted)
        tok_s = self.tok_s[o.name] * (1 + 0.001 * (n % 3))
        cell = make_cell(
            output_tok_s=tok_s,
            tpot_p50_s=8 / tok_s,
            block=o.block,
            started_utc=f"2026-12-01T00:{n // 60:02}:{n % 60:02}Z",
            **self.cells.get(o.name, {}),
        )
        experiment.append_cell(cell)
        experiment.finish()
        return SweepResult([cell], experiment.id, str(experiment.path), Status.COMPLETE, [])

    def _profile_running(self, spec: Any, config: Any, info: Any, **known: Any) -> Profiled:
        self.profiled.append(config.name)
        note = ProfileNote(
            config=config.name, experiment=known["experiment"], method="torch", error=self.profile_error
        )
        return Profiled(note=note, document=None if self.profile_error else BreakdownDocument())

    def _profile_launched(self, spec: Any, config: Any, planned: Any, **known: Any) -> Profiled:
        return self._profile_running(spec, config, None, **known)

    def _outputs(self, target: Any, info: Any, spec: Any, seed: int, say: Any, **known: Any) -> Outputs:
        tokens = self.texts.get(self._now, ["a", "b", "c", "d"])
        return Outputs(
            unit="tokens",
            endpoint="completions",
            prompt_kind="text",
            prompts_sha256="ab",
            seed=seed,
            isl=8,
            osl=4,
            outputs=[
                Output(prompt=0, tokens=tokens, best=[{t: -0.1, "x": -9.0, "b": -9.0} | {t: -0.1} for t in tokens])
            ],
            repeats=True,
        )

    def _report(self, root: Any, name: str) -> Written:
        self.reports.append(name)
        folder = Path(root) / name
        return Written(folder / "report.html", folder / "report.md", list(self.report_warnings))


def _failure(reason: str) -> LaunchFailed:
    return LaunchFailed(reason, "see its log", "a cause", "a line")


def _next(waiting: dict[str, list[BaseException | None]], name: str) -> BaseException | None:
    return waiting[name].pop(0) if waiting.get(name) else None


def _raise_next(waiting: dict[str, list[BaseException | None]], name: str) -> None:
    if (wrong := _next(waiting, name)) is not None:
        raise wrong
