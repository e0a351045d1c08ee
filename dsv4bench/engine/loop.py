"""The engine's thread: takes requests in, steps while there is work, hands tokens out once a step.

`submit`, `cancel` and the profile calls may come from any thread. What a step produced goes to one callback, as one
list; the HTTP side makes that a single `call_soon_threadsafe`. If a step raises, every request gets an error, and
the engine stays dead: it does not serve on with a cache it cannot trust.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.executor import Live
from dsv4bench.engine.metrics import EngineMetrics
from dsv4bench.engine.profiler import ProfileRequest, StepProfiler
from dsv4bench.engine.sequence import Delivery, Sequence
from dsv4bench.engine.stepper import Stepper

T = TypeVar("T")
Deliver = Callable[[list[Delivery]], None]


class QueueFull(Exception):
    """No slot is free and the queue has reached its limit."""


class EngineDead(Exception):
    """A step has failed, or the engine has stopped."""


class EngineLoop:
    """Owns the stepper; `start` runs it in a daemon thread."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._stepper = Stepper(config)
        self._stepper.warm_up()
        self._profiler = StepProfiler(self._stepper.spans, config.device)
        self.metrics = EngineMetrics(config.served_model_name, speculation=config.speculation is not None)
        self.metrics.tell(self.live)
        self._wake = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._inside = 0  # submitted and not finished; guarded by _wake
        self._stopping = False
        self.failure: str | None = None
        self._deliver: Deliver = lambda _: None
        self._thread = threading.Thread(target=self._run, name="dsv4bench-engine", daemon=True)

    @property
    def live(self) -> Live:
        return self._stepper.executor.live

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its current step; requests still inside are dropped."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def fits(self, tokens: int) -> bool:
        """Whether a request of that many tokens in all fits the KV pool even when it is alone."""
        pool = self._stepper.schedule.pool
        return pool.pages_for(tokens + self.config.positions_a_step) <= pool.total

    def submit(self, seq: Sequence) -> None:
        """Raises QueueFull or EngineDead."""
        with self._wake:
            if self.failure or self._stopping:
                raise EngineDead(self.failure or "the engine has stopped")
            if self._inside >= self.config.max_running + self.config.queue_limit:
                raise QueueFull
            self._inside += 1
            self._inbox.append(lambda: self._stepper.schedule.waiting.append(seq))
            self._wake.notify()

    def cancel(self, request_id: str) -> None:
        """Frees whatever the request holds; nothing happens when it has finished."""
        self._call(lambda: self._cancel(request_id))

    def start_profile(self, request: ProfileRequest) -> Future[None]:
        return self._ask(lambda: self._profiler.start(request))

    def stop_profile(self) -> Future[Path | None]:
        """The path of the trace; that of the last one when none is running. StoreError: it was not written."""
        return self._ask(self._profiler.stop)

    @property
    def profile_ended_early(self) -> str:
        """Why the last profile ended by itself before its steps were done; empty when it did not."""
        return self._profiler.ended_early

    def _cancel(self, request_id: str) -> None:
        if self._stepper.schedule.cancel(request_id):
            self._left(1)
            self.metrics.aborted()

    def _left(self, requests: int) -> None:
        with self._wake:
            self._inside -= requests

    def _call(self, function: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(function)
            self._wake.notify()

    def _ask(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def answer() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        if self.failure:
            raise EngineDead(self.failure)
        self._call(answer)
        return future

    def _run(self) -> None:
        try:
            while self._take_inbox():
                self._step()
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._fail(f"{type(error).__name__}: {error}")

    def _take_inbox(self) -> bool:
        """Runs what came in, and sleeps while there is nothing to compute. False: stop."""
        schedule = self._stepper.schedule
        while True:
            with self._wake:
                if self._stopping:
                    return False
                if not self._inbox and not schedule.running and not schedule.waiting:
                    self._wake.wait()
                calls = list(self._inbox)
                self._inbox.clear()
            for call in calls:
                call()
            schedule.admit()  # now, so that the gauge counts a request from its prefill on
            self._gauge()
            if schedule.running or schedule.waiting:
                return True

    def _step(self) -> None:
        self._profiler.before_step()
        result = self._stepper.step()
        self._profiler.after_step()
        self._gauge()
        self.metrics.observe_step(result)
        self._left(sum(emission.delivery.finish is not None for emission in result.emissions))
        if result.emissions:
            self._deliver([emission.delivery for emission in result.emissions])

    def _gauge(self) -> None:
        schedule = self._stepper.schedule
        self.metrics.running.set(len(schedule.running))
        self.metrics.waiting.set(len(schedule.waiting))
        self.metrics.kv_usage.set(schedule.pool.used_frac)

    def _fail(self, reason: str) -> None:
        with self._wake:
            self.failure = reason
            pending = list(self._inbox)
            self._inbox.clear()
        for call in pending:
            call()
        schedule = self._stepper.schedule
        lost = [*schedule.running, *schedule.waiting]
        self._deliver([Delivery(request_id=seq.request_id, tokens=[], finish="error", error=reason) for seq in lost])
