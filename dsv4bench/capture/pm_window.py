"""`profile --with pm`: counters of the GPUs over a window, sampled from outside; no kernels are named.

The server is not told: nothing is profiled in it, so its speed in the window is the one that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsv4bench.capture.counters import Opened, open_counters
from dsv4bench.capture.pm import INTERVAL_US
from dsv4bench.errors import BenchError, Unanswerable
from dsv4bench.records.capture import Captured, Method, Moment

_NOTHING = "no recording had begun"


class PmWindow:
    """A `CaptureWindow`. `gpus` in NVML's order; None: those in use."""

    method: Method = "pm"

    def __init__(
        self,
        gpus: Sequence[int] | None = None,
        interval_us: float = INTERVAL_US,
        opening: Callable[[Sequence[int] | None, float], Opened] = open_counters,
    ) -> None:
        self._gpus, self._interval_us, self._open_counters = gpus, interval_us, opening
        self._opened: Opened | None = None
        self._since: Moment | None = None

    def prepare(self) -> None:
        """Open the counters, a second or two, before the load is there. `open` does it otherwise."""
        if self._opened is None:
            self._opened = self._open_counters(self._gpus, self._interval_us)

    def open(self) -> None:
        self.prepare()
        assert self._opened is not None
        self._opened.counters.start()
        self._since = Moment.now()

    def close(self) -> Captured:
        if self._opened is None or self._since is None:
            raise Unanswerable("nothing was sampled: the window was never open")
        opened, counters = self._opened, self._opened.counters
        until = Moment.now()
        samples = counters.stop()
        method, metrics = counters.method, ", ".join(counters.metrics)
        notes = [f"{method}: {metrics}", *opened.notes, *counters.said, *filter(None, [counters.ended])]
        self._end()
        if not any(len(one.time_ns) for one in samples):
            raise Unanswerable(
                f"{method} brought no sample" + (f": {counters.ended}" if counters.ended else ""),
                "a window of a second or more has some; see `dsv4bench doctor`",
            )
        return Captured(method="pm", opened=self._since, closed=until, samples=samples, notes=notes)

    def abort(self) -> str:
        if self._opened is None:
            return _NOTHING
        try:
            self._opened.counters.stop()
            self._end()
        except (BenchError, OSError) as e:
            return f"the sampling processes did not end in order ({e})"
        return "sampling was stopped"

    def _end(self) -> None:
        if self._opened is not None:
            self._opened.counters.close()
        self._opened = None
