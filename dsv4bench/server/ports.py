"""Whose is a port? Asked before a launch and after it: a clash is one clear error, a strange server never measured.

As far as this host lets us see: Linux, and sockets of processes that this user may look at.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from dsv4bench.host.listening import PROC, Listening, listening
from dsv4bench.host.process import stat_cells
from dsv4bench.host.redact import redact

# Programs whose server is no child of theirs: a container's or another host's port, forwarded by somebody else.
_ELSEWHERE = frozenset(
    ("docker", "podman", "nerdctl", "kubectl", "ssh", "srun", "docker-proxy", "rootlessport", "conmon", "pasta")
)
_SHOWN = 120


def port_taken(port: int) -> str | None:
    """Who listens on a TCP port of this host, in words; None when it is free."""
    found = listening(port)
    if found is not None:
        return _named(found)
    return "a process that this user may not look at" if _bound(port) else None


def answered_by_another(port: int, pid: int, command: Sequence[str], started_s: float) -> str | None:
    """The process that listens on `port`, in words, when it is not the one that was launched as `pid`, nor its child.

    `command` is the server's own, without what it runs through. None also when that cannot be seen, or when the
    command starts a container or a remote process.
    """
    found = listening(port)
    if found is None or _belongs(found.pid, pid):
        return None
    if _program(command) in _ELSEWHERE or _program(found.command) in _ELSEWHERE:
        begun = _started_s(found.pid)
        return _named(found) if begun is not None and begun < started_s - 1.0 else None
    return _named(found)


def _named(found: Listening) -> str:
    words = " ".join(redact(found.command))
    shown = words if len(words) <= _SHOWN else words[:_SHOWN] + "…"
    return f"process {found.pid}" + (f" ({shown})" if shown else "")


def _bound(port: int) -> bool:
    """Whether something listens there that `listening` cannot name."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ended connections do not count
                probe.bind((address, port))
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                return True
    return False


def _belongs(pid: int, launched: int) -> bool:
    """Whether `pid` is the launched process, of its group, or below it."""
    try:
        if os.getpgid(pid) == launched:
            return True
    except ProcessLookupError:
        return True  # it has gone meanwhile: nothing to hold against it
    while pid > 1:
        if pid == launched:
            return True
        cells = stat_cells(PROC / str(pid))
        if cells is None:
            return False
        pid = int(cells[1])
    return False


def _started_s(pid: int) -> float | None:
    """When a process began, in epoch seconds."""
    cells = stat_cells(PROC / str(pid))
    if cells is None:
        return None
    try:
        lines = (PROC / "stat").read_text().splitlines()
        boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    return float(boot + int(cells[19]) / os.sysconf("SC_CLK_TCK"))


def _program(command: Sequence[str]) -> str:
    return Path(command[0]).name if command else ""
