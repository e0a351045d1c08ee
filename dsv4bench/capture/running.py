"""Run a profiler's own command: with a limit of time, somebody watching, and nothing left of it afterwards."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dsv4bench.errors import UsageError
from dsv4bench.host.process import die_with_parent, kill_group

_POLL_S = 0.1
_TAIL_BYTES = 65536


class Finished(NamedTuple):
    """`code` None: it was ended because its time was up. `said` is the end of its stdout and stderr together."""

    code: int | None
    said: str
    seconds: float


def run_tool(
    command: Sequence[str],
    output: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    watch: Callable[[float], None] | None = None,
    grace_s: float = 5.0,
) -> Finished:
    """Run `command` in a group of its own, its words going to the file `output`.

    When its time is up it is asked to end, and killed after `grace_s`. `watch` is called some times a second with the
    seconds that passed; what it raises ends the command and is raised.
    Raises UsageError when the command cannot be started.
    """
    begun = time.monotonic()
    with output.open("wb") as said:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        except OSError as error:
            raise UsageError(
                f"{command[0]} cannot be started: {error.strerror or error}", "install it anew"
            ) from error
        try:
            code = _wait(child, begun, timeout_s, watch)
        finally:
            kill_group(child.pid, signal.SIGTERM if child.poll() is None else signal.SIGKILL)
            _bury(child, grace_s)
    return Finished(code, tail(output), time.monotonic() - begun)


def tail(output: Path) -> str:
    """The last words of a file; empty where it cannot be read."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _wait(
    child: subprocess.Popen[bytes], begun: float, timeout_s: float, watch: Callable[[float], None] | None
) -> int | None:
    while True:
        try:
            return child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - begun
        if passed > timeout_s:
            return None
        if watch is not None:
            watch(passed)


def _bury(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """A leash needs a moment to end what it holds; then the whole group goes."""
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill_group(child.pid, signal.SIGKILL)
        child.wait()
