"""The launches of a campaign, one at a time: serve, check, sweep, profile, and what of it is written down when.

A launch counts as complete as soon as its sweep is: a profile that fails, or is cut short, is made at a later launch
of the configuration.
"""

from __future__ import annotations

import time

from dsv4bench.clocks import clocks, max_mhz, throttle_notes
from dsv4bench.compare.samples import place
from dsv4bench.errors import BenchError, MeasuredBad, StoreError
from dsv4bench.host.redact import hide_values, redact
from dsv4bench.records.campaign import LaunchNote, LaunchStatus
from dsv4bench.records.cell import Cell
from dsv4bench.records.progress import MessageCallback, ProgressCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.runs.campaign_begin import CampaignOptions
from dsv4bench.runs.campaign_checks import (
    check_live,
    check_live_kernels,
    check_outputs,
    first_complete,
    other_than_first,
    worker_info,
)
from dsv4bench.runs.campaign_launch import Planned, Serving, planned_launch, serving
from dsv4bench.runs.campaign_profile import Profiled, profile_launched, profile_running
from dsv4bench.runs.campaign_sweep import launch_options, seed_of
from dsv4bench.runs.sweep import SweepResult, run_sweep
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign
from dsv4bench.server.detect import detect
from dsv4bench.server.group import Group
from dsv4bench.server.target import find_target
from dsv4bench.store import campaigns
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.store import Store

NSYS = "nsys"
ENDS_S = 1.0  # for a server that went away to be seen to have ended


