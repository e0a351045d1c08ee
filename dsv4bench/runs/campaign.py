"""`dsv4bench campaign`: launch each configuration in paired blocks, sweep, profile, stop; then compare and report.

    for each block             every configuration once, every second block in reverse order
      for each configuration   start · wait until it generates · check lever and outputs · sweep · profile once · stop
    then                       compare, the findings, the report

Every launch is an experiment of its own. What was measured is on disk before the next step begins: a launch that
fails is noted and the rest goes on; Ctrl-C, a full disk or a kill leave a campaign that --resume takes up.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dsv4bench.errors import BenchError, MeasuredBad, StoreError, UsageError
from dsv4bench.host.redact import hide_values
from dsv4bench.records.campaign import Campaign, CampaignPlan, CampaignStatus, LaunchNote, LaunchStatus
from dsv4bench.records.progress import MessageCallback, ProgressCallback
from dsv4bench.runs.campaign_begin import (
    Asked,
    CampaignOptions,
    as_resumed,
    begin,
    begun_again,
    draft,
    found_to_resume,
    read_asked,
    taken_up,
)
from dsv4bench.runs.campaign_checks import first_complete
from dsv4bench.runs.campaign_end import Conclusion, conclude, end_of
from dsv4bench.runs.campaign_launch import clean_logs, scenario_secrets
from dsv4bench.runs.campaign_measure import Launcher
from dsv4bench.runs.campaign_plan import LEFT, plan_of, within
from dsv4bench.runs.campaign_predictions import write_predictions
from dsv4bench.runs.terminating import terminated_as_interrupted
from dsv4bench.server.group import LaunchFailed, PortTaken
from dsv4bench.store import campaigns
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.store import Store

ALIKE = 2  # failures of one kind, after which a configuration is left out


class CampaignResult(NamedTuple):
    """What a campaign brought, whole or in part. `error` is what ended it early; `interrupted` is Ctrl-C."""

    campaign: Campaign | None
    path: str | None
    plan: CampaignPlan | None = None
    conclusion: Conclusion | None = None
    error: BenchError | None = None
    interrupted: bool = False


def run_campaign(o: CampaignOptions, on_progress: ProgressCallback, say: MessageCallback) -> CampaignResult:
    """Raises BenchError only before anything was started; later errors come inside the result."""
    asked = read_asked(o, say)
    found = found_to_resume(o, asked) if o.resume else None
    nothing = f"nothing to resume: no campaign of {asked.spec.name} in {o.out}" if o.resume and not found else None
    if o.dry_run:
        return _dry_run(o, asked, found, nothing)
    Store(o.out).check_writable()
    if nothing is not None:
        say(f"{nothing}; starting a new one")
    with terminated_as_interrupted(), taken_up(o, found) if found is not None else begin(o, asked) as opened:
        if found is not None:  # a kill leaves logs as they were written
            clean_logs(opened.logs.glob("*.log"), scenario_secrets(asked.spec), say)
        return _Campaign(o, asked, opened, on_progress, say, resumed=found is not None).run()


def _dry_run(o: CampaignOptions, asked: Asked, found: CampaignDir | None, nothing: str | None) -> CampaignResult:
    campaign = draft(o, asked)
    if found is not None:
        campaign = as_resumed(found.campaign, found.campaign.status, o.blocks)
    launches = _now(o, campaign)
    plan = plan_of(asked.spec, launches, asked.sha, [d.campaign for d in asked.before])
    seed = asked.spec.workload.seed if found is None else campaign.seed
    basis = plan.basis if nothing is None else [f"{nothing}; a new one would begin", *plan.basis]
    plan = msgspec.structs.replace(plan, seed=seed, basis=basis)
    return CampaignResult(campaign, None if found is None else str(found.path), plan=plan)


class _Campaign:
    """The launches of one campaign, in order."""

    def __init__(
        self,
        o: CampaignOptions,
        asked: Asked,
        opened: CampaignDir,
        on_progress: ProgressCallback,
        say: MessageCallback,
        *,
        resumed: bool,
    ) -> None:
        self.o, self.asked, self.spec, self.dir, self.say = o, asked, asked.spec, opened, say
        self.launcher = Launcher(o, asked.spec, opened, on_progress, say)
        self.before, self.resumed, self.launched, self.interrupted = opened.campaign, resumed, False, False

    def run(self) -> CampaignResult:
        error: BenchError | None = None
        try:
            self._launches()
        except KeyboardInterrupt:
            self.interrupted = True
        except BenchError as e:
            error = e
        try:
            self._ended(error)
        except StoreError as e:
            error = error or e
        conclusion = None
        if not self.interrupted and not isinstance(error, StoreError):
            try:
                conclusion = conclude(self.o, self.dir, self.say)
            except KeyboardInterrupt:
                self.interrupted = True
            except BenchError as e:
                error = error or e
        return CampaignResult(
            self.dir.campaign,
            str(self.dir.path),
            conclusion=conclusion,
            error=error,
            interrupted=self.interrupted,
        )

    def _launches(self) -> None:
        c = self.dir.campaign
        now = _now(self.o, c)
        self._announce(c, now)
        if now:
            self._warn_of_others()
            write_predictions(self.o.out, self.spec, self.dir, self.say)
        for i, note in enumerate(now):
            why = left_out(self.dir.campaign.launches, note.config)
            if why is not None:
                self.say(f"block {note.block + 1}: {note.config} is left out: {why}")
                self.dir.change_launch(note.order, status=LaunchStatus.SKIPPED, reason=why)
                continue
            self.say(f"[{i + 1}/{len(now)}] block {note.block + 1} of {c.blocks}: {note.config}")
            if self.resumed and not self.launched:
                self.dir.update(**begun_again(self.dir.campaign))
            self.launched = True
            self._one(note)
            if i + 1 == len(now) or now[i + 1].block != note.block:
                self.launcher.profiles_alone(note.block, last=i + 1 == len(now))
        if not now:
            self.launcher.profiles_alone(0, last=True)

    def _warn_of_others(self) -> None:
        for name, pid in campaigns.others_running(self.o.out, self.dir.id):
            what = f"another campaign is running in this results folder: {name}, process {pid}"
            self.say(f"warning: {what}: both load this machine, and what is measured now is of the two together")
            self.dir.add_notes(f"{what} when this one started")

    def _announce(self, c: Campaign, now: list[LaunchNote]) -> None:
        left = [n for n in c.launches if n.status in LEFT]
        if self.resumed and now:
            done = sum(n.status is LaunchStatus.COMPLETE for n in c.launches)
            self.say(
                f"resuming {c.id}: {done} of {len(c.launches)} launches are done, {len(left)} remain, "
                f"from block {now[0].block + 1} on"
            )
        elif not left:
            self.say(f"{c.id} is complete, {c.blocks} blocks: --blocks N extends it; it is compared anew")
        else:
            self.say(f"{c.id}: {len(c.configs)} configurations, {c.blocks} times each: {len(left)} launches")
        if len(now) < len(left):
            self.say(f"{len(now)} of them now, as asked")

    def _one(self, note: LaunchNote) -> None:
        """One launch; the baseline, which everything is judged against, gets a second attempt when it crashes.

        What a second attempt cannot mend (an option that cannot be used, a port that is taken) gets none.
        """
        failed = self._attempt(note)
        baseline = self.dir.campaign.baseline
        if failed is None or note.config != baseline or first_complete(self.dir.campaign, baseline) is not None:
            return
        if failed.again:
            self.say(f"{baseline} is started once more: nothing can be judged without it")
            failed = self._attempt(note)
        if failed is not None:
            raise self._without_baseline(baseline, note.order, failed)

    def _without_baseline(self, baseline: str, order: int, failed: Failure) -> BenchError:
        """The campaign's end: what the user can put right is a UsageError, all else was measured and bad."""
        generated = next(n for n in self.dir.campaign.launches if n.order == order).ready_s is not None
        name = "the baseline" if baseline == "baseline" else f"the baseline {baseline}"
        what = "was launched and could not be measured" if generated else "could not be launched"
        kind = UsageError if failed.unusable else MeasuredBad
        return kind(
            f"{name} {what}: {failed.reason}" + (f"; likely cause: {failed.cause}" if failed.cause else ""),
            failed.log_tail or "see its log; --resume goes on from here",
        )

    def _attempt(self, note: LaunchNote) -> Failure | None:
        current = next(n for n in self.dir.campaign.launches if n.order == note.order)
        try:
            self.launcher.measure(current)
        except KeyboardInterrupt:
            with contextlib.suppress(StoreError):
                self._put_back(note.order)
            raise
        except StoreError:
            with contextlib.suppress(StoreError):
                self._put_back(note.order)
            raise
        except BenchError as e:
            now = next(n for n in self.dir.campaign.launches if n.order == note.order)
            if now.status is not LaunchStatus.COMPLETE:
                return self._failed(note, e)
            said = hide_values(e.message, self.launcher.secrets)
            self.say(f"{note.config}: after its sweep: {said}")  # the launch itself is measured
        return None

    def _failed(self, note: LaunchNote, e: BenchError) -> Failure:
        failure = failure_of(e).without(self.launcher.secrets)
        self.dir.change_launch(
            note.order,
            status=LaunchStatus.FAILED,
            ended_utc=campaigns.now_utc(),
            reason=failure.reason,
            cause=failure.cause,
            log_tail=failure.log_tail or None,
        )
        self.say(
            f"{note.config} FAILED: {failure.reason}" + (f"; likely cause: {failure.cause}" if failure.cause else "")
        )
        return failure

    def _put_back(self, order: int) -> None:
        """A launch that was cut short is to be done again, unless its sweep was complete."""
        note = next(n for n in self.dir.campaign.launches if n.order == order)
        if note.status is LaunchStatus.RUNNING:
            said = f"attempt {note.attempt} was cut short: its part is not used"
            self.dir.change_launch(order, status=LaunchStatus.PENDING, experiment=None, notes=[*note.notes, said])

    def _ended(self, error: BenchError | None) -> None:
        launches = self.dir.campaign.launches
        left = sum(n.status in LEFT for n in launches)
        bad = sum(n.status in (LaunchStatus.FAILED, LaunchStatus.SKIPPED) for n in launches)
        status, reason = CampaignStatus.COMPLETE, None
        if self.interrupted:
            status, reason = CampaignStatus.ABORTED, "interrupted"
        elif isinstance(error, MeasuredBad | UsageError):
            status, reason = CampaignStatus.PARTIAL, error.message
        elif error is not None:
            status, reason = CampaignStatus.ABORTED, error.message
        elif left:
            status, reason = CampaignStatus.PAUSED, f"stopped as asked; {left} launches remain"
        elif bad:
            status, reason = CampaignStatus.PARTIAL, f"{bad} of {len(launches)} launches failed or were left out"
        self.dir.update(status=status, reason=reason, ended_utc=end_of(self.before, self.dir.campaign))


