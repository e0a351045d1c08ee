"""`profile --with pm`: counters of the GPUs over a window, sampled from outside; no kernels are named.

The server is not told: nothing is profiled in it, so its speed in the window is the one that it has.
"""

from __future__ import annotations

from dsv4bench.capture.counters import Opened
from dsv4bench.errors import BenchError, Unanswerable
from dsv4bench.records.capture import Captured, Method, Moment

_NOTHING = "no recording had begun"
STOP_S = 30.0  # after which a sampling process is not waited for


class PmWindow:
    """A `CaptureWindow` on counters that are open already, and stay open for the next window."""

    method: Method = "pm"

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._since: Moment | None = None
        self._samples = False

    @property
    def abort_s(self) -> float:
        return STOP_S if self._samples else 0.0

    def open(self) -> None:
        self._samples = True
        self._opened.counters.start()
        self._since = Moment.now()

    def close(self) -> Captured:
        if not self._samples or self._since is None:
            raise Unanswerable("nothing was sampled: the window was never open")
        counters, until = self._opened.counters, Moment.now()
        self._samples = False
        samples = counters.stop()
        method, metrics = counters.method, ", ".join(counters.metrics)
        notes = [f"{method}: {metrics}", *self._opened.notes, *counters.said, *filter(None, [counters.ended])]
        if not any(len(one.time_ns) for one in samples):
            raise Unanswerable(
                f"{method} brought no sample" + (f": {counters.ended}" if counters.ended else ""),
                "a window of a second or more has some; see `dsv4bench doctor`",
            )
        return Captured(method="pm", opened=self._since, closed=until, samples=samples, notes=notes)

    def abort(self) -> str:
        if not self._samples:
            return _NOTHING
        self._samples = False
        try:
            self._opened.counters.stop()
        except (BenchError, OSError) as e:
            return f"the sampling processes did not end in order ({e})"
        return "sampling was stopped"