class Launcher:
    """Measures launches of one campaign."""

    def __init__(
        self,
        o: CampaignOptions,
        spec: LaunchedCampaign,
        opened: CampaignDir,
        on_progress: ProgressCallback,
        say: MessageCallback,
    ) -> None:
        self.o, self.spec, self.dir, self.on_progress, self.say = o, spec, opened, on_progress, say
        self.configs = {c.name: c for c in spec.configs}
        self.secrets: list[str] = []  # the secret values of the launch at hand

    def measure(self, note: LaunchNote) -> None:
        """One launch. Raises LaunchFailed or another BenchError when it came to nothing, KeyboardInterrupt."""
        config, attempt = self.configs[note.config], note.attempt + 1
        planned = planned_launch(self.spec, config, self.dir.logs, self._stem(note, attempt))
        self.secrets = planned.secrets
        self.dir.change_launch(
            note.order,
            status=LaunchStatus.RUNNING,
            attempt=attempt,
            started_utc=campaigns.now_utc(),
            ended_utc=None,
            ready_s=None,
            reason=None,
            cause=None,
            log_tail=None,
            command=redact(planned.recorded[planned.front]),
        )
        with serving(self.spec, config, planned, self.say) as served:
            self._measure(note, config, attempt, planned, served)

    def _measure(self, note: LaunchNote, config: ConfigSpec, attempt: int, planned: Planned, served: Serving) -> None:
        ready = served.ready
        notes = [*note.notes, *ready.notes]
        self.dir.change_launch(
            note.order,
            ready_s=ready.ready_s,
            first_generation_s=ready.first_generation_s,
            second_generation_s=ready.second_generation_s,
            notes=notes,
        )
        target = find_target(served.url, [])
        info = detect(target, self.spec.server.model)
        if (other := other_than_first(self.dir, config.name, info, self.o.out)) is not None:
            notes.append(other)
            self.say(f"{config.name}: {other}")
        worker = worker_info(served, info, self.spec.server.model)
        check_live(self.dir, config, note.order, served, worker, self.say)
        check_outputs(self.dir, self.spec, config, target, info, self.say)
        seed = seed_of(self.dir.campaign.seed, note.block, config.name, attempt)
        swept = self._swept(note, config, planned, served, seed)
        self.dir.change_launch(
            note.order,
            status=LaunchStatus.COMPLETE,
            experiment=swept.id,
            ended_utc=campaigns.now_utc(),
            notes=[*notes, *self._throttled(swept)],
        )
        if swept.id is not None and self._profile_is_due(config) and self._method() != NSYS:
            self._profile(config, note.order, served, worker, swept.id, seed)

    def _swept(
        self, note: LaunchNote, config: ConfigSpec, planned: Planned, served: Serving, seed: int
    ) -> SweepResult:
        """A complete sweep, or the error that ended it."""
        options = launch_options(
            self.spec,
            config,
            url=served.url,
            out=self.o.out,
            campaign=self.dir.id,
            block=note.block,
            seed=seed,
            command=redact(planned.recorded[planned.front]),
        )
        result = run_sweep(options, self.on_progress, self.say)
        if result.interrupted:
            raise KeyboardInterrupt
        if isinstance(result.error, StoreError):
            raise result.error
        if result.error is not None:
            raise _while_measured(served.group, result.error)
        return result

    def _throttled(self, swept: SweepResult) -> list[str]:
        """Levels whose clock was held back, in one note; flags that slowed nothing are in the cells alone."""
        if swept.id is None or not any(c.gpu_throttle for c in swept.cells):
            return []
        limit = max_mhz(Store(self.o.out).open(swept.id).experiment.machine)
        several = len({c.isl for c in swept.cells}) > 1
        found = throttle_notes(clocks((_level(c, several), c, limit) for c in swept.cells))
        return ["; ".join(found)] if found else []

    # --- profiles ------------------------------------------------------------------------------------------

    def profiles_alone(self, block: int, *, last: bool) -> None:
        """Profiles that need a launch of their own: those of nsys after the first block, and those still missing."""
        if self.spec.profile is None or not self.o.profile or not (self._method() == NSYS or last):
            return
        c = self.dir.campaign
        unfinished = {n.config for n in c.launches if n.status in (LaunchStatus.PENDING, LaunchStatus.RUNNING)}
        for name in c.configs:
            config, first = self.configs[name], first_complete(c, name)
            waits = self._method() != NSYS and name in unfinished  # for its next launch
            if first is None or first.experiment is None or waits or not self._profile_is_due(config):
                continue
            if self.o.only and name not in self.o.only:
                continue
            self._profile_alone(config, first.order, first.experiment)

    def _profile_alone(self, config: ConfigSpec, order: int, experiment: str) -> None:
        self.say(f"{config.name}: a launch of its own for its profile")
        planned = planned_launch(self.spec, config, self.dir.logs, f"profile-{self.dir.stem(config.name)}")
        self.secrets = planned.secrets
        seed = seed_of(self.dir.campaign.seed, -1, config.name, 0)
        if self._method() == NSYS:
            found = profile_launched(
                self.spec, config, planned, out=self.o.out, experiment=experiment, seed=seed, say=self.say
            )
            self._note(found)
            self._kernels_alone(config, order, experiment, found)
            return
        try:
            with serving(self.spec, config, planned, self.say) as served:
                info = detect(find_target(served.url, []), self.spec.server.model)
                worker = worker_info(served, info, self.spec.server.model)
                self._profile(config, order, served, worker, experiment, seed)
        except StoreError:
            raise
        except BenchError as e:
            self.say(f"{config.name}: no profile: {hide_values(e.message, self.secrets)}")

    def _kernels_alone(self, config: ConfigSpec, order: int, experiment: str, found: Profiled) -> None:
        if found.document is not None:
            info = Store(self.o.out).open(experiment).experiment.server
            check_live_kernels(self.dir, config, order, info, self.say, found.document)
        if found.interrupted:
            raise KeyboardInterrupt

    def _profile(
        self, config: ConfigSpec, order: int, served: Serving, info: ServerInfo, experiment: str, seed: int
    ) -> None:
        self.say(f"{config.name}: profile")
        found = profile_running(
            self.spec,
            config,
            info,
            url=served.url,
            env=served.env,
            workers=served.workers,
            out=self.o.out,
            experiment=experiment,
            seed=seed,
            say=self.say,
        )
        self._note(found)
        if found.document is not None and not found.interrupted:
            check_live(self.dir, config, order, served, info, self.say, found.document)
        if found.interrupted:
            raise KeyboardInterrupt

    def _note(self, found: Profiled) -> None:
        if found.note.error is not None:
            self.say(f"{found.note.config}: the profile says: {found.note.error}")
        others = [p for p in self.dir.campaign.profiles if p.config != found.note.config]
        self.dir.update(profiles=[*others, found.note])

    def _profile_is_due(self, config: ConfigSpec) -> bool:
        noted = any(p.config == config.name for p in self.dir.campaign.profiles)
        return self.spec.profile is not None and self.o.profile and config.profile and not noted

    def _method(self) -> str:
        return self.spec.profile.method if self.spec.profile is not None else ""

    def _stem(self, note: LaunchNote, attempt: int) -> str:
        again = f"-attempt{attempt}" if attempt > 1 else ""
        return f"block{note.block}-{self.dir.stem(note.config)}{again}"


def _while_measured(group: Group, error: BenchError) -> BenchError:
    """What ended a sweep, with the server's own word where it ended: a leash tells it a moment later."""
    if not isinstance(error, MeasuredBad):
        return error
    until = time.monotonic() + ENDS_S
    while (how := group.exited()) is None and time.monotonic() < until:
        time.sleep(ENDS_S / 20)
    return group.failure(error.message if how is None else f"{how} while it was measured: {error.message}")


def _level(c: Cell, with_isl: bool) -> str:
    return place(c).load + (f" ISL {c.isl}" if with_isl else "")