class Failure(NamedTuple):
    """Why a launch came to nothing."""

    reason: str
    cause: str | None
    log_tail: str
    unusable: bool = False  # an option, or a port that is taken: only the user can put it right

    @property
    def again(self) -> bool:
        """Whether a second attempt may end otherwise."""
        return not self.unusable and re.search(r"within \d+ s", self.reason) is None

    def without(self, secrets: Sequence[str]) -> Failure:
        """The same, with these values hidden."""
        return self._replace(
            reason=hide_values(self.reason, secrets),
            cause=None if self.cause is None else hide_values(self.cause, secrets),
            log_tail=hide_values(self.log_tail, secrets),
        )


def failure_of(e: BenchError) -> Failure:
    """A launch that failed brings its cause and its log; any other error what to do next."""
    if isinstance(e, LaunchFailed) and (e.cause or e.log_tail):
        return Failure(e.reason, e.cause, e.log_tail)
    unusable = isinstance(e, PortTaken) or (isinstance(e, UsageError) and not isinstance(e, LaunchFailed))
    return Failure(f"{e.message}; {e.hint}" if e.hint else e.message, None, "", unusable)


def left_out(launches: list[LaunchNote], config: str) -> str | None:
    """Why a configuration is not launched again: it failed twice in the same way. None: it is."""
    counted: dict[str, int] = {}
    for n in launches:
        if n.config == config and n.status is LaunchStatus.FAILED and n.reason:
            kind = re.sub(r"\d+", "#", n.reason)
            counted[kind] = counted.get(kind, 0) + 1
            if counted[kind] >= ALIKE:
                return f"it failed {ALIKE} times in the same way: {n.reason}"
    return None


def _now(o: CampaignOptions, c: Campaign) -> list[LaunchNote]:
    return within(c.launches, blocks=o.stop_after_blocks, most=o.stop_after_launches, only=o.only)
