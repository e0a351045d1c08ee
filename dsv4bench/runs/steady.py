"""C requests held in decode for a stated number of steps, with a recorder's window around them or without one.

    fill      every prompt admitted, every first token seen, the batch full by the server's own gauge where it tells
    window    opens; so many decode steps pass by the client's count; it closes; only then the load is cancelled
    TPOT      of the held requests inside the window, as the client saw it

The run without a window is what the one with it is compared with; they are never the same run. Whatever ends a window
early, its recorder is told to stop before anything else is done.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from dsv4bench.capture import CaptureWindow
from dsv4bench.errors import MeasuredBad
from dsv4bench.load.hold import Hold, HoldView
from dsv4bench.load.pool import Outcome
from dsv4bench.load.prompts import Prompt
from dsv4bench.load.summary import mean
from dsv4bench.records.capture import Captured
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.request import RequestRecord
from dsv4bench.records.server import Gauges
from dsv4bench.runs.sending import Sender
from dsv4bench.runs.told_to_stop import told_to_stop

SETTLE_STEPS = 3  # of the full batch, before the window opens
GAUGE_STEPS = 45  # SGLang's gauge follows every 40 decode steps
GAUGE_S = (3.0, 10.0)  # at least, at most
SLACK_S = 5.0  # a recorder may take as long to start, while requests go on
CHUNK_TOKENS = 512  # of a prompt a step, at the least; so many steps pass while the others are admitted
MAX_OSL = 16_384
PAUSE_TIMES = 10.0  # a gap between tokens that much longer than the usual one is a pause
PAUSE_S = 0.2
CALM_S, CALM_TIMES, CALM_TOKENS = 5.0, 2.0, 3  # a burst is more than twice the usual rate, and three tokens


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """How the load is made. `take(n, osl, purpose)` gives prompts that no other purpose gets."""

    sender: Sender
    take: Callable[[int, int, str], list[Prompt]]
    isl: int
    steps: int
    timeout_s: float
    gauges: Callable[[], Gauges | None]
    max_model_len: int | None = None
    tpot_s: float = 0.01  # as far as it is known: how many tokens a second of slack is
    tokens_a_step: float | None = None


class Window(NamedTuple):
    """What the client saw of the requests while a window was open. Times are monotonic ns."""

    opened_ns: int
    closed_ns: int
    tpot_s: float | None
    tokens_per_chunk: float | None
    steps_seen: int
    replaced: int
    running: float | None
    captured: Captured | None
    notes: list[str]


def held(s: Steady, concurrency: int, purpose: str, window: CaptureWindow | None, say: MessageCallback) -> Window:
    """Hold C requests through one window.

    Raises MeasuredBad when they cannot be held, and whatever the window raises; the recorder is told to stop then.
    """
    osl, short = osl_for(s, concurrency)
    prompts = s.take(4 * concurrency + 4, osl, purpose)
    with Hold(s.sender.level(prompts, concurrency)) as hold:
        notes = _filled(s, hold)
        with told_to_stop(window, say):
            if window is not None:
                window.open()
            before = _calm(s, hold)
            after = _stepped(s, hold, before, s.steps, f"{s.steps} decode steps")
            running = _running(s.gauges())
            captured = window.close() if window is not None else None
        outcome = hold.end()
    if after.done > before.done:
        notes.append(f"{after.done - before.done} requests ended inside the window and were replaced{short}")
    return _window(s, before, after, running, captured, outcome, notes)


def osl_for(s: Steady, concurrency: int) -> tuple[int, str]:
    """Tokens to ask for so that no request ends inside the window; and why, where the model's length forbids it."""
    filling = concurrency * math.ceil(s.isl / CHUNK_TOKENS) + SETTLE_STEPS + GAUGE_STEPS
    slack = math.ceil(SLACK_S / max(s.tpot_s, 1e-3))
    wanted = min(MAX_OSL, math.ceil((filling + 2 * s.steps) * max(s.tokens_a_step or 1.0, 1.0)) + slack)
    longest = wanted if s.max_model_len is None else s.max_model_len - s.isl - 1
    if longest >= wanted:
        return wanted, ""
    return max(longest, 1), f": the model's length leaves {max(longest, 0)} output tokens"


def _filled(s: Steady, hold: Hold) -> list[str]:
    """Until the whole batch decodes; what the gauge said otherwise."""
    c = hold.concurrency
    try:
        first = hold.wait(lambda now: now.in_decode, c, s.timeout_s, f"first tokens of {c} requests")
    except MeasuredBad as e:
        gauges = s.gauges()
        if gauges is None or gauges.running is None or gauges.running >= c:
            raise
        waiting = "" if gauges.waiting is None else f", {gauges.waiting:.0f} wait"
        raise MeasuredBad(
            f"{e.message}; the server runs {gauges.running:.0f} at once{waiting}",
            f"its batch limit is below {c} (--max-running-requests, --max-num-seqs), or its KV cache is full",
        ) from e
    started, running = time.monotonic(), _running(s.gauges())
    while running is not None and running != c:
        passed = time.monotonic() - started
        steps = hold.view().steps_since(first, s.tokens_a_step)
        if passed > GAUGE_S[1] or (passed > GAUGE_S[0] and steps > GAUGE_STEPS):
            break
        time.sleep(0.2)
        running = _running(s.gauges())
    _stepped(s, hold, hold.view(), SETTLE_STEPS, f"{SETTLE_STEPS} decode steps of the full batch")
    if running is None or running == c:
        return []
    other = ": there is other traffic" if running > c else ""
    return [f"the server's gauge said {running:.0f} running for {c} in decode{other}"]


