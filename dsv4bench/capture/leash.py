"""A leash for a server under a profiler: `python -m dsv4bench.capture.leash -- COMMAND`, and nothing outlives it.

nsys puts the server into a session of its own and its agent away from everybody; ending `nsys launch`, or its
process group, ends neither of them. So this process becomes the foster parent of all orphans below it (Linux' child
subreaper) and runs COMMAND. It ends when COMMAND has ended, or when it is told to (SIGTERM, which `die_with_parent`
sends when we die, even by SIGKILL); before that it ends whatever is left below it, first asking, then not. Its exit
code is COMMAND's. When it was we who died, it removes the folder of `--remove`, too: half-written reports hold an
environment. Nothing heavy is imported: it is a process beside a measurement.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from dsv4bench.host.process import die_with_parent, stat_cells

ASK_S = 14.0  # for a server to end by itself; less than the 20 s after which `Launched.stop` takes the leash itself
_INSIST_S = 4.0  # nsys has told the server; what is still there then is told again, and its agent for the first time
OVER_S = 4.0  # beyond the time it gives its command, after which a leash that was asked to end is not doing so
GRACE_S = ASK_S + OVER_S
_POLL_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36
_CODE_NOT_STARTED = 127


def leashed(command: Sequence[str], remove: Path | None = None, ask_s: float | None = None) -> list[str]:
    """The command line that runs `command` on a leash; `remove` is a folder that must not outlive us.

    `ask_s`: how long it may take to end by itself once it is asked to (default ASK_S); then it is killed. Whoever
    ends the leash waits `OVER_S` longer.
    """
    options = [] if remove is None else ["--remove", str(remove)]
    options += [] if ask_s is None else ["--ask-s", f"{ask_s:g}"]
    return [sys.executable, "-m", "dsv4bench.capture.leash", *options, "--", *command]


class _Told(BaseException):
    """We were asked to end; no `except Exception` may keep it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command after `--`; its exit code, 128 + n for a signal."""
    parser = argparse.ArgumentParser(prog="leash")
    parser.add_argument("--remove", type=Path)
    parser.add_argument("--ask-s", type=float, default=ASK_S)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(arguments)
    owner = os.getppid()
    _adopt_orphans()
    try:
        return _run(asked.command, asked.ask_s)
    finally:
        if asked.remove is not None and os.getppid() != owner:
            shutil.rmtree(asked.remove, ignore_errors=True)


def _run(command: Sequence[str], ask_s: float) -> int:
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in ends:
        signal.signal(number, _tell)
    child: subprocess.Popen[bytes] | None = None
    try:
        child = subprocess.Popen(command, preexec_fn=die_with_parent())
        return _wait(child)
    except OSError as error:
        print(f"leash: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return _CODE_NOT_STARTED
    except _Told:
        return 128 + signal.SIGTERM
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_IGN)  # it ends already
        if child is not None and child.poll() is None:
            child.terminate()  # nsys launch hands it on, and closes its session
        end_all_below(ask_s)


def end_all_below(ask_s: float) -> None:
    """End every process below this one: what is asked to end gets `ask_s` to, what stays is killed."""
    asked: set[int] = set()
    begun = time.monotonic()
    while below := descendants():
        waited = time.monotonic() - begun
        if waited > ask_s:
            _signal(below, signal.SIGKILL)
        elif waited > _INSIST_S:
            _signal(below - asked, signal.SIGTERM)
            asked |= below
        if waited > ask_s + OVER_S:
            return  # in the kernel (a driver that hangs): nothing here can end it
        _reap()
        time.sleep(_POLL_S)


def descendants() -> set[int]:
    """Living processes below this one, orphans that came to it included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    left = [os.getpid()]
    while left:
        mine = [pid for pid in children.get(left.pop(), []) if pid not in found]
        found.update(mine)
        left += mine
    return found


def _parent(entry: Path) -> int | None:
    """Of a process that is no zombie."""
    cells = stat_cells(entry) or []
    return int(cells[1]) if len(cells) > 1 and cells[0] != "Z" else None


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Until the command has ended, burying orphans meanwhile."""
    while (code := child.poll()) is None:
        _reap(spare=child.pid)
        time.sleep(_POLL_S)
    return code if code >= 0 else 128 - code


def _reap(spare: int | None = None) -> None:
    """Bury dead children, but for the one whose exit code is waited for."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == spare:
                return
            os.waitpid(found.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _adopt_orphans() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _tell(number: int, frame: FrameType | None) -> None:
    raise _Told


if __name__ == "__main__":
    sys.exit(main())
