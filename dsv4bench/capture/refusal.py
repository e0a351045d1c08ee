"""The error of a way to read a GPU's counters that does not work here: which way, what kind of reason, the remedy."""

from __future__ import annotations

from dsv4bench.capture.pm_frames import Why
from dsv4bench.errors import UsageError


class CountersRefused(UsageError):
    """`why` decides whether another way may work; message and hint are for people."""

    def __init__(self, method: str, why: Why, message: str, hint: str = "") -> None:
        super().__init__(f"{method}: {message}", hint)
        self.method, self.why = method, why
