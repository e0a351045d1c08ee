"""Where does a trace come from? A window of recording, or a command prefix, in; files and samples out.

Every way of recording a running server (`torch_http`, `nsys`, `pm`) is a `CaptureWindow`; what holds the load, when
the window opens and for how many decode steps, is `runs/profile_live.py`'s to decide. This room starts no load and
reads no trace.
"""

from __future__ import annotations

from typing import Protocol

from dsv4bench.records.capture import Captured, Method


class CaptureWindow(Protocol):
    """One recording, used once: `open`, then `close` or `abort`. Not for two threads at a time.

    Whoever opened a window ends it: `close` on the good way, `abort` on every other (Ctrl-C, a load that failed, a
    server that died). A window whose `open` or `close` raised may still be aborted, and is.
    """

    @property
    def method(self) -> Method: ...

    @property
    def abort_s(self) -> float:
        """The time after which `abort` gives up as things stand; 0 where there is nothing to wait for."""
        ...

    def open(self) -> None:
        """Start recording; returns when the recorder has confirmed that it does.

        Raises a BenchError whose hint is what the user can do; what it had started is ended then, or by `abort`.
        """
        ...

    def close(self) -> Captured:
        """End the recording and wait until its files are whole (their flush may take minutes: say so meanwhile).

        Raises Unanswerable when nothing usable was recorded, UsageError when the recorder does not answer.
        """
        ...

    def abort(self) -> str:
        """End the recording, whatever state it is in, and keep nothing of it. Never raises.

        Returns one line that says what happened: that the recorder was told to stop and did, or that it did not
        answer. Safe to call twice, and before `open`.
        """
        ...
