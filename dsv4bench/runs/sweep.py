"""`dsv4bench sweep`: find the server, probe it, measure every level, keep every number as soon as there is one.

A level that is measured is on disk before the next begins; Ctrl-C, a dead server or a full disk end the sweep with
what was measured so far in the result and in the store.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import NamedTuple

import msgspec

from dsv4bench.errors import BenchError, MeasuredBad, UsageError
from dsv4bench.host.machine import machine
from dsv4bench.host.process import need_files
from dsv4bench.host.tool import environment, tool
from dsv4bench.load.messages import Tick
from dsv4bench.load.requests import sent_names
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.experiment import Status
from dsv4bench.records.progress import MessageCallback, Progress, ProgressCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.runs.device_counters import LevelCounters, open_for
from dsv4bench.runs.level import Setting, measure, warm_up
from dsv4bench.runs.options import Coordinates, SweepOptions, levels
from dsv4bench.runs.probe import Probed, estimate_s, probe, requests_of
from dsv4bench.runs.same_server import changed_settings
from dsv4bench.server.detect import detect
from dsv4bench.server.scraper import GaugeScraper
from dsv4bench.server.target import Target, find_target
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store

SAME_START_S = 0.5
RESUMED = "resumed"  # in run.json's extra: how often the sweep was taken up again


class SweepResult(NamedTuple):
    """What a sweep brought, whole or in part. `error` is what ended it early; `interrupted` is Ctrl-C."""

    cells: list[Cell]
    id: str | None
    path: str | None
    status: Status | None
    notes: list[str]
    error: BenchError | None = None
    interrupted: bool = False


class Estimate(NamedTuple):
    """The time the sweep will take: between batching that is free and batching that gains nothing."""

    low_s: float
    high_s: float
    n_levels: int
    n_requests: int


def run_sweep(o: SweepOptions, on_progress: ProgressCallback, say: MessageCallback) -> SweepResult:
    """Measure. Raises BenchError only while nothing has been measured; later errors come inside the result."""
    plan = o.plan()
    store = Store(o.out)
    if not o.dry_run:
        store.check_writable()
    target = find_target(o.url, o.headers, o.insecure)
    info = detect(target, o.model)
    need_files(max(plan.concurrency, default=64))
    _check_lengths(o, info)
    say(f"{info.engine} {info.version or '(version not told)'} at {info.url}, model {info.model}")
    for note in info.notes:
        say(note)
    counters = open_for(target, say, o.tensor_pipe_gpus) if o.tensor_pipe and not o.dry_run else None
    try:
        return _run(o, plan, store, target, info, counters, on_progress, say)
    finally:
        if counters is not None:
            counters.close()


def _run(
    o: SweepOptions,
    plan: Plan,
    store: Store,
    target: Target,
    info: ServerInfo,
    counters: LevelCounters | None,
    on_progress: ProgressCallback,
    say: MessageCallback,
) -> SweepResult:
    """Probe, make or take up the experiment, measure."""
    seed = o.seed if o.seed is not None else secrets.randbits(31)
    probed = probe(o, target, info, seed, say)
    for note in probed.notes:
        say(note)
    workload = _workload(o, probed, seed)
    estimate = Estimate(
        *estimate_s(probed, plan, o.osl or 256), len(levels(plan)), sum(_size(at, plan) for at in levels(plan))
    )
    say(_estimate_text(estimate, probed))
    if o.dry_run:
        return SweepResult([], None, None, None, [*probed.notes, _estimate_text(estimate, probed)])
    unfinished = store.find_resumable(o.name, o.scenario, workload.fingerprint(), plan) if o.resume else None
    if unfinished is not None and (changed := changed_settings(unfinished.experiment.server, info)):
        raise UsageError(
            f"{unfinished.id} cannot go on: it measured another server ({changed})",
            "start the server as it was, or measure this one under another --name",
        )
    resumed = 0
    if unfinished is not None:
        experiment = store.resume(unfinished.id)
        resumed = 1 + int(experiment.experiment.extra.get(RESUMED, 0))
        experiment.update(extra={**experiment.experiment.extra, RESUMED: resumed})
        workload = experiment.experiment.workload
        assert workload.seed is not None, "a sweep of ours always writes one"
        probed = msgspec.structs.replace(probed, source=probed.make_source(workload.seed))
        say(f"resuming {experiment.id}: {len(experiment.done())} of {len(levels(plan))} levels are done")
    else:
        if o.resume:
            say("nothing to resume: no unfinished sweep of this name, workload and plan; starting a new one")
        experiment = store.create(
            scenario=o.scenario,
            config=o.name,
            parent=o.parent,
            lever=o.lever,
            lever_keys=o.lever_keys,
            touches=o.touches,
            workload=workload,
            plan=plan,
            server=info,
            machine=machine(),
            server_on_this_host=target.on_this_host,
            tool=tool(),
            environment=environment(),
            command=o.command,
            extra={} if o.campaign is None else {"campaign": o.campaign, "block": o.block},
        )
    setting = Setting(
        info=info,
        plan=plan,
        workload=workload,
        probed=probed,
        on_this_host=target.on_this_host,
        resumed=resumed,
        counters=counters,
        block=o.block,
    )
    return _Sweep(setting, target, experiment, on_progress, say, list(probed.notes)).run()


class _Sweep:
    """The levels of one experiment, in order."""

    def __init__(
        self,
        setting: Setting,
        target: Target,
        experiment: ExperimentDir,
        on_progress: ProgressCallback,
        say: MessageCallback,
        notes: list[str],
    ) -> None:
        self.s, self.target, self.experiment = setting, target, experiment
        self.on_progress, self.say, self.notes = on_progress, say, notes
        self.cells = [c for c in experiment.cells() if c.invalid is not Invalid.INTERRUPTED]
        self.interrupted = False

    def run(self) -> SweepResult:
        error: BenchError | None = None
        try:
            self._levels()
        except KeyboardInterrupt:
            self.interrupted = True
        except BenchError as e:
            error = e
        if error is None and not self.interrupted:
            error = _all_failed(self.cells)
        status, reason = Status.COMPLETE, None
        if self.interrupted:
            status, reason = Status.ABORTED, "interrupted"
        elif error is not None:
            status, reason = Status.FAILED, error.message
        try:
            self.experiment.finish(status, reason)
        except BenchError as e:
            error = error or e
        return SweepResult(
            self.cells, self.experiment.id, str(self.experiment.path), status, self.notes, error, self.interrupted
        )

    def _levels(self) -> None:
        done = self.experiment.done()
        every = levels(self.s.plan)
        warmed: set[tuple[int | None, int]] = set()
        for i, at in enumerate(every):
            if at.cell in done:
                continue
            if self.s.plan.warmup and (at.concurrency, at.isl) not in warmed:
                warmed.add((at.concurrency, at.isl))
                self._tell(i, at, None, 0.0)
                warm_up(self.s, at)
            launch = self._launch()
            measured = measure(self.s, at, launch, partial(self._tell, i, at))
            self.cells.append(measured.cell)
            self.experiment.append_requests(at.cell, measured.records)
            self.experiment.append_telemetry(measured.telemetry)
            self.experiment.append_cell(measured.cell)
            if measured.interrupted:
                self.interrupted = True
                return
            if measured.server_gone:
                raise MeasuredBad(
                    f"the server went away during {at.label}: {measured.server_gone}",
                    "see its log; --resume goes on from here once it is back",
                )

    def _launch(self) -> str:
        """The id of the server's present launch: a new process start time is a new launch."""
        known = dict(self.experiment.experiment.launches)
        start = None
        if self.s.info.metrics_path is not None:
            gauges = GaugeScraper(self.target, self.s.info).scrape_now()
            start = gauges.process_start_time_s if gauges is not None else None
        if start is None and not known:
            start = self.s.info.process_start_time_s
        if start is None and known:
            return list(known)[-1]  # a server that does not tell, or not now, was not started anew for that
        for launch, seen in known.items():
            if seen is not None and start is not None and abs(seen - start) < SAME_START_S:
                return launch
        launch = f"L{len(known)}"
        if known:
            now = detect(self.target, self.s.info.model)
            if changed := changed_settings(self.experiment.experiment.server, now):
                raise MeasuredBad(
                    f"the server was started anew with other settings ({changed})",
                    "one experiment holds one configuration: measure this one under another --name",
                )
            self.say(f"the server was started anew: this is launch {launch}")
            self.notes.append(f"the server was started anew before launch {launch}")
        self.experiment.update(launches={**known, launch: start})
        return launch

    def _tell(self, i: int, at: Coordinates, tick: Tick | None, elapsed_s: float) -> None:
        plan = self.s.plan
        total = None if plan.duration_s is not None and at.concurrency is not None else _size(at, plan)
        done = tick.done if tick else 0
        left = None
        if plan.duration_s is not None:
            left = max(plan.duration_s - elapsed_s, 0.0)
        elif total and done:
            left = elapsed_s * (total - done) / done
        self.on_progress(
            Progress(
                level=at.label if tick else f"{at.label} (warm-up)",
                level_index=i,
                level_count=len(levels(plan)),
                in_flight=tick.in_flight if tick else 0,
                done=done,
                failed=tick.failed if tick else 0,
                total=total,
                chunk_s=tick.reads / elapsed_s if tick and elapsed_s > 0 else 0.0,
                elapsed_s=elapsed_s,
                left_s=left,
            )
        )


