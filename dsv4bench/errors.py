"""What can go wrong, in one tree; each error says what, where and what to do next.

    BenchError                exit code
    ├── UsageError            2   an option, a URL, a file the user named
    ├── MeasuredBad           1   measured, and bad: every request failed, a regression
    ├── Inconclusive          3   measured, and not enough to say
    ├── Unanswerable          4   missing or unsound data, unlike workloads
    │   └── SchemaError       4   a file of another kind or of a newer major version
    └── StoreError            2   the results folder cannot be read or written

Raised anywhere, printed once, by `cli`, as `error: …` and `hint: …`. Exit code 130 (interrupted) belongs to
`KeyboardInterrupt` and is no error of this tree.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_BAD = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_UNANSWERABLE = 4
EXIT_INTERRUPTED = 130


class BenchError(Exception):
    """An error that a user can act on: `message` names the offending value, `hint` the next step."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BenchError):
    """The user's options, URL or file cannot be used as they are."""


class MeasuredBad(BenchError):
    """The measurement took place and its outcome is bad."""

    exit_code = EXIT_BAD


class Inconclusive(BenchError):
    """The measurement took place and cannot decide."""

    exit_code = EXIT_INCONCLUSIVE


class Unanswerable(BenchError):
    """The data at hand cannot carry the question."""

    exit_code = EXIT_UNANSWERABLE


class SchemaError(Unanswerable):
    """A file of another kind, or of a newer major version than this tool reads."""


class StoreError(BenchError):
    """The results folder cannot be read or written."""
