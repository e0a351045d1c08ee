"""One level: warm up, watch, send, and turn what came back into a `Cell`."""

from __future__ import annotations

import array
import math
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from dsv4bench.host.redact import redact_text
from dsv4bench.load.checks import Evidence, check, notes
from dsv4bench.load.messages import Tick
from dsv4bench.load.pool import Level, Outcome, run_level
from dsv4bench.load.prompts import Prompt
from dsv4bench.load.summary import Numbers, percentile, steady_window, summarise
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import ErrorKind, RequestRecord
from dsv4bench.records.server import ServerInfo, TelemetrySample
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.runs.device_counters import LevelCounters
from dsv4bench.runs.options import Coordinates
from dsv4bench.runs.probe import Probed, requests_of
from dsv4bench.runs.sending import arrivals_ns
from dsv4bench.runs.telemetry import ServerView, Telemetry
from dsv4bench.server.target import Target

WARMUP_TOKENS = 16
LOST = (ErrorKind.TRUNCATED, ErrorKind.CLOSED, ErrorKind.REFUSED)
LOOK_S = 2.0
PREPARED_SLACK = 1.5  # prompts prepared for a level that ends by time, over what the probe's speed could use up

TickCallback = Callable[[Tick, float], None]


class Measured(NamedTuple):
    cell: Cell
    records: list[RequestRecord]
    telemetry: list[TelemetrySample]
    server_gone: str | None
    interrupted: bool


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What every level of a sweep shares. `resumed` counts the earlier attempts, whose prompts a cache may hold."""

    info: ServerInfo
    plan: Plan
    workload: Workload
    probed: Probed
    on_this_host: bool
    resumed: int = 0
    counters: LevelCounters | None = None
    block: int | None = None


def warm_up(s: Setting, at: Coordinates) -> None:
    """One short wave at this level's concurrency, with prompts that no level sends. Raises KeyboardInterrupt."""
    n = at.concurrency or 1
    prompts = _take(s, at, n, "warmup")
    tokens = min(WARMUP_TOKENS, s.workload.osl or WARMUP_TOKENS)
    if run_level(s.probed.sender.level(prompts, n, max_tokens=tokens)).interrupted:
        raise KeyboardInterrupt


def measure(s: Setting, at: Coordinates, launch: str, on_tick: TickCallback | None = None) -> Measured:
    """Run the level. Raises UsageError or MeasuredBad when it cannot even start."""
    level = _level(s, at)
    started = datetime.now(UTC)
    with Telemetry(s.probed.sender.target, s.info, at.cell, s.on_this_host, s.counters) as telemetry:
        outcome = run_level(level, on_tick)
    gone = outcome.server_gone or _gone(outcome.records, s.probed.sender.target)
    outcome = msgspec.structs.replace(outcome, server_gone=gone)
    numbers = summarise(outcome.records, at.concurrency, s.plan.slo)
    view = telemetry.view(_steady_epoch(outcome, at.concurrency))
    cell = _cell(s, at, launch, started, outcome, numbers, view, telemetry.notes())
    interrupted = outcome.interrupted or telemetry.interrupted
    return Measured(cell, outcome.records, telemetry.samples(), gone, interrupted)


def _gone(records: list[RequestRecord], target: Target) -> str | None:
    """Why the server counts as gone: a level's last connections were lost, and it takes no new one."""
    if not any(r.error in LOST for r in records):
        return None
    try:
        socket.create_connection((target.host, target.port), timeout=LOOK_S).close()
    except OSError as e:
        return f"{target.host}:{target.port} takes no connections any more ({e.strerror or e})"
    return None