def largest_within_slo(cells: list[Cell], frac: float = 0.99) -> int | None:
    """The largest C whose every repeat is valid and kept the SLO for at least `frac` of its requests, or None."""
    by_c: dict[int, list[Cell]] = {}
    for c in cells:
        if c.concurrency is not None and c.slo_frac is not None:
            by_c.setdefault(c.concurrency, []).append(c)
    within = [
        c
        for c, found in by_c.items()
        if all(cell.invalid is None and (cell.slo_frac or 0.0) >= frac for cell in found)
    ]
    return max(within, default=None)


def _all_failed(cells: list[Cell]) -> MeasuredBad | None:
    failed = [c for c in cells if c.invalid is Invalid.ALL_FAILED]
    if not failed:
        return None
    why = failed[0].error_example or ", ".join(failed[0].errors)
    return MeasuredBad(f"every request failed at {', '.join(c.cell for c in failed)}: {why}", "see the server's log")


def _check_lengths(o: SweepOptions, info: ServerInfo) -> None:
    need = max(o.isl) + (o.osl or 0)
    if info.max_model_len is not None and need > info.max_model_len:
        raise UsageError(
            f"ISL {max(o.isl)} + OSL {o.osl} = {need} tokens do not fit the model's {info.max_model_len}",
            "lower --isl or --osl, or serve with a longer context",
        )


