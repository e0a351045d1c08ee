"""campaign.json: a campaign that was run here: its launches in order, what was checked of each, and what came of it.

Every launch is an experiment of its own (its sweep), named by id; a pair is two launches of one block. The numbers
stay in the experiments; this says how they belong together, and what a reader must know before trusting them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.cell import Cell, ErrorNote
from dsv4bench.records.codec import Document
from dsv4bench.records.experiment import Experiment
from dsv4bench.records.goal import Goal
from dsv4bench.records.series import Series
from dsv4bench.records.verdict import VerdictDocument


class Live(StrEnum):
    """Is the lever in force on the running server?"""

    LIVE = "live"  # all that was asked for was seen
    NOT_LIVE = "not live"  # something was seen to be otherwise: no verdict
    UNKNOWN = "unknown"  # nothing could be seen, or nothing was asked for


class LiveCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked for. `where`: args, env, log or kernels. `seen` None: nothing to look at."""

    where: str
    wanted: str
    seen: str | None
    state: Live
    note: str | None = None  # why it could not be looked at, or in how many launches it was seen


class LeverLive(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration's lever, over all its launches."""

    config: str
    lever: str
    state: Live
    checks: list[LiveCheck] = msgspec.field(default_factory=list)


class OutputPair(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt's greedy output beside the baseline's. Positions count generated tokens from 0."""

    prompt: int
    n_base: int
    n_new: int
    first_difference: int | None  # None: equal; where one ended, the other went on: its length
    gap: float | None = (
        None  # log-probability of the baseline's token minus that of the new one, there; None: not told
    )
    near_tie: bool | None = None  # None: cannot be told without log-probabilities


MAY_DIFFER = "its text may differ"  # by the scenario: other weights, other precision


class OutputParity(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration against the baseline. `same` None: it could not be told, and `why` says so."""

    config: str
    base: str
    same: bool | None
    pairs: list[OutputPair] = msgspec.field(default_factory=list)
    why: str = ""

    @property
    def outcome(self) -> Literal["the same", "DIFFERENT", "cannot be told", "not compared"]:
        if self.same is not None:
            return "the same" if self.same else "DIFFERENT"
        return "not compared" if self.why == MAY_DIFFER else "cannot be told"


class LaunchStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"  # crashed, hung, or its sweep ended early
    SKIPPED = "skipped"  # an earlier launch of the same configuration failed in the same way


class LaunchNote(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of one configuration. `order` counts launches of the campaign as they are planned."""

    order: int
    block: int
    config: str
    status: LaunchStatus = LaunchStatus.PENDING
    attempt: int = 0  # how often it was started
    experiment: str | None = None  # id of its sweep
    started_utc: str | None = None
    ended_utc: str | None = None
    ready_s: float | None = None  # from the start of the process to the first generated token
    first_generation_s: float | None = None  # of one short request just after, and of the second: far apart is a
    second_generation_s: float | None = None  # compile at first use
    command: list[str] = msgspec.field(default_factory=list)  # redacted; of the role that gets the load
    live: LeverLive | None = None  # what was seen of its lever at this launch
    notes: list[str] = msgspec.field(default_factory=list)  # warm-up, compile, clocks, interruption
    reason: str | None = None  # of a failure: what happened
    cause: str | None = None  # its likely cause
    log_tail: str | None = None  # the log's last lines, redacted


class ProfileNote(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration's profile; the breakdown itself lies with the experiment of that id."""

    config: str
    experiment: str | None = None
    method: str
    live_label: str | None = None  # which implementation its kernels prove to be live
    error: str | None = None


class CampaignStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"  # every planned launch is
    PARTIAL = "partial"  # ended with launches that failed
    PAUSED = "paused"  # ended before its last block, as asked: --resume goes on
    ABORTED = "aborted"  # interrupted, or stopped by an error: --resume goes on


class Campaign(Document, frozen=True, kw_only=True):
    """The whole file. `scenario_sha256` is of the scenario's text, which lies beside it as scenario.yaml."""

    schema: str = "dsv4bench.campaign/1"
    id: str
    name: str
    about: str | None = None
    status: CampaignStatus
    reason: str | None = None
    scenario_sha256: str
    variables: dict[str, str] | None = None  # ${NAME} -> value at the start, redacted; None: not recorded
    started_utc: str
    ended_utc: str | None = None
    resumed: int = 0
    baseline: str
    configs: list[str]
    parents: dict[str, str] = msgspec.field(default_factory=dict)
    levers: dict[str, str] = msgspec.field(default_factory=dict)
    blocks: int
    seed: int
    launches: list[LaunchNote] = msgspec.field(default_factory=list)
    profiles: list[ProfileNote] = msgspec.field(default_factory=list)
    parity: list[OutputParity] = msgspec.field(default_factory=list)
    live: list[LeverLive] = msgspec.field(default_factory=list)
    goal: Goal | None = None
    verdict: str | None = None  # id of its comparison in results/verdicts
    notes: list[str] = msgspec.field(default_factory=list)


class CampaignEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign in a list."""

    id: str
    status: CampaignStatus
    configs: list[str]
    n_complete: int
    n_launches: int
    started_utc: str


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a campaign would do: its launches in order, and how long that takes. None: it cannot be told."""

    launches: list[LaunchNote]
    seconds: float | None
    at_least: bool = False  # True: `seconds` leaves out what no earlier launch tells
    seed: int | None = None  # None: drawn at the start
    basis: list[str] = msgspec.field(default_factory=list)  # what the estimate rests on, and what it leaves out


class ExperimentData(msgspec.Struct, frozen=True, kw_only=True):
    """What git holds of one experiment."""

    experiment: Experiment
    cells: list[Cell]
    series: Series | None = None


class ReportInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report is drawn from. `campaign` None: a single experiment. Breakdowns carry their `config`."""

    campaign: Campaign | None
    experiments: list[ExperimentData]
    verdict: VerdictDocument | None = None
    breakdowns: list[BreakdownDocument] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)  # what could not be read
    cautions: list[str] = msgspec.field(default_factory=list)  # what was read and must not be taken as it stands


class CampaignDocument(Document, frozen=True, kw_only=True):
    """What `dsv4bench campaign --json` prints."""

    schema: str = "dsv4bench.campaign-run/1"
    campaign: Campaign | None = None
    plan: CampaignPlan | None = None  # with --dry-run
    path: str | None = None
    report: str | None = None
    findings: str | None = None
    verdict: VerdictDocument | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    error: ErrorNote | None = None