def _level(s: Setting, at: Coordinates) -> Level:
    plan, sender = s.plan, s.probed.sender
    if at.rate_req_s is not None:
        n = requests_of(at.rate_req_s, plan)
        schedule = arrivals_ns(n, at.rate_req_s, plan.arrivals, f"{s.workload.seed}/{at.cell}", plan.duration_s)
        prompts = _take(s, at, len(schedule), "level")
        return sender.level(prompts, len(schedule), schedule_ns=schedule, duration_s=plan.duration_s)
    assert at.concurrency is not None
    if plan.duration_s is not None:
        one = s.probed.ttft_s + s.probed.tpot_s * (s.workload.osl or 1)
        rounds = math.ceil(plan.duration_s / one * PREPARED_SLACK) + 2 if one > 0 else 1000
        n = at.concurrency * min(rounds, 4000)
    else:
        n = plan.requests_at(at.concurrency)
    return sender.level(_take(s, at, n, "level"), at.concurrency, duration_s=plan.duration_s)


def _take(s: Setting, at: Coordinates, n: int, purpose: str) -> list[Prompt]:
    load = at.concurrency if at.concurrency is not None else f"{at.rate_req_s:g}"
    again = (f"resumed {s.resumed}",) if s.resumed else ()
    return s.probed.source.take(n, at.isl, s.workload.osl, purpose, load, at.isl, at.repeat, *again)


def _steady_epoch(outcome: Outcome, concurrency: int | None) -> tuple[float, float] | None:
    window = steady_window(outcome.records, concurrency) if concurrency is not None else None
    if window is None:
        return None
    return outcome.start_epoch_s + window[0] / 1e9, outcome.start_epoch_s + window[1] / 1e9


def _cell(
    s: Setting,
    at: Coordinates,
    launch: str,
    started: datetime,
    outcome: Outcome,
    numbers: Numbers,
    view: ServerView,
    server_notes: list[str],
) -> Cell:
    lag = _lag(outcome.lag_ns)
    evidence = Evidence(
        concurrency=at.concurrency,
        isl=at.isl,
        osl=s.workload.osl,
        exact_isl=s.probed.source.kind == "token_ids" and s.probed.dataset == "random",
        lag_p99_s=lag[1],
        kernel_stamps=outcome.timestamps == "kernel",
        # an open loop spins before each scheduled send: its CPU share says nothing of its reserve
        worker_cpu_frac=outcome.worker_cpu_frac if at.concurrency is not None else None,
        prefix_hit_frac=view.prefix_hit_frac,
        prefix_share=s.workload.prefix_share or 0.0,
        interrupted=outcome.interrupted,
        server_gone=outcome.server_gone is not None,
        server_running_mean=view.server_running_mean,
        server_tpot_mean_s=view.server_tpot_mean_s,
        server_output_tokens=view.server_output_tokens,
    )
    invalid, why = check(numbers, evidence)
    if numbers.error_example is not None:
        numbers = msgspec.structs.replace(numbers, error_example=redact_text(numbers.error_example))
    said = notes(numbers, evidence) + outcome.notes + server_notes
    if s.probed.source.repeats:
        said.append("the file has fewer prompts than requests: they repeat")
    if outcome.server_gone:
        said.append(outcome.server_gone)
    if s.plan.duration_s is not None and not outcome.unsent and at.concurrency is not None:
        said.append("prepared prompts ran out before the time did")
    return Cell(
        cell=at.cell,
        launch=launch,
        repeat=at.repeat,
        concurrency=at.concurrency,
        rate_req_s=at.rate_req_s,
        isl=at.isl,
        osl=s.workload.osl,
        started_utc=started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        invalid=invalid,
        invalid_why=why,
        notes=said,
        timestamps="kernel" if outcome.timestamps == "kernel" else "user",
        client_lag_p50_s=lag[0],
        client_lag_p99_s=lag[1],
        client_lag_max_s=lag[2],
        worker_cpu_frac=outcome.worker_cpu_frac,
        n_workers=outcome.n_workers,
        block=s.block,
        **msgspec.structs.asdict(numbers),
        **msgspec.structs.asdict(view),
    )


def _lag(lag_ns: array.array[int]) -> tuple[float | None, float | None, float | None]:
    """(p50, p99, max) in seconds."""
    values = sorted(lag_ns)
    if not values:
        return None, None, None
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    assert p50 is not None and p99 is not None
    return p50 / 1e9, p99 / 1e9, values[-1] / 1e9
