"""File limits, and child processes that end with us.

A child of `die_with_parent()` gets SIGTERM from the Linux kernel when the thread that started it ends, so a
killed benchmark leaves no server on the GPU. Elsewhere (macOS) only `kill_group` protects. Grandchildren are
reached through the process group, not through the kernel's signal.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from dsv4bench.errors import UsageError

_PR_SET_PDEATHSIG = 1
_SPARE_FILES = 64  # our own logs, sockets and libraries beside one socket a request


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; the limit in force afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports an infinite hard limit and refuses it
    wishes = [hard] if hard != resource.RLIM_INFINITY else [1 << 20, 1 << 16, 10240]
    for wish in wishes:
        if soft >= wish:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wish, hard))
        except (OSError, ValueError):
            continue
        return wish
    return soft


def need_files(concurrency: int) -> None:
    """Make room for `concurrency` sockets.

    Raises UsageError when the hard limit of open files is below concurrency + 64.
    """
    need = concurrency + _SPARE_FILES
    limit = raise_file_limit()
    if limit < need:
        raise UsageError(
            f"concurrency {concurrency} needs {need} open files, the limit here is {limit}",
            f"raise it with `ulimit -Hn {need}` (as root) or start with a lower --concurrency",
        )


def die_with_parent(sig: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """A `preexec_fn` that asks Linux to send `sig` to the child when we die; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork: no lock is taken after it
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
        if os.getppid() != parent:  # the parent died between fork and prctl
            os._exit(1)

    return before_exec


def kill_group(group_id: int, sig: signal.Signals) -> bool:
    """Send `sig` to a process group; False when nobody is left in it."""
    try:
        os.killpg(group_id, sig)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return False
    return True


def stat_cells(folder: Path) -> list[str] | None:
    """Linux: the cells of `/proc/<pid>`'s stat behind the name (which may hold anything): state, parent, … ."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
