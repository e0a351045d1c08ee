"""What is done with a recorder whose window ends early: it is told to stop, for a stated time, before anything else.

Ctrl-C is what ends most windows early, so the first one must not leave a profiler running; the second does not wait.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

from dsv4bench.capture import CaptureWindow
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.terminating import handled

TWICE_S = 0.5  # a wrapper that passes Ctrl-C on, as the terminal does, sends it twice


@contextlib.contextmanager
def told_to_stop(window: CaptureWindow | None, say: MessageCallback) -> Iterator[None]:
    """Whatever ends the window before it is closed, its recorder is told to stop, and that is waited for."""
    try:
        yield
    except BaseException:
        if window is not None:
            _abort(window, say)
        raise


def _abort(window: CaptureWindow, say: MessageCallback) -> None:
    if limit := window.abort_s:
        say(f"the recorder is told to stop; that is waited for up to {limit:.0f} s, Ctrl-C ends it now")
    try:
        with _patient():
            said = window.abort()
    except KeyboardInterrupt:
        say("not waited for: the recorder may still record, or still write")
        raise
    say(said)


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """SIGTERM does nothing in here, and Ctrl-C once the first one is over: a script that ends sends several."""
    since = time.monotonic()

    def again(number: int, frame: object) -> None:
        if time.monotonic() - since > TWICE_S:
            raise KeyboardInterrupt

    with handled({signal.SIGINT: again, signal.SIGTERM: signal.SIG_IGN}):
        yield
