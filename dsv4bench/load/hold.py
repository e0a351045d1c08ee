"""Exactly C requests in decode, for as long as a window of recording is open.

    with Hold(level) as hold:
        hold.wait(lambda now: now.in_decode, C, ...)       every prompt admitted, every first token seen
        before = hold.view()
        hold.wait(lambda now: now.steps_since(before, 1.0), 30, ...)
        outcome = hold.end()                               what is in flight is cancelled; records as of any level

A request that ends is replaced at once, and counted: its successor's prefill is inside the window then. A request
that fails, a server that is gone and a worker that is lost end the wait with MeasuredBad. The load runs in worker
processes, so whatever the caller does meanwhile (a profiler call that takes minutes) does not slow it. Ctrl-C is the
caller's own KeyboardInterrupt; leaving the context always ends the load.
"""

from __future__ import annotations

import contextlib
import selectors
import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec

from dsv4bench.errors import BenchError, MeasuredBad
from dsv4bench.load.messages import Finished, Stop, StreamCount, Tick, Watched
from dsv4bench.load.pool import Level, Outcome, WorkerProcess, merged, start_workers

END_S = 15.0  # for the workers to bring their records home
HEAR_S = 0.25


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """All live streams at one moment; `done` requests have ended since the start, `failed` of them badly."""

    at_ns: int  # monotonic; that of the worker who looked first
    streams: dict[int, StreamCount]
    done: int
    failed: int

    @property
    def in_decode(self) -> int:
        """Requests that have their first token and have not ended."""
        return sum(s.chunks > 0 for s in self.streams.values())

    def steps_since(self, before: HoldView, tokens_a_step: float | None) -> int:
        """Decode steps that every stream has made since `before`: the fewest of any.

        A chunk is a step's, or more than one step's where a slow front end joins them; the running token count over
        `tokens_a_step` (1 without speculation; None: not known, chunks alone) makes up for that.
        """
        return min((_steps(s, before.streams.get(i), tokens_a_step) for i, s in self.streams.items()), default=0)


def _steps(now: StreamCount, before: StreamCount | None, tokens_a_step: float | None) -> int:
    chunks = now.chunks - (before.chunks if before is not None else 0)
    if tokens_a_step is None or now.tokens is None:
        return chunks
    return max(chunks, int((now.tokens - ((before.tokens or 0) if before is not None else 0)) / tokens_a_step))


class Hold:
    """The load of a window; use it as a context."""

    def __init__(self, level: Level) -> None:
        self.concurrency = level.slots
        self._level = msgspec.structs.replace(level, watch=True)
        self._workers: list[WorkerProcess] = []
        self._watched: dict[WorkerProcess, Watched] = {}
        self._changed = threading.Condition()
        self._lost: BenchError | None = None
        self._thread = threading.Thread(target=self._hear, name="held-load", daemon=True)
        self._outcome: Outcome | None = None

    def __enter__(self) -> Hold:
        try:
            start_workers(self._level, self._workers)
        except BaseException:
            self._close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outcome is None:
            self._cancel()
            self._close()

    def view(self) -> HoldView:
        """Where every stream is now."""
        with self._changed:
            told = list(self._watched.values())
        return HoldView(
            at_ns=min((w.at_ns for w in told), default=0) if len(told) == len(self._workers) else 0,
            streams={s.index: s for w in told for s in w.streams},
            done=sum(w.done for w in told),
            failed=sum(w.failed for w in told),
        )

    def fresh(self, timeout_s: float) -> HoldView:
        """A view of which nothing is older than this call. Raises what `wait` raises."""
        asked = time.monotonic_ns()
        return self.wait(lambda now: now.at_ns > asked, 1, timeout_s, "a word of the load workers")

    def wait(self, progress: Callable[[HoldView], int], wanted: int, timeout_s: float, what: str) -> HoldView:
        """Wait until `progress` is at least `wanted`; the view that shows it.

        Raises MeasuredBad when the load cannot go on, or when there is no progress for `timeout_s`.
        """
        best, deadline = -1, 0.0
        while True:
            with self._changed:
                self._changed.wait(HEAR_S)
            now = self.view()
            self._check(now)
            reached = progress(now)
            if reached >= wanted:
                return now
            if reached > best:
                best, deadline = reached, time.monotonic() + timeout_s
            if time.monotonic() > deadline:
                raise MeasuredBad(
                    f"{what}: {reached} after {timeout_s:g} s without progress",
                    "is the server stuck? its log tells; --timeout S waits longer",
                )

    def end(self) -> Outcome:
        """Cancel what is in flight; the records of everything that was sent."""
        if self._outcome is None:
            self._cancel()
            self._thread.join(END_S)
            finished = [w.finished for w in self._workers if w.finished is not None]
            self._close()
            if not finished:
                raise self._lost or MeasuredBad("the load workers brought nothing home", "out of memory?")
            self._outcome = merged(finished, interrupted=False)
        return self._outcome

    def _check(self, now: HoldView) -> None:
        """Raises MeasuredBad when C requests are not held any more."""
        if self._lost is not None:
            raise self._lost
        over = any(w.finished is not None for w in self._workers)
        if not now.failed and not over:
            return
        outcome = self.end()
        bad = [r for r in outcome.records if not r.ok and r.error != "cancelled"]
        why = outcome.server_gone or (f"{bad[0].error}: {bad[0].error_text or ''}".rstrip(": ") if bad else None)
        raise MeasuredBad(
            f"{self.concurrency} requests could not be held: {why or 'the prepared prompts ran out'}",
            "see the server's log" if why else "the server ends requests before the window does; see --osl",
        )

    def _hear(self) -> None:
        """The workers' words, until each has finished; in its own thread."""
        with selectors.DefaultSelector() as selector:
            for w in self._workers:
                selector.register(w.out, selectors.EVENT_READ, w)
            while selector.get_map():
                for key, _ in selector.select(HEAR_S):
                    self._hear_one(key.data, selector)

    def _hear_one(self, w: WorkerProcess, selector: selectors.BaseSelector) -> None:
        try:
            message = w.hear()
        except (BenchError, OSError, ValueError) as e:  # a worker was lost, or its pipe closed by `_close`
            selector.unregister(w.out)
            with self._changed:
                self._lost = e if isinstance(e, BenchError) else MeasuredBad(f"a load worker was lost: {e}")
                self._changed.notify_all()
            return
        with self._changed:
            if isinstance(message, Finished):
                selector.unregister(w.out)
                w.finished = message
            elif isinstance(message, Watched):
                self._watched[w] = message
            elif isinstance(message, Tick):
                w.tick = message
            self._changed.notify_all()

    def _cancel(self) -> None:
        for w in self._workers:
            if w.finished is None:
                with contextlib.suppress(OSError, ValueError):
                    w.tell(Stop(cancel=True))

    def _close(self) -> None:
        """End the workers; a thread that still hears one finds its pipe at an end."""
        for w in self._workers:
            if w.process.poll() is None and w.finished is None and self._thread.ident is not None:
                w.process.terminate()
        if self._thread.ident is not None:
            self._thread.join(END_S)
        for w in self._workers:
            w.end()