def _workload(o: SweepOptions, p: Probed, seed: int) -> Workload:
    dataset = p.dataset if p.dataset in ("random", "chat") else p.dataset.rsplit("/", 1)[-1]
    return Workload(
        endpoint=o.endpoint,
        dataset=dataset,
        dataset_sha256=p.source.sha256,
        prompt_kind=p.source.kind,
        isl=o.isl,
        osl=o.osl,
        seed=seed,
        vocab_size=p.vocab_size,
        vocab_source=p.vocab_source,
        prefix_share=o.prefix_share,
        temperature=o.temperature,
        ignore_eos=bool(p.sender.extra.get("ignore_eos")),
        sent_fields=sent_names(p.sender.extra),
    )


def _size(at: Coordinates, plan: Plan) -> int:
    if at.concurrency is not None:
        return plan.requests_at(at.concurrency)
    return requests_of(at.rate_req_s or 1.0, plan)


def _estimate_text(e: Estimate, p: Probed) -> str:
    return (
        f"one request alone: TTFT {1e3 * p.ttft_s:.0f} ms, TPOT {1e3 * p.tpot_s:.1f} ms; "
        f"{e.n_levels} levels, {e.n_requests} requests: {_span(e.low_s)} if batching is free, "
        f"at most {_span(e.high_s)} if it gains nothing"
    )


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