def _calm(s: Steady, hold: Hold) -> HoldView:
    """The window's first view, after a step of its own, once tokens come no faster than they are made.

    A front end that was busy starting the recorder hands out what was made meanwhile; counted as steps of the window
    it would close it at once, at no time a token.
    """
    last = _stepped(s, hold, hold.fresh(s.timeout_s), 1, "the first decode step in the window")
    deadline = time.monotonic() + CALM_S
    while time.monotonic() < deadline:
        now = hold.fresh(s.timeout_s)
        expected = (now.at_ns - last.at_ns) / 1e9 / s.tpot_s
        came = max((_came(now, last, i) for i in now.streams), default=0)
        last = now
        if came <= CALM_TIMES * expected + CALM_TOKENS:
            break
    return last


def _came(now: HoldView, before: HoldView, index: int) -> int:
    """Tokens of one stream between two views; chunks where the server does not count."""
    new, old = now.streams[index], before.streams.get(index)
    if new.tokens is not None:
        return new.tokens - ((old.tokens or 0) if old is not None else 0)
    return new.chunks - (old.chunks if old is not None else 0)


def _stepped(s: Steady, hold: Hold, before: HoldView, steps: int, what: str) -> HoldView:
    return hold.wait(lambda now: now.steps_since(before, s.tokens_a_step), steps, s.timeout_s, what)


def _window(
    s: Steady,
    before: HoldView,
    after: HoldView,
    running: float | None,
    captured: Captured | None,
    outcome: Outcome,
    notes: list[str],
) -> Window:
    low, high = before.at_ns - outcome.start_ns, after.at_ns - outcome.start_ns
    told = [t for r in outcome.records if (t := _tpot(r, low, high, s, trimmed=captured is not None)) is not None]
    pause_s = max((t.pause_s for t in told), default=0.0)
    said = list(notes)
    if pause_s:
        said.append(f"a pause of {pause_s:.1f} s inside the window (the recorder's own) is not in TPOT")
    if captured is not None:
        captured = dataclasses.replace(
            captured, steps_asked=s.steps, steps_seen=after.steps_since(before, s.tokens_a_step)
        )
        said += captured.notes
    return Window(
        opened_ns=before.at_ns,
        closed_ns=after.at_ns,
        tpot_s=mean([t.tpot_s for t in told]),
        tokens_per_chunk=mean([t.tokens_per_chunk for t in told]),
        steps_seen=after.steps_since(before, s.tokens_a_step),
        replaced=after.done - before.done,
        running=running,
        captured=captured,
        notes=said,
    )


class _Told(NamedTuple):
    tpot_s: float
    tokens_per_chunk: float
    pause_s: float  # what was left out


def _tpot(r: RequestRecord, low_ns: int, high_ns: int, s: Steady, *, trimmed: bool) -> _Told | None:
    """Of one request between two moments; None with fewer than two chunks there.

    `trimmed`: of no more than the steps that were asked for, since a recorder may stop by itself, and without the
    pauses in which it stopped the engine. A pause is long for each token: a chunk that brings many may come late.
    """
    inside = [i for i, t in enumerate(r.chunk_ns) if low_ns < t <= high_ns]
    gaps = [(r.chunk_ns[b] - r.chunk_ns[a], _tokens(r, b)) for a, b in itertools.pairwise(inside)]
    kept, pause_ns = gaps, 0
    if trimmed and gaps:
        most = s.steps * (s.tokens_a_step or 1.0)
        so_far = itertools.accumulate((n for _, n in gaps), initial=0)
        gaps = [g for g, before in zip(gaps, so_far, strict=False) if before < most]
        usual = statistics.median(ns / max(n, 1) for ns, n in gaps)
        limit = max(PAUSE_TIMES * usual, usual + PAUSE_S * 1e9)
        kept = [(ns, n) for ns, n in gaps if ns / max(n, 1) <= limit]
        pause_ns = max((ns for ns, n in gaps if ns / max(n, 1) > limit), default=0)
    tokens = sum(n for _, n in kept)
    if not tokens:
        return None
    return _Told(sum(ns for ns, _ in kept) / tokens / 1e9, tokens / len(kept), pause_ns / 1e9)


def _tokens(r: RequestRecord, chunk: int) -> int:
    return r.chunk_tokens[chunk] if r.chunk_tokens is not None else 1


def _running(gauges: Gauges | None) -> float | None:
    return gauges.running if gauges is not None else None


def drained(gauges: Callable[[], Gauges | None], timeout_s: float, poll_s: float = 0.2) -> None:
    """Wait until the server runs nothing any more, where it tells: what one window began must not reach the next."""
    deadline = time.monotonic() + timeout_s
    while (_running(gauges()) or 0) > 0 and time.monotonic() < deadline:
        time.sleep(poll_s)
